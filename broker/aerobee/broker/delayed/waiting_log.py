"""The queues in which messages wait, as far as they are confirmed.

    queue 0     rmq_sys_wheel_timer, queue 0
    queue n     SCHEDULE_TOPIC_XXXX, queue n - 1: delay level n

Owns: nothing. What is in the page cache is read here; the rest goes through the pool of cold reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.reading.confirmed_records import ConfirmedReader, ConfirmedRecords
from aerobee.broker.replication.roles import Roles
from aerobee.broker.timers.entries import TIMER_QUEUE
from aerobee.broker.timers.pending import Int64Array
from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.queues.reading import QueueBounds
from aerobee.store.format.consume_queue_entry import unpack_entries
from aerobee.store.format.delayed_records import TIMER_TOPIC
from aerobee.store.format.tags import SCHEDULE_TOPIC

Place = TypeVar("Place")

READER = "delayed messages"
"""The name of this reader among the cold reads."""
STEP_BYTES = 128 * 1024
"""Bytes of the timer queue read in one turn of the loop."""
STEP_RECORDS = 256
PIECES_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WaitingEntries:
    """Confirmed entries of a queue, starting at an offset; `times_ms` only for levels' queues."""

    positions: Int64Array
    sizes: Int64Array
    times_ms: Int64Array
    is_unconfirmed: bool

    def __len__(self) -> int:
        return len(self.positions)


def queue_name(queue: int) -> QueueName:
    """The store's name of a waiting queue."""
    return (TIMER_TOPIC, 0) if queue == TIMER_QUEUE else (SCHEDULE_TOPIC, queue - 1)


def in_parts(
    places: Sequence[Place], size_of: Callable[[Place], int], bytes_max: int, count_max: int
) -> Iterator[Sequence[Place]]:
    """Parts in order, each at most this many and this many bytes; a single one may be larger."""
    begin, total = 0, 0
    for at, place in enumerate(places):
        size = size_of(place)
        if at > begin and (total + size > bytes_max or at - begin == count_max):
            yield places[begin:at]
            begin, total = at, 0
        total += size
    if begin < len(places):
        yield places[begin:]


class WaitingLog:
    """On the loop."""

    def __init__(self, store: MessageStore, roles: Roles, pool: ReadPool) -> None:
        self._store = store
        self._roles = roles
        self._pool = pool
        self._reader = ConfirmedReader(READER, store, roles, pool)

    @property
    def confirmed_end(self) -> int:
        return self._roles.confirmed_end

    def bounds(self, queue: int) -> QueueBounds:
        """Confirmed or not."""
        return self._store.queues.bounds(*queue_name(queue))

    @property
    def timers_end(self) -> int:
        """The end of the timer queue, including what is not confirmed yet."""
        queue = self._store.queues.get(*queue_name(TIMER_QUEUE))
        return 0 if queue is None else queue.next_offset

    async def timer_records(self, offset: int, *, count: int = STEP_RECORDS) -> ConfirmedRecords:
        """At most `count` records of the timer queue, in order. Raises as
        `ConfirmedReader.read`."""
        return await self._reader.read(
            *queue_name(TIMER_QUEUE), offset, max_bytes=STEP_BYTES, max_records=count
        )

    async def entries(self, queue: int, offset: int, count: int) -> WaitingEntries:
        """Entries of a queue, starting at an offset. Raises as `timer_records`."""
        found = self._store.reads.entries(*queue_name(queue), offset, count)
        if not isinstance(found, bytes):
            found = await self._pool.run_in_turn(READER, STEP_BYTES, found.run)
        positions, sizes, times_ms = unpack_entries(found)
        confirmed = int((positions + sizes <= self.confirmed_end).sum())
        return WaitingEntries(
            positions[:confirmed],
            sizes[:confirmed],
            times_ms[:confirmed],
            confirmed < len(positions),
        )

    async def pieces(self, positions: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """The bytes at these positions of the log. Raises MessageNotFound, and as
        `timer_records`."""
        found: list[bytes] = []
        runs: list[tuple[int, int]] = []
        total = 0
        for position, size in zip(positions, sizes, strict=True):
            if runs and total + size > PIECES_BYTES_MAX:
                found += await self._read(runs, total)
                runs, total = [], 0
            runs.append((position, size))
            total += size
        return found + await self._read(runs, total) if runs else found

    async def pieces_there(
        self, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[bytes | None]:
        """The same; None for what the log no longer has."""
        try:
            return list(await self.pieces(positions, sizes))
        except MessageNotFound:
            pass
        found: list[bytes | None] = []
        for position, size in zip(positions, sizes, strict=True):
            try:
                found += await self.pieces((position,), (size,))
            except MessageNotFound:
                found.append(None)
        return found

    async def _read(self, runs: list[tuple[int, int]], total: int) -> list[bytes]:
        read: bytes | Callable[[], bytes] = self._store.reads.pieces(runs)
        if not isinstance(read, bytes):
            read = await self._pool.run_in_turn(READER, total, read)
        found, at = [], 0
        for _, size in runs:
            found.append(read[at : at + size])
            at += size
        return found
