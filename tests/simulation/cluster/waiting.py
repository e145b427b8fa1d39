"""A broker's delayed and failed messages: the product's own parts over the simulated log.

Journal, feeder, mover, hold, finder, copies and send-backs run unmodified, as coroutines in virtual
time, over the store of `seen_store.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.delayed.copies import Copies
from aerobee.broker.delayed.feeder import Feeder
from aerobee.broker.delayed.finder import Finder
from aerobee.broker.delayed.hold import DelaysHold
from aerobee.broker.delayed.mover import Mover
from aerobee.broker.groups.ownership import Claim, Owner
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.journal import Journal
from aerobee.broker.offsets.writer import OffsetWriter
from aerobee.broker.retries.policy import RetryPolicy
from aerobee.broker.retries.send_backs import SendBacks
from aerobee.broker.timers.entries import TIMER_QUEUE, TimerEntry
from aerobee.broker.timers.index import IndexLimits, open_index
from aerobee.broker.timers.level_window import LevelWindow
from aerobee.broker.timers.planner import PlanLimits
from aerobee.broker.timers.progress import TimerProgress
from aerobee.broker.timers.state import TimerJournalState, file_reader
from aerobee.broker.timers.term import TimerTerm, TimerTerms
from aerobee.runtime.errors import NotMaster
from aerobee.runtime.loop_turns import LoopTurns
from aerobee.runtime.waiting import Turns
from aerobee.store.engine.retention.retention_ledger import Candidate
from aerobee.store.engine.retention.retention_policy import Cause, CleanRequest
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from tests.simulation.cluster.log import Record
from tests.simulation.cluster.popping import SimulatedPopping
from tests.simulation.cluster.seen_store import FLIGHTS, LEVELS, ORDERS, SeenStore
from tests.simulation.cluster.stored_queues import Led
from tests.simulation.cluster.timer_log import TimerLog
from tests.simulation.cluster.transacting import SimulatedTransactions

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker

RETRIES_MAX: Final = 2
IMAGE_INTERVAL_BYTES: Final = 12_000
INDEX_LIMITS: Final = IndexLimits(spill_rows=12, near_rows_max=10, load_rows=6)
PLAN_LIMITS: Final = PlanLimits(
    batch_messages=5, batch_bytes=2_000, late_after_ms=700, late_per_s=200, late_burst=6
)


class Waiting(SeenStore):
    """One process's waiting messages; `SendBacks` and the mover act while it is master."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.state = self._open_state()
        self.feeder = self._make_feeder()
        self.finder = Finder(
            self.feeder,
            self.as_any(),
            self.as_any(),
            self.progress,
            LoopTurns(self.clock),
            Turns(),
        )
        self.mover = self._make_mover()
        self.journal: Journal[TimerEntry, TimerTerm] = Journal(
            self.state,
            TimerLog(broker, self),
            TimerTerms(self.state, self.clock, on_begin=self.mover.begin, on_end=self.mover.end),
            self.clock,
            name="timer journal",
            subject="delayed messages",
            image_interval_bytes=IMAGE_INTERVAL_BYTES,
        )
        self._hold = self._make_hold()
        self.send_backs: SendBacks = self._make_send_backs()
        self.listen(self.feeder.on_confirmed)
        for part in (self.journal, self.feeder, self.mover, self.send_backs):
            self.loop.start(part.run())
        self.popping: SimulatedPopping | None = None
        self.transacting: SimulatedTransactions | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._start_features()

    def _start_features(self) -> None:
        world = self._broker.world
        if world.has_pops:
            self.popping = SimulatedPopping(self._broker, self)
            self.popping.start()
        if world.has_transactions:
            self.transacting = SimulatedTransactions(self._broker, self)
            self.transacting.start()

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
            self.as_any(),
            self.as_any(),
            handed=self.handed,
            limits=INDEX_LIMITS,
            on_fed=lambda: self.mover.wake(),
            on_index=lambda index: self.mover.use_index(),
        )
        feeder.follow(self.progress)
        return feeder

    def _make_mover(self) -> Mover:
        topics = TopicTable({name: TopicConfig(name=name) for name in (FLIGHTS, ORDERS)})
        return Mover(
            self.feeder,
            self.as_any(),
            self.finder,
            Copies(self.as_any(), topics, self.clock),
            self.as_any(),
            self.as_any(),
            self.clock,
            limits=PLAN_LIMITS,
            prepare=self._prepare,
        )

    def _make_hold(self) -> DelaysHold:
        return DelaysHold(
            self.feeder,
            self.finder,
            self.mover,
            self.as_any(),
            self.state,
            self.as_any(),
            self.as_any(),
            self.clock,
        )

    def _make_send_backs(self) -> SendBacks:
        return SendBacks(
            self,
            self,
            self.clock,
            term=self.term,
            standing=self.standing,
            read_original=self._read_original,
            policy_of=lambda group: RetryPolicy(RETRIES_MAX),
            levels=LEVELS,
            check=self.check,
            prepare=self._prepare,
        )

    async def _prepare(self, what: object) -> None:
        await asyncio.sleep(0)

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
        if await self._hold.need(candidate, self.as_any()) is not None:
            return
        is_held = bool(self._broker.derived.journal.open_copies)
        if self.transacting is not None:
            for hold in self.transacting.holds:
                is_held |= await hold.need(candidate, self.as_any()) is not None
        if self.popping is not None:
            popping = self.popping
            why = await popping.journal.prepare_removal(position, popping.file.save_if_room)
            is_held |= bool(why) or popping.needs(position)
        if not is_held and folder.log.begin < position and self._broker.runs:
            drop()

    # ------------------------------------------------------------------------------ groups

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
