"""The half messages that a broker has: those in the state, and on a master those appended and not
confirmed yet.

Owns: the latter. With it the send path stores no message of a transaction twice: a master that does
not yet know what its log has takes none. A message is known by its id and its content; another one
with the same id gets a transaction id of its own.
"""

from __future__ import annotations

from aerobee.broker.reading.handed import Handed
from aerobee.broker.sending.halves import HALF_QUEUE
from aerobee.broker.transactions.pending import PendingHalves, TransactionName, name_of
from aerobee.runtime.errors import Busy, NotMaster
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import Appended
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.message_content import another_id
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    OP_TOPIC,
    TRANSACTIONS_GROUP,
    HalfMessage,
)


def opened_halves(
    offsets: ConsumerOffsetTable, store: MessageStore, pending_max: int
) -> KnownHalves:
    """The half messages of an opened folder, before it has followed the log."""

    def begin(topic: str) -> int:
        # A log that lost its end continues before the recorded progress.
        said = offsets.query(TRANSACTIONS_GROUP, topic, HALF_QUEUE) or 0
        return min(said, store.queues.bounds(topic, HALF_QUEUE).max_offset)

    pending = PendingHalves(next_half=begin(HALF_TOPIC), next_op=begin(OP_TOPIC))
    aside = PendingHalves(next_half=begin(ASIDE_TOPIC))
    return KnownHalves(pending, aside, pending_max=pending_max)


class KnownHalves:
    """On the loop. The send path's `HalfMemory`."""

    def __init__(self, pending: PendingHalves, aside: PendingHalves, *, pending_max: int) -> None:
        """`aside`: messages that were set aside and wait for an operator's decision."""
        self.pending = pending
        self.aside = aside
        self._pending_max = pending_max
        self._recent: dict[TransactionName, tuple[Appended, str]] = {}
        """In log order, with their contents."""
        self._is_complete = False
        self.handed: Handed[HalfMessage] = Handed()

    @property
    def recent_count(self) -> int:
        """Half messages that are stored but not in the state yet."""
        return len(self._recent)

    def check_takes(self, count: int = 1) -> None:
        """Raises NotMaster: this master does not yet know what is stored. Busy: too many
        transactions are open for this many more."""
        if not self._is_complete:
            raise NotMaster(
                "this master is still reading the transactions that are open; ask again in a moment"
            )
        open_count = len(self.pending) + len(self.aside) + self.recent_count
        if open_count + count > self._pending_max:
            raise Busy(
                f"{self._pending_max} transactions are open at this broker, {len(self.aside)} of "
                "them set aside: end some of them, or raise transactions.pending_max"
            )

    def standing(self, topic: str, message_id: str, content: str) -> tuple[str, Appended | None]:
        """The transaction of a message with this id and content, and where its half message is
        stored, as far back as is remembered."""
        transaction_id = message_id
        while (known := self._known(TransactionName(topic, transaction_id))) is not None:
            if known[1] == content:
                return transaction_id, known[0]
            transaction_id = another_id(transaction_id, content)
        return transaction_id, None

    def _known(self, name: TransactionName) -> tuple[Appended, str] | None:
        if (recent := self._recent.get(name)) is not None:
            return recent
        ended = self.pending.ended(name) or self.aside.ended(name)
        waiting = self.pending.of(name) or self.aside.of(name)
        half = waiting[-1] if waiting else None if ended is None else ended.half
        if half is None:
            return None
        end = half.position + half.size
        return Appended(half.offset, half.position, end, half.stored_ms), half.content

    def stored(self, half: HalfMessage, appended: Appended) -> None:
        """It has just been appended for the first time."""
        offset, position, end, stored_ms = (
            appended.base_queue_offset,
            appended.base_physical_offset,
            appended.end,
            appended.store_timestamp_ms,
        )
        placed = half._replace(
            offset=offset, position=position, size=end - position, stored_ms=stored_ms
        )
        self.handed.append(offset, end, placed)
        self.stored_again(name_of(half), half.content, appended)

    def stored_again(self, name: TransactionName, content: str, appended: Appended) -> None:
        """It has just been appended in place of an older record."""
        self._recent.pop(name, None)
        self._recent[name] = appended, content

    def is_recent(self, name: TransactionName) -> bool:
        """Whether its newest record is stored but not in the state yet."""
        return name in self._recent

    def followed(self) -> None:
        """The state has advanced."""
        recent, next_half = self._recent, self.pending.next_half
        while recent:
            name, (appended, _) = next(iter(recent.items()))
            if appended.base_queue_offset >= next_half:
                return
            del recent[name]

    def begin(self) -> None:
        """This master knows everything that is in its log."""
        self._is_complete = True

    def end_term(self) -> None:
        """What is not confirmed may never be."""
        self._is_complete = False
        self._recent.clear()
        self.handed.clear()
