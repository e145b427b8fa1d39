"""The store as a broker's waiting messages see it: the simulated log, with records of real bytes.

Queues by number, who waits for the confirmed and for the flushed end, reads that take time, and a
disk that may be full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aerobee.broker.delayed.waiting_log import WaitingEntries, queue_name
from aerobee.broker.reading.confirmed_records import ConfirmedRecords
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.broker.timers.entries import TIMER_QUEUE
from aerobee.broker.timers.record_rows import HandedTimers
from aerobee.runtime.errors import NotMaster, NotWritable
from aerobee.store.engine.producers.producer_windows import ProducerName
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.queues.reading import QueueBounds
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchLimits, check_batch, number_batch
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.delayed_records import TIMER_TOPIC, Delay, waiting_record
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.record_view import Record as StoredRecord
from aerobee.store.format.tags import TagsCodes
from tests.simulation.cluster.log import Record
from tests.simulation.cluster.process_loop import ProcessLoop
from tests.simulation.cluster.stored_queues import JOURNAL, PlaceClock, Placed, Queues, Stored

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker

LEVELS: Final = DelayLevels((300, 1_000, 2_000))
FLIGHTS: Final = "flights"
"""The topic of delayed messages."""
ORDERS: Final = "orders"
"""The topic whose messages fail."""
_HOST: Final = HostAddress(bytes((10, 0, 0, 1)), 10_911)
_LIMITS: Final = BatchLimits()


class SeenStore:
    """Of one process: its store, waiting log, durability and writes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.chance = broker.world.waiting_chance
        self.loop = ProcessLoop(broker.world.kernel, broker)
        self.clock = PlaceClock(broker)
        self.queues = Queues(broker)
        self._listeners: list[Callable[[], None]] = []
        self._is_publishing = False
        self.reads = 0
        """The number of running reads."""
        self.handed = HandedTimers()
        self._tags = TagsCodes(delays_ms=LEVELS.delays_ms)
        self.flushed = EndWaiters(broker.folder.log.synced_end, on_deadline_set=lambda s: None)
        self.confirmed = EndWaiters(broker.confirmed_end, on_deadline_set=lambda s: None)

    def as_any(self) -> Any:
        """As what the product's parts declare."""
        return self

    # ------------------------------------------------------------------------------ the log

    @property
    def appended_end(self) -> int:
        return self._broker.folder.log.end

    @property
    def confirmed_end(self) -> int:
        return self._broker.confirmed_end

    @property
    def log(self) -> Queues:
        return self.queues

    @property
    def producers(self) -> Any:
        return SimpleNamespace(windows=self)

    def standing(self, name: ProducerName, sequence: int, count: int) -> Any:
        variant = self._broker.world.variant
        return variant.copy_standing(self._broker.derived.windows, name, sequence)

    @property
    def records_end(self) -> int:
        """For the timer journal."""
        return self.queues.bounds(JOURNAL).max_offset

    def when_flushed(self, end: int, told: Callable[[bool], None]) -> None:
        """Flush now; calls back once everything below `end` is on disk."""
        self.flushed.add(end, float("inf"), told)
        self._broker.flush()

    def listen(self, advanced: Callable[[], None]) -> None:
        """`advanced` is called whenever more is confirmed."""
        self._listeners.append(advanced)

    def request_flush(self) -> None:
        self._broker.flush()

    def is_behind(self) -> bool:
        return False

    def check(self) -> None:
        """Raises NotMaster: nothing may be stored now."""
        master = self._broker.master
        if master is None or not master.takes:
            raise NotMaster("this replica takes nothing now")

    def append(self, name: QueueName, data: bytes, run: ProducerRun | None) -> Placed:
        self.check()
        broker = self._broker
        assert broker.master is not None
        offset = broker.derived.queue_ends.get(name, 0)
        record = Record(len(data), "stored", Stored(data, run), name, offset)
        start = broker.master.append(record)
        self.push()
        return Placed(offset, start + record.size)

    def push(self) -> None:
        """What was appended is published at the end of this turn."""
        if not self._is_publishing:
            self._is_publishing = True
            self.loop.call_soon(self._published)

    def _published(self) -> None:
        self._is_publishing = False
        if self._broker.master is not None:
            self._broker.master.appended()

    # ------------------------------------------------------------------------------ what waits

    async def read_takes_time(self) -> None:
        if self.chance.random() < 0.1:
            await self.wait_for_disk()

    async def wait_for_disk(self) -> None:
        self.reads += 1
        try:
            await asyncio.sleep(self._broker.world.flush_s())
        finally:
            self.reads -= 1

    def bounds(self, queue: int) -> QueueBounds:
        return self.queues.bounds(queue_name(queue))

    @property
    def timers_end(self) -> int:
        return self.bounds(TIMER_QUEUE).max_offset

    async def timer_records(self, offset: int, *, count: int) -> ConfirmedRecords:
        await self.read_takes_time()
        bounds = self.bounds(TIMER_QUEUE)
        if offset < bounds.min_offset:
            return ConfirmedRecords([], bounds.min_offset, False)
        found = self.queues.confirmed(queue_name(TIMER_QUEUE), offset, count)
        records = [record.data.record for _, record in found]
        next_offset = offset + len(records)
        return ConfirmedRecords(
            records, next_offset, len(records) < count and next_offset < bounds.max_offset
        )

    async def entries(self, queue: int, offset: int, count: int) -> WaitingEntries:
        await self.read_takes_time()
        found = self.queues.confirmed(queue_name(queue), offset, count)
        times_ms = [
            record.data.record.store_timestamp_ms + LEVELS.delay_ms(queue) if queue else 0
            for _, record in found
        ]
        return WaitingEntries(
            np.array([start for start, _ in found], np.int64),
            np.array([record.size for _, record in found], np.int64),
            np.array(times_ms, np.int64),
            len(found) < count and offset + len(found) < self.bounds(queue).max_offset,
        )

    async def pieces_there(
        self, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[bytes | None]:
        await self.read_takes_time()
        log = self._broker.folder.log
        records = [log.record_at(position) for position in positions]
        return [None if record is None else record.data.data for record in records]

    # ------------------------------------------------------------------------------ copies

    store_host_ipv6 = False

    def append_copies(
        self,
        topic: str,
        queue_id: int,
        records: Sequence[bytes],
        numbers: Sequence[ProducerRun],
        *,
        reserve: bool = False,
    ) -> None:
        self.check()
        world = self._broker.world
        if self.chance.random() < world.full_share:
            raise NotWritable("the disk is full")
        runs = [
            ProducerRun(run.producer_id, run.first_sequence + at, 1)
            for run in numbers
            for at in range(run.record_count)
        ]
        for data, run in zip(records, runs, strict=True):
            if world.variant.appends_copy(topic):
                self.append((topic, queue_id), self._stamped(topic, queue_id, data, run), run)

    def append_copy(self, topic: str, queue_id: int, data: bytes) -> Placed:
        """A copy without a number."""
        return self.append((topic, queue_id), self._stamped(topic, queue_id, data, None), None)

    publishing = nullcontext()
    """It is published at the end of this turn."""

    def _stamped(self, topic: str, queue_id: int, data: bytes, run: ProducerRun | None) -> bytes:
        batch = check_batch(
            data, [len(data)], topic=topic, limits=_LIMITS, store_host_ipv6=False, tags=self._tags
        )
        if run is not None:
            number_batch(batch, [run])
        batch.stamp(
            queue_id=queue_id,
            base_queue_offset=self._broker.derived.queue_ends.get((topic, queue_id), 0),
            base_physical_offset=self._broker.folder.log.end,
            store_timestamp_ms=max(self.clock.now_ms(), self.log.store_timestamp_ms),
            store_host=_HOST,
        )
        return bytes(batch.buffer)

    # ------------------------------------------------------------------------------ clients

    def take(self, delay: Delay | None, name: int) -> None:
        """A message of a producer: one that waits, or one that will fail. Raises NotMaster."""
        topic = ORDERS if delay is None else FLIGHTS
        data = encode_record(
            topic=topic.encode(),
            body=b"%d" % name,
            properties=b"",
            born_timestamp_ms=1,
            born_host=_HOST,
            store_host_ipv6=False,
        )
        queue_id = 0
        if delay is not None:
            topic, queue_id, data = waiting_record(
                StoredRecord(data, 0, len(data)),
                delay,
                topic=topic,
                queue_id=name % 2,
                store_host_ipv6=False,
            )
        self.check()
        data = self._stamped(topic, queue_id, data, None)
        placed = self.append((topic, queue_id), data, None)
        if delay is not None and topic == TIMER_TOPIC:
            begin = placed.end - len(data)
            appended = Appended(placed.base_queue_offset, begin, placed.end, self.clock.now_ms())
            batch = check_batch(
                data,
                [len(data)],
                topic=topic,
                limits=_LIMITS,
                store_host_ipv6=False,
                tags=self._tags,
            )
            self.handed.stored(FLIGHTS, batch, [delay.deliver_ms], appended)

    def store(self, topic: str, queue_id: int, body: bytes, *, properties: bytes = b"") -> Placed:
        """A message that does not wait. Raises NotMaster."""
        data = encode_record(
            topic=topic.encode(),
            body=body,
            properties=properties,
            born_timestamp_ms=1,
            born_host=_HOST,
            store_host_ipv6=False,
        )
        self.check()
        return self.append((topic, queue_id), self._stamped(topic, queue_id, data, None), None)
