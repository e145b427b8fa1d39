"""Records with their bytes, in queues by number, as the store of one simulated broker has them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.timers.entries import TIMER_JOURNAL_TOPIC
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.queues.reading import QueueBounds
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_view import Record as StoredRecord
from tests.simulation.cluster.log import Record

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.kernel import Place

JOURNAL: Final = (TIMER_JOURNAL_TOPIC, 0)
EPOCH_MS: Final = 1_700_000_000_000


class Stored(NamedTuple):
    """A record's bytes as in the log, and the number of the broker's own producer."""

    data: bytes
    run: ProducerRun | None

    @property
    def record(self) -> StoredRecord:
        return StoredRecord(self.data, 0, len(self.data))


class PlaceClock:
    """The machine's clocks; its wall clock can be set."""

    def __init__(self, broker: Broker) -> None:
        self._kernel = broker.world.kernel
        self._place: Place = broker.place

    def now_ms(self) -> int:
        return EPOCH_MS + round((self._kernel.now_s + self._place.wall_s) * 1_000)

    def monotonic_s(self) -> float:
        return self._kernel.clock_s(self._place)


@dataclass(frozen=True, slots=True)
class Placed:
    base_queue_offset: int
    end: int


@dataclass(frozen=True, slots=True)
class Led:
    """A term, as seen by a journal."""

    epoch: int
    is_unclean: bool


class Queues:
    """Records of the queues that have bytes, with their positions; confirmed or not."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queues: dict[QueueName, list[tuple[int, Record]]] = {}
        self.store_timestamp_ms = 0
        """The newest store time in the log."""
        log = broker.folder.log
        for start, record in zip(log.starts, log.records, strict=True):
            self.add(start, record)

    def add(self, start: int, record: Record) -> None:
        if isinstance(record.queue_id, tuple):
            self._queues.setdefault(record.queue_id, []).append((start, record))
            if record.queue_id != JOURNAL:
                stored_ms = record.data.record.store_timestamp_ms
                self.store_timestamp_ms = max(self.store_timestamp_ms, stored_ms)

    def bounds(self, name: QueueName) -> QueueBounds:
        found = self._queues.get(name, [])
        begin = self._broker.folder.log.begin
        if found and found[0][0] < begin:
            del found[: bisect_left(found, begin, key=lambda each: each[0])]
        end = self._broker.derived.queue_ends.get(name, 0)
        return QueueBounds(end - len(found), end)

    def records(self, name: QueueName, offset: int, count: int) -> list[tuple[int, Record]]:
        """Starting at an offset; empty if it is gone."""
        first = offset - self.bounds(name).min_offset
        return self._queues.get(name, [])[first : first + count] if first >= 0 else []

    def confirmed_end(self, name: QueueName) -> int:
        """The offset after the last confirmed record."""
        found, end = self._queues.get(name, []), self._broker.confirmed_end
        count = len(found)
        while count and found[count - 1][0] + found[count - 1][1].size > end:
            count -= 1
        return self.bounds(name).max_offset - (len(found) - count)

    def confirmed(self, name: QueueName, offset: int, count: int) -> list[tuple[int, Record]]:
        end = self._broker.confirmed_end
        found = self.records(name, offset, count)
        return [each for each in found if each[0] + each[1].size <= end]
