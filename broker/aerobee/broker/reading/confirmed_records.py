"""A queue's records as far as they are confirmed: what holds on every replica.

Owns: nothing. What is in the page cache is read here; the rest goes through the pool of cold reads.
"""

from __future__ import annotations

from typing import NamedTuple

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.replication.roles import Roles
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.queues.reading import GetStatus
from aerobee.store.engine.read_work import ReadWork
from aerobee.store.format.record import iterate_records
from aerobee.store.format.record_view import Record

_GAPS = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
)


class ConfirmedRecords(NamedTuple):
    """`next_offset` is where to continue: after the records, or after a gap if there are none.
    `is_unconfirmed`: there are more, not confirmed yet."""

    records: list[Record]
    next_offset: int
    is_unconfirmed: bool


class ConfirmedReader:
    """On the loop."""

    def __init__(self, name: str, store: MessageStore, roles: Roles, pool: ReadPool) -> None:
        """`name`: the reader's name among the cold reads."""
        self._name = name
        self._store = store
        self._roles = roles
        self._pool = pool

    @property
    def confirmed_end(self) -> int:
        """Where the confirmed part of the log ends."""
        return self._roles.confirmed_end

    async def read(
        self, topic: str, queue_id: int, offset: int, *, max_bytes: int, max_records: int
    ) -> ConfirmedRecords:
        """Some records of a queue, starting at an offset, in order.

        Raises:
            EntryMismatch: one of them is damaged.
            AerobeeError: they cannot be read now.
        """
        wanted = QueueRead(topic, queue_id, offset, max_bytes, max_records)
        found = self._store.reads.read(wanted)
        if isinstance(found, ReadWork):
            await self._pool.run_in_turn(self._name, max_bytes, found.run)
            found = self._store.reads.finish(wanted, found)
        located = found.located
        if located.status is not GetStatus.FOUND:
            is_gap = located.status in _GAPS
            return ConfirmedRecords([], max(offset, located.next_offset if is_gap else 0), False)
        confirmed_end = self._roles.confirmed_end
        records: list[Record] = []
        for record in iterate_records(found.records):
            if record.physical_offset + record.size > confirmed_end:
                return ConfirmedRecords(records, offset + len(records), True)
            records.append(record)
        return ConfirmedRecords(records, located.next_offset, False)
