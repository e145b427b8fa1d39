"""What is asked about queues besides their messages: bounds, times.

Owns: nothing; it puts the store's answers and the read pool together, because a search by time or
the last message's time may need the disk.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.store.queues.time_search import Boundary
from aerobee.runtime.errors import MessageNotFound
from aerobee.store_format.record import Record


class QueueReader:
    """Bounds and times of the store's queues."""

    def __init__(self, store: MessageStore, pool: Executor) -> None:
        self._store = store
        self._pool = pool

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Minimum and maximum offset; (0, 0) for a queue without messages."""
        bounds = self._store.queue_bounds(topic, queue_id)
        return bounds.min_offset, bounds.max_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """What the next message of the queue will get, as far as consumers may see."""
        return self._store.queue_bounds(topic, queue_id).max_offset

    async def last_store_timestamp_ms(self, topic: str, queue_id: int) -> int:
        """When the queue's last message was stored; 0 without messages."""
        bounds = self._store.queue_bounds(topic, queue_id)
        if bounds.max_offset <= bounds.min_offset:
            return 0
        located = self._store.locate(
            topic, queue_id, bounds.max_offset - 1, max_messages=1, max_bytes=1
        )
        if not located.runs:
            return 0
        try:
            data = self._store.read_nowait(located.runs)
            if data is None:
                loop = asyncio.get_running_loop()
                data = await loop.run_in_executor(self._pool, self._store.read, located.runs)
        except MessageNotFound:
            return 0
        return Record(data, 0, len(data)).store_timestamp_ms

    async def search_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool
    ) -> int:
        """The first offset at or after a time, or with `upper` the last at or before it."""
        search = self._store.plan_time_search(topic, queue_id)
        if search is None:
            return 0
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, search.run, timestamp_ms, boundary)
