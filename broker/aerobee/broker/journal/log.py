"""A journal in the broker's own log: one queue of one topic, written by the broker itself.

Owns: only the conversion of bodies into records and back. Old records are read through the pool of
cold reads, like anyone else's.
"""

from __future__ import annotations

from collections.abc import Callable

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.journal.records import JournalRecords
from aerobee.broker.reading.confirmed_records import ConfirmedReader
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.runtime.errors import StoreFailed
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.consume_queue_entry import unpack_entries

READ_BYTES = 128 * 1024
"""Bytes read and applied in one turn of the loop."""
READ_RECORDS = 1_024
JOURNAL_QUEUE = 0
_FOREVER = float("inf")


class JournalLog:
    """On the loop."""

    def __init__(
        self,
        topic: str,
        store: MessageStore,
        durability: Durability,
        roles: Roles,
        reads: ReadPool,
        writes: OwnWrites,
        *,
        on_store_failed: Callable[[StoreFailed], None],
    ) -> None:
        self._topic = topic
        self._store = store
        self._durability = durability
        self._roles = roles
        self._reader = ConfirmedReader(topic, store, roles, reads)
        self._writes = writes
        self._on_store_failed = on_store_failed

    # ------------------------------------------------------------------------------ writing

    def append(self, body: bytes, *, ends_topic: str = "") -> Appended:
        """Append one record. `ends_topic`: it marks the end of this topic, see
        `MessageStore.append`.

        Raises:
            NotMaster: nothing was stored; this replica may not act as master now.
            NotWritable, Busy, ShuttingDown, MessageTooLarge: nothing was stored.
            StoreFailed: the broker ends.
        """
        # Even on a full disk: a journal writes little, and that may be what frees space; without
        # commits retention could free nothing.
        return self._writes.append(
            self._topic, JOURNAL_QUEUE, body, reserve=True, ends_topic=ends_topic
        )

    def fail(self, error: StoreFailed) -> None:
        """The broker ends."""
        self._on_store_failed(error)

    def when_confirmed(self, end: int, told: Callable[[bool], None]) -> None:
        """Calls back with True once all below `end` is confirmed; False if the term ends first."""
        self._durability.confirmed.add(end, _FOREVER, told)

    def when_flushed(self, end: int, told: Callable[[bool], None]) -> None:
        """Flush now; calls back with True once everything below `end` is on disk."""
        self._durability.flushed.add(end, _FOREVER, told)
        self._durability.request_flush()

    # ------------------------------------------------------------------------------ reading

    def listen(self, advanced: Callable[[], None]) -> None:
        """Call this whenever more of the log is confirmed, on a master and on a slave."""
        self._durability.listen(advanced)

    @property
    def begin(self) -> int:
        """The log position of the oldest byte that still exists."""
        return self._store.min_offset

    @property
    def end(self) -> int:
        """The log position after the last byte appended here, confirmed or not."""
        return self._store.appended_end

    @property
    def confirmed_end(self) -> int:
        """The log position below which each replica that could be elected has everything, as far
        as known here."""
        return self._roles.confirmed_end

    @property
    def records_end(self) -> int:
        """How many records the dispatched part of the log has, confirmed or not."""
        return self._store.queues.bounds(self._topic, JOURNAL_QUEUE).max_offset

    def position_of(self, queue_offset: int) -> int | None:
        """Where a record is in the log; None if this number does not exist yet. May block."""
        entry = self._store.queues.read_entries(self._topic, JOURNAL_QUEUE, queue_offset, 1)
        return int(unpack_entries(entry)[0][0]) if entry else None

    async def read(self, queue_offset: int) -> JournalRecords:
        """Some of the confirmed records, starting at this one; empty if there are none.

        Raises:
            AerobeeError: they cannot be read now, or are damaged.
        """
        found = await self._reader.read(
            self._topic, JOURNAL_QUEUE, queue_offset, max_bytes=READ_BYTES, max_records=READ_RECORDS
        )
        bodies = [(record.queue_offset, bytes(record.body)) for record in found.records]
        return JournalRecords(bodies, found.next_offset)
