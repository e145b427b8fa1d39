"""The simulated log, as seen by the timer journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aerobee.broker.journal.records import JournalRecords
from tests.simulation.cluster.stored_queues import JOURNAL, Placed

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.seen_store import SeenStore


class TimerLog:
    """On one process's loop."""

    def __init__(self, broker: Broker, store: SeenStore) -> None:
        self._broker = broker
        self._store = store
        self._queues = store.queues
        self.listen = store.listen
        self.when_flushed = store.when_flushed

    @property
    def begin(self) -> int:
        return self._broker.folder.log.begin

    @property
    def end(self) -> int:
        return self._broker.folder.log.end

    @property
    def confirmed_end(self) -> int:
        return self._broker.confirmed_end

    @property
    def records_end(self) -> int:
        return self._store.records_end

    def position_of(self, queue_offset: int) -> int | None:
        found = self._queues.records(JOURNAL, queue_offset, 1)
        return found[0][0] if found else None

    def append(self, body: bytes, *, ends_topic: str = "") -> Placed:
        written = self._broker.world.variant.timer_record(body)
        return self._store.append(JOURNAL, written, None)

    def fail(self, error: Exception) -> None:
        raise error

    def when_confirmed(self, end: int, told: Callable[[bool], None]) -> None:
        self._store.confirmed.add(end, float("inf"), told)

    async def read(self, queue_offset: int) -> JournalRecords:
        await self._store.read_takes_time()
        begin = self._queues.bounds(JOURNAL).min_offset
        if queue_offset < begin:
            return JournalRecords([], begin)
        found = self._queues.confirmed(JOURNAL, queue_offset, 20)
        bodies = [(record.queue_offset, record.data.data) for _, record in found]
        return JournalRecords(bodies, queue_offset + len(bodies))
