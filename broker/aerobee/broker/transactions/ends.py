"""A master ends transactions: the message is stored and the half message done, or done alone.

    is it known? -> read the half message -> may we? -> intent, message, op message, in one turn
      -> answer once all of it is as safe as an ordinary send

Owns: the order of these steps, and what was decided under this term and is not followed yet. A
transaction ends once. Who asks again, for the same end or another, late or at the same time, waits
for the first one and is answered with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from aerobee.broker.reading.message_lookup import KeyQuery, MessageLookup
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.halves import HALF_QUEUE
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.store.tables.config_tables import TopicTable
from aerobee.broker.transactions.intents import TRANSACTION_JOURNAL_TOPIC, CommitIntent
from aerobee.broker.transactions.known import KnownHalves
from aerobee.broker.transactions.pending import TransactionName, name_of
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    MessageIllegal,
    MessageNotFound,
    MqError,
    NotMaster,
    NotWritableTopic,
    StoreFailed,
    TopicNotFound,
)
from aerobee.runtime.log import log_event
from aerobee.store_format.batch import BatchIllegal
from aerobee.store_format.delayed_records import HALF_TOPIC, Moved
from aerobee.store_format.record_layout import RecordCorrupt, RecordIllegal
from aerobee.store_format.record_view import Record
from aerobee.store_format.transaction_records import (
    OP_TOPIC,
    HalfIllegal,
    HalfMessage,
    Outcome,
    committed_record,
    op_body,
    op_properties,
)

log = logging.getLogger(__name__)

ENDS: Final = (Outcome.COMMITTED, Outcome.ROLLED_BACK)

ReadHalf = Callable[[HalfMessage], Awaitable[bytes]]
"""The half message's record. Raises MessageNotFound, MqError."""


class _Ending(NamedTuple):
    """An end that is in the log up to `end`, and not followed yet."""

    outcome: Outcome
    end: int


class Ends:
    """On the loop. The parts of a term are set by `begin` and `end_term`."""

    def __init__(
        self,
        known: KnownHalves,
        writes: OwnWrites,
        store: MessageStore,
        guard: Guard,
        topics: TopicTable,
        durability: Durability,
        lookup: MessageLookup,
        clock: Clock,
        *,
        read_half: ReadHalf,
        on_owing: Callable[[], None],
    ) -> None:
        """`on_owing`: `pay` must be called before long."""
        self._known = known
        self._pending = known.pending
        self._writes = writes
        self._store = store
        self._guard = guard
        self._topics = topics
        self._durability = durability
        self._lookup = lookup
        self._clock = clock
        self._read_half = read_half
        self._on_owing = on_owing
        self._term: object | None = None
        self._ending: dict[TransactionName, _Ending] = {}
        self._owed: tuple[CommitIntent, TransactionName] | None = None
        """A message that is stored, and whose op message could not be."""
        self._progress = asyncio.Event()
        self.committed = 0
        self.rolled_back = 0

    # ------------------------------------------------------------------------------ the role

    def begin(self) -> None:
        """This master knows everything, and what the last one began is finished."""
        self._term = object()
        self._wake()

    def end_term(self) -> None:
        """Nothing is ended any more."""
        self._term = None
        self._known.end_term()
        self._ending.clear()
        self._owed = None
        self._wake()

    @property
    def is_ready(self) -> bool:
        """Whether transactions end here."""
        return self._term is not None

    def followed(self) -> None:
        """The state knows more."""
        pending = self._pending
        for name in [name for name in self._ending if not pending.of(name)]:
            del self._ending[name]
        self._known.followed()
        self._wake()

    def _wake(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    # ------------------------------------------------------------------------------ ending

    async def end(self, name: TransactionName, outcome: Outcome, timeout_ms: int) -> Outcome:
        """End a transaction. Returns how it ended: with `outcome`, or as it was decided before.

        Raises:
            MessageNotFound: there is no such transaction here.
            DeadlineExceeded: it has ended, or not; ask again.
            NotMaster, Busy, and others: it has not ended here.
        """
        if outcome not in ENDS:
            raise InvalidArgument("a transaction is committed or rolled back")
        deadline_s = self._clock.monotonic_s() + timeout_ms / 1_000
        await self._until(lambda: self._term is not None, deadline_s)
        while True:
            await self._until(lambda: not self._known.is_recent(name), deadline_s)
            term = self._term
            if (begun := self._ending.get(name)) is not None:
                return await self._safe(begun, deadline_s)
            waiting = self._pending.of(name)
            if not waiting:
                return await self._ended_before(name)
            data = await self._read_half(waiting[-1]) if outcome is Outcome.COMMITTED else b""
            if term is None or term is not self._term:
                raise _not_master()
            if name in self._ending or self._pending.of(name) != waiting:
                continue  # somebody else has ended it meanwhile, or it was checked
            end = self._act(name, waiting, outcome, data)
            begun = self._ending[name] = _Ending(outcome, end)
            return await self._safe(begun, deadline_s)

    async def _ended_before(self, name: TransactionName) -> Outcome:
        ended = self._pending.ended(name)
        if ended is not None:
            return ended.outcome
        # Of long ago, or of before this replica began to follow.
        try:
            query = KeyQuery(HALF_TOPIC, name.transaction_id, is_unique_key=True)
            found = (await self._lookup.by_key(query)).records
        except (InvalidArgument, TopicNotFound):
            found = ()
        if any(Record(each).property_value("REAL_TOPIC") == name.topic for each in found):
            return Outcome.UNKNOWN
        # Who is replaced already does not know what his successor has stored.
        self._guard.check_acting()
        raise MessageNotFound(
            f"topic {name.topic} has no transaction {name.transaction_id} here: it was not begun, "
            "or is so old that it is forgotten"
        )

    async def _safe(self, begun: _Ending, deadline_s: float) -> Outcome:
        if (late := await self._durability.wait_safe(begun.end, deadline_s)) is not None:
            raise DeadlineExceeded(
                f"the end of the transaction is stored, but not safe in time because of: "
                f"{late.value}; ask again"
            )
        return begun.outcome

    async def _until(self, is_so: Callable[[], bool], deadline_s: float) -> None:
        """Raises NotMaster, DeadlineExceeded."""
        try:
            async with asyncio.timeout(max(0.0, deadline_s - self._clock.monotonic_s())):
                while not is_so():
                    self._guard.check_acting()
                    await self._progress.wait()
        except TimeoutError:
            raise DeadlineExceeded(
                "this broker is still reading the transactions that are open, or its replicas are "
                "late; ask again in a moment"
            ) from None

    # ------------------------------------------------------------------------------ acting

    def _act(
        self,
        name: TransactionName,
        waiting: Sequence[HalfMessage],
        outcome: Outcome,
        data: bytes,
    ) -> int:
        """Returns where the log ends then. Raises MqError: nothing has happened."""
        self._guard.check_master()
        self.pay()
        offsets = [half.offset for half in waiting]
        if outcome is Outcome.ROLLED_BACK:
            end = self._append_op(offsets, outcome)
            self.rolled_back += 1
            return end
        half = waiting[-1]
        moved = self._message(half, data)
        queue = self._store.queues.get_or_create(moved.topic, moved.queue_id)
        intent = CommitIntent(
            half.offset,
            half.position,
            moved.topic,
            moved.queue_id,
            queue.next_offset,
            tuple(offsets[:-1]),
        )
        self._writes.append(TRANSACTION_JOURNAL_TOPIC, 0, intent.encode())
        try:
            appended = self._writes.append_copies(moved.topic, moved.queue_id, [moved.record], ())
        except BatchIllegal as error:
            raise _undeliverable(half, str(error)) from None
        self.committed += 1
        self._owed = intent, name
        # A reader that sees the message has a broker that knows it is done.
        self._ending[name] = _Ending(outcome, appended.end)
        self._writes.publish()
        try:
            self.pay()
        except StoreFailed:
            raise
        except MqError as error:
            # Known by its intent already; the op message follows when the log takes it.
            log_event(log, "an op message waits to be written", level=logging.WARNING, reason=error)
            self._on_owing()
        return self._ending[name].end

    def _message(self, half: HalfMessage, data: bytes) -> Moved:
        """What is delivered. Raises MqError: it cannot be."""
        topic = self._topics.get(half.topic)
        if topic is None:
            raise TopicNotFound(
                f"topic {half.topic} was deleted while the transaction was open: create it again, "
                "or roll the transaction back"
            )
        if half.topic in self._topics.ending:
            raise Busy(f"topic {half.topic} is being emptied; try again in a moment")
        if topic.has_batch_queues:
            raise NotWritableTopic(
                f"topic {half.topic} keeps batches as one message each, which this broker cannot "
                "write"
            )
        try:
            record = Record(data, 0, len(data))
            if record.physical_offset != half.position:
                raise RecordCorrupt(0, f"it is not the record at {half.position}")
            return committed_record(record, store_host_ipv6=self._writes.store_host_ipv6)
        except (RecordCorrupt, RecordIllegal, HalfIllegal) as error:
            raise _undeliverable(half, str(error)) from None

    def pay(self) -> None:
        """What could not be written when its message was. Raises MqError: not now either."""
        if self._owed is None:
            return
        intent, name = self._owed
        end = self._append_op(intent.offsets, Outcome.COMMITTED)
        self._owed = None
        self._ending[name] = _Ending(Outcome.COMMITTED, end)

    @property
    def owes(self) -> bool:
        """Whether an op message is missing."""
        return self._owed is not None

    def finish(self, intent: CommitIntent, is_stored: bool) -> None:
        """What the last master began last. Raises MqError: it is not finished."""
        half = self._pending.at(intent.half_offset)
        if is_stored and half is not None:
            end = self._append_op(intent.offsets, Outcome.COMMITTED)
            # Until that is followed too, who asks for an end is told of this one.
            self._ending[name_of(half)] = _Ending(Outcome.COMMITTED, end)
            log_event(
                log,
                "a commit of the last master is finished",
                half=intent.half_offset,
                topic=intent.topic,
                queue_id=intent.queue_id,
                offset=intent.offset,
            )

    def _append_op(self, offsets: Sequence[int], outcome: Outcome) -> int:
        # Of a full disk too: it is little, and what is done can be removed.
        return self._writes.append(
            OP_TOPIC, HALF_QUEUE, op_body(offsets), properties=op_properties(outcome), reserve=True
        ).end


def _not_master() -> NotMaster:
    return NotMaster("this replica's term as master has just ended; ask the master")


def _undeliverable(half: HalfMessage, reason: str) -> MqError:
    return MessageIllegal(
        f"the message of transaction {half.transaction_id} cannot be delivered: {reason}; roll the "
        "transaction back"
    )
