"""A broker's delayed and failed messages: the product's own parts over the simulated log.

Journal, feeder, mover, hold, finder, copies and send-backs run unmodified, as coroutines in virtual
time. Simulated here is the store that they see: records with their bytes, queues by number, who
waits for the confirmed and for the flushed end, and the machine's wall clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aerobee.broker.delayed.copies import Copies
from aerobee.broker.delayed.feeder import Feeder
from aerobee.broker.delayed.finder import Finder
from aerobee.broker.delayed.hold import DelaysHold
from aerobee.broker.delayed.mover import Mover
from aerobee.broker.delayed.waiting_log import WaitingEntries, queue_name
from aerobee.broker.groups.ownership import Claim, Owner
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.journal import Journal
from aerobee.broker.journal.records import JournalRecords
from aerobee.broker.offsets.writer import OffsetWriter
from aerobee.broker.reading.confirmed_records import ConfirmedRecords
from aerobee.broker.retries.policy import RetryPolicy
from aerobee.broker.retries.send_backs import SendBacks
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.broker.timers.entries import TIMER_QUEUE, TimerEntry
from aerobee.broker.timers.index import IndexLimits, open_index
from aerobee.broker.timers.level_window import LevelWindow
from aerobee.broker.timers.planner import PlanLimits
from aerobee.broker.timers.progress import TimerProgress
from aerobee.broker.timers.state import TimerJournalState, file_reader
from aerobee.broker.timers.term import TimerTerm, TimerTerms
from aerobee.runtime.errors import NotMaster, NotWritable
from aerobee.runtime.loop_turns import LoopTurns
from aerobee.runtime.waiting import Turns
from aerobee.store.engine.producers.producer_windows import ProducerName
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.queues.reading import QueueBounds
from aerobee.store.engine.retention.retention_ledger import Candidate
from aerobee.store.engine.retention.retention_policy import Cause, CleanRequest
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.format.batch import BatchLimits, check_batch, number_batch
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.delayed_records import Delay, waiting_record
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.record_view import Record as StoredRecord
from aerobee.store.format.tags import TagsCodes
from tests.simulation.cluster.log import Record
from tests.simulation.cluster.popping import SimulatedPopping
from tests.simulation.cluster.process_loop import ProcessLoop
from tests.simulation.cluster.stored_queues import JOURNAL, Led, PlaceClock, Placed, Queues, Stored
from tests.simulation.cluster.transacting import SimulatedTransactions

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker

LEVELS: Final = DelayLevels((300, 1_000, 2_000))
FLIGHTS: Final = "flights"
"""The topic of delayed messages."""
ORDERS: Final = "orders"
"""The topic whose messages fail."""
RETRIES_MAX: Final = 2
IMAGE_INTERVAL_BYTES: Final = 12_000
INDEX_LIMITS: Final = IndexLimits(spill_rows=12, near_rows_max=10, load_rows=6)
PLAN_LIMITS: Final = PlanLimits(
    batch_messages=5, batch_bytes=2_000, late_after_ms=700, late_per_s=200, late_burst=6
)
_HOST: Final = HostAddress(bytes((10, 0, 0, 1)), 10_911)
_LIMITS: Final = BatchLimits()


class Waiting:
    """One process's waiting messages; `SendBacks` and the mover act while it is master."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        world, folder = broker.world, broker.folder
        self.chance = world.waiting_chance
        self.loop = ProcessLoop(world.kernel, broker)
        self.clock = clock = PlaceClock(broker)
        self.queues = Queues(broker)
        self._listeners: list[Callable[[], None]] = []
        self._is_publishing = False
        self.reads = 0
        """The number of running reads."""
        self._tags = TagsCodes(delays_ms=LEVELS.delays_ms)
        self.flushed = EndWaiters(folder.log.synced_end, on_deadline_set=lambda s: None)
        self.confirmed = EndWaiters(broker.confirmed_end, on_deadline_set=lambda s: None)
        self.state = self._open_state()
        self.feeder = self._make_feeder()
        self.finder = Finder(
            self.feeder,
            self._as_any(),
            self._as_any(),
            self.progress,
            LoopTurns(clock),
            Turns(),
        )
        topics = TopicTable({name: TopicConfig(name=name) for name in (FLIGHTS, ORDERS)})
        self.mover = Mover(
            self.feeder,
            self._as_any(),
            self.finder,
            Copies(self._as_any(), topics, clock),
            self._as_any(),
            self._as_any(),
            clock,
            limits=PLAN_LIMITS,
            prepare=self._prepare,
        )
        self.journal: Journal[TimerEntry, TimerTerm] = Journal(
            self.state,
            TimerLog(broker, self),
            TimerTerms(self.state, clock, on_begin=self.mover.begin, on_end=self.mover.end),
            clock,
            name="timer journal",
            subject="delayed messages",
            image_interval_bytes=IMAGE_INTERVAL_BYTES,
        )
        self._hold = DelaysHold(
            self.feeder,
            self.finder,
            self.mover,
            self._as_any(),
            self.state,
            self._as_any(),
            self._as_any(),
            clock,
        )
        self.send_backs: SendBacks = SendBacks(
            self,
            self,
            clock,
            term=self.term,
            standing=self.standing,
            read_original=self._read_original,
            policy_of=lambda group: RetryPolicy(RETRIES_MAX),
            levels=LEVELS,
            check=self.check,
            prepare=self._prepare,
        )
        self._listeners.append(self.feeder.on_confirmed)
        for part in (self.journal, self.feeder, self.mover, self.send_backs):
            self.loop.start(part.run())
        self.popping: SimulatedPopping | None = None
        if world.has_pops:
            self.popping = SimulatedPopping(broker, self)
            self.popping.start()
        self.transacting: SimulatedTransactions | None = None
        self._leaving: asyncio.Task[None] | None = None
        if world.has_transactions:
            self.transacting = SimulatedTransactions(broker, self)
            self.transacting.start()

    def _as_any(self) -> Any:
        """As the product's store, waiting log, durability and writes."""
        return self

    # ------------------------------------------------------------------------------ opening

    def _open_state(self) -> TimerJournalState:
        folder = self._broker.folder
        if folder.timer_file is not None:
            try:
                return file_reader(self.records_end)(folder.timer_file)
            except ValueError:
                folder.timer_file = None
        return TimerJournalState()

    def _make_feeder(self) -> Feeder:
        folder, state = self._broker.folder, self.state
        bounds = self.bounds(TIMER_QUEUE)
        index = open_index(
            folder.timer_disk,
            begin=max(bounds.min_offset, state.progress.of(TIMER_QUEUE).floor),
            queue_end=bounds.max_offset,
            journal_end=self.records_end,
            limits=INDEX_LIMITS,
        )
        levels = {
            level: LevelWindow(
                level,
                LEVELS.delay_ms(level),
                begin=max(self.bounds(level).min_offset, state.progress.of(level).floor),
            )
            for level in range(1, len(LEVELS) + 1)
        }
        feeder = Feeder(
            folder.timer_disk,
            index,
            levels,
            state,
            self._as_any(),
            self._as_any(),
            limits=INDEX_LIMITS,
            on_fed=lambda: self.mover.wake(),
            on_index=lambda index: self.mover.use_index(),
        )
        feeder.follow(self.progress)
        return feeder

    def progress(self) -> TimerProgress:
        """On a master, as decided; on a slave, as far as confirmed."""
        term = self.mover.term
        return self.state.progress if term is None else term.progress

    def save(self) -> None:
        """The file of what is done, once the journal that says so is on disk."""
        folder = self._broker.folder
        if folder.log.synced_end == folder.log.end:
            folder.timer_file = self.state.snapshot()()
            if self.popping is not None:
                self.popping.save_now()

    # ------------------------------------------------------------------------------ the broker

    def begin(self, epoch: int, *, is_unclean: bool) -> None:
        """A term as master."""
        self.journal.begin(Led(epoch, is_unclean))
        if self.popping is not None:
            self.popping.journal.begin(Led(epoch, is_unclean))
        if self.transacting is not None:
            term: Any = Led(epoch, is_unclean)
            self.transacting.begin(term)
        self.send_backs.wake()

    def end(self) -> None:
        """It is over."""
        self.journal.end()
        if self.popping is not None:
            self.popping.journal.end()
        if self.transacting is not None:
            self.transacting.end()
        self.confirmed.give_up()

    def leave(self) -> None:
        """Nothing more is handed out, unless the term is resumed."""
        if self.popping is not None:
            self.loop.start(self.popping.journal.leave())
        if self.transacting is not None:
            self._leaving = self.loop.start(self.transacting.leave())

    def resume(self) -> None:
        """The term continues after all."""
        if self.popping is not None:
            self.popping.journal.resume()
        if self.transacting is not None:
            self.loop.start(self._resume(self.transacting))

    async def _resume(self, transacting: SimulatedTransactions) -> None:
        """As after a cancelled hand-over: what it is doing ends first."""
        if self._leaving is not None:
            self._leaving.cancel()
            await asyncio.wait((self._leaving,))
        transacting.resume()

    def appended(self, record: Record, start: int) -> None:
        """The log has grown by this record."""
        self.queues.add(start, record)
        if isinstance(record.queue_id, tuple):
            self.feeder.on_grown([record.queue_id])
            if self.popping is not None:
                self.popping.appended(record, start)
        if self.transacting is not None:
            self.transacting.appended(record)

    def on_confirmed(self) -> None:
        """More of the log is confirmed."""
        self.confirmed.reached(max(self.confirmed.end, self._broker.confirmed_end))
        if self.popping is not None:
            self.popping.on_confirmed()
        for told in self._listeners:
            told()

    def on_flushed(self) -> None:
        """More of it is on disk."""
        self.flushed.reached(max(self.flushed.end, self._broker.folder.log.synced_end))

    def remove(self, position: int, drop: Callable[[], None]) -> None:
        """Retention: drop what is below `position` once nothing there is needed any more."""
        self.loop.start(self._remove(position, drop))

    async def _remove(self, position: int, drop: Callable[[], None]) -> None:
        folder = self._broker.folder

        async def save() -> None:
            self.save()

        if await self.journal.prepare_removal(position, save):
            return
        candidate = Candidate(folder.log.begin, position, Cause.EXPIRED, 0, CleanRequest())
        if await self._hold.need(candidate, self._as_any()) is not None:
            return
        is_held = bool(self._broker.derived.journal.open_copies)
        if self.transacting is not None:
            transactions: Any = self.transacting.hold
            is_held |= await transactions.need(candidate, self._as_any()) is not None
        if self.popping is not None:
            popping = self.popping
            why = await popping.journal.prepare_removal(position, popping.file.save_if_room)
            is_held |= bool(why) or popping.needs(position)
        if not is_held and folder.log.begin < position and self._broker.runs:
            drop()

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

    async def _prepare(self, what: object) -> None:
        await asyncio.sleep(0)

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
        self.append((topic, queue_id), self._stamped(topic, queue_id, data, None), None)

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

    def is_popped(self, key: GroupQueue) -> bool:
        """Whether POP consumes the queue."""
        return self.popping is not None and self.popping.is_popped(key)

    def claimed(self, key: GroupQueue, claim: Claim) -> OffsetWriter:
        if claim.owner is Owner.POP:
            assert self.popping is not None
            return self.popping.offsets.claimed(key, claim)
        writer = self._offset_writer()
        if writer is None:
            raise NotMaster("this replica does not serve groups now")
        return writer

    def _offset_writer(self) -> OffsetWriter | None:
        master = self._broker.master
        return None if master is None or not master.acts else self.term()

    def term(self) -> OffsetWriter | None:
        """The writer of a master, also of one that may act again."""
        master = self._broker.master
        return None if master is None else master.groups.offsets

    async def _read_original(self, key: GroupQueue, offset: int) -> bytes | None:
        await self.read_takes_time()
        found = self.queues.records((key.topic, key.queue_id), offset, 1)
        return bytes(found[0][1].data.data) if found else None


class TimerLog:
    """The log, as seen by the timer journal."""

    def __init__(self, broker: Broker, waiting: Waiting) -> None:
        self._broker = broker
        self._waiting = waiting
        self._queues = waiting.queues
        self.listen = waiting.listen
        self.when_flushed = waiting.when_flushed

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
        return self._waiting.records_end

    def position_of(self, queue_offset: int) -> int | None:
        found = self._queues.records(JOURNAL, queue_offset, 1)
        return found[0][0] if found else None

    def append(self, body: bytes, *, ends_topic: str = "") -> Placed:
        written = self._broker.world.variant.timer_record(body)
        return self._waiting.append(JOURNAL, written, None)

    def fail(self, error: Exception) -> None:
        raise error

    def when_confirmed(self, end: int, told: Callable[[bool], None]) -> None:
        self._waiting.confirmed.add(end, float("inf"), told)

    async def read(self, queue_offset: int) -> JournalRecords:
        await self._waiting.read_takes_time()
        begin = self._queues.bounds(JOURNAL).min_offset
        if queue_offset < begin:
            return JournalRecords([], begin)
        found = self._queues.confirmed(JOURNAL, queue_offset, 20)
        bodies = [(record.queue_offset, record.data.data) for _, record in found]
        return JournalRecords(bodies, queue_offset + len(bodies))
