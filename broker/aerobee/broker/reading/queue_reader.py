"""Questions about queues besides their messages: bounds and times.

Owns: nothing; it combines the store's answers and the read pool, because a search by time or the
last message's time may need the disk.
"""

from __future__ import annotations

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.queues.time_search import Boundary
from aerobee.store.engine.read_work import ReadWork
from aerobee.store.format.record import Record

_READER = "questions about queues"
_SEARCH_BYTES = 64 * 1024
"""Approximate bytes read by a search: a page per step."""


class QueueReader:
    """Bounds and times of the store's queues; nothing here waits for the disk on the loop."""

    def __init__(self, store: MessageStore, pool: ReadPool) -> None:
        self._store = store
        self._pool = pool

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Minimum and maximum offset; (0, 0) for a queue without messages."""
        bounds = self._store.queues.bounds(topic, queue_id)
        return bounds.min_offset, bounds.max_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message, as far as consumers may see."""
        return self._store.queues.bounds(topic, queue_id).max_offset

    async def last_store_timestamp_ms(self, topic: str, queue_id: int) -> int:
        """When the queue's last message was stored; 0 without messages."""
        return await self._stored_ms(topic, queue_id, self.max_offset(topic, queue_id) - 1)

    async def first_store_timestamp_ms(self, topic: str, queue_id: int) -> int:
        """When the queue's first message was stored; 0 without messages."""
        return await self._stored_ms(topic, queue_id, self.bounds(topic, queue_id)[0])

    async def _stored_ms(self, topic: str, queue_id: int, offset: int) -> int:
        first, end = self.bounds(topic, queue_id)
        data = await self.record(topic, queue_id, offset) if first <= offset < end else None
        return Record(data, 0, len(data)).store_timestamp_ms if data else 0

    async def record(
        self, topic: str, queue_id: int, offset: int, *, even_unkept: bool = False
    ) -> bytes | None:
        """The record at an offset; None if consumers see none there. `even_unkept`: see QueueRead.
        Raises AerobeeError."""
        wanted = QueueRead(
            topic, queue_id, offset, max_bytes=1, max_messages=1, even_unkept=even_unkept
        )
        try:
            found = self._store.reads.read(wanted)
            if isinstance(found, ReadWork):
                await self._pool.run_in_turn(_READER, _SEARCH_BYTES, found.run)
                found = self._store.reads.finish(wanted, found)
        except MessageNotFound:
            return None
        return found.records or None

    async def piece(self, position: int, size: int) -> bytes:
        """These bytes of the log. Raises MessageNotFound, and AerobeeError."""
        read = self._store.reads.pieces(((position, size),))
        return (
            read if isinstance(read, bytes) else await self._pool.run_in_turn(_READER, size, read)
        )

    async def search_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool
    ) -> int:
        """The first offset at or after a time, or with `upper` the last at or before it."""
        search = self._store.reads.plan_time_search(topic, queue_id)
        if search is None:
            return 0
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        return await self._pool.run_in_turn(
            _READER, _SEARCH_BYTES, lambda: search.run(timestamp_ms, boundary)
        )
