"""This broker's queues as official clients read them themselves, and their groups' offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.broker.groups.ownership import NOBODYS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.reading.egress import READ_BYTES_MAX, Egress, ReadCode
from aerobee.broker.reading.filters import filter_of
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.reading.single_reads import SingleReads
from aerobee.broker.sending.guard import Guard
from aerobee.domain.sql_filter.wish import Wish
from aerobee.rocketmq_api.ports import Read
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import DeadlineExceeded
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.format.record import iterate_records

_OUT_OF_RANGE: Final = (
    ReadCode.OFFSET_TOO_SMALL,
    ReadCode.OFFSET_TOO_LARGE,
    ReadCode.MESSAGE_REMOVED,
)


class OwnReads:
    """Translates for the parts that also serve our own clients."""

    def __init__(
        self,
        broker_name: str,
        egress: Egress,
        queues: QueueReader,
        offsets: ConsumerOffsets,
        guard: Guard,
        clock: Clock,
        *,
        is_master: Callable[[], bool],
        on_delivered: Callable[[str, str, int, int], None],
    ) -> None:
        """`on_delivered` gets what was sent: group, topic, messages, bytes."""
        self.broker_name = broker_name
        self.is_master = is_master
        self._reads = SingleReads(egress, clock)
        self._queues = queues
        self._offsets = offsets
        self._guard = guard
        self._on_delivered = on_delivered

    async def read(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        messages_max: int,
        wish: Wish,
        wait_ms: int,
    ) -> Read:
        passing = filter_of(wish, is_exact=True)
        wanted = QueueRead(topic, queue_id, offset, READ_BYTES_MAX, messages_max, passing, group)
        found = await self._reads.read(wanted, wait_ms / 1_000)
        if found.code in _OUT_OF_RANGE:
            return Read((), found.next_offset, is_out_of_range=True)
        if found.count:
            self._on_delivered(group, topic, found.count, len(found.records))
        return Read(tuple(iterate_records(found.records)), found.next_offset)

    async def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        await self._offsets.acting_for(group)
        self._guard.check_queue(topic, queue_id)
        return self._offsets.query(GroupQueue(group, topic, queue_id))

    async def commit(
        self, group: str, topic: str, queue_id: int, offset: int, timeout_ms: int
    ) -> None:
        await self._offsets.begun_for(group)
        key = GroupQueue(group, topic, queue_id)
        # Refuses if a member holds the queue: a reset would end its lease.
        self._offsets.claimed(key, NOBODYS)
        standing = self._offsets.query(key)
        if standing is not None and offset < standing:
            safe: asyncio.Future[None] | None = self._offsets.reset(key, offset)
        else:
            safe = self._offsets.commit(key, offset, NOBODYS)
        if safe is None:
            return
        await asyncio.wait((safe,), timeout=timeout_ms / 1_000)
        if not safe.done():
            raise DeadlineExceeded(
                "the offset is stored, but disk and replicas did not confirm it in time; repeat "
                "the request"
            )
        safe.result()

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        self._guard.check_queue(topic, queue_id)
        return self._queues.bounds(topic, queue_id)

    async def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        self._guard.check_queue(topic, queue_id)
        return await self._queues.search_by_time(topic, queue_id, time_ms, upper=False)
