"""Delayed messages: a feature, put together from its parts.

The journal, the feeder and the progress file work on every replica; the mover only while this one
is master.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.config import BrokerConfig
from aerobee.broker.delayed.apache_files import SEEN_PATH, forget_apache_files
from aerobee.broker.delayed.apache_handover import write_apache_files
from aerobee.broker.delayed.copies import Copies
from aerobee.broker.delayed.counts import WaitingCounts
from aerobee.broker.delayed.feeder import Feeder
from aerobee.broker.delayed.figures import DelayFigures
from aerobee.broker.delayed.finder import Finder
from aerobee.broker.delayed.hold import DelaysHold
from aerobee.broker.delayed.mover import Mover
from aerobee.broker.delayed.opening import OpenedDelays, forget_delays, open_delays
from aerobee.broker.delayed.schedule import Schedule
from aerobee.broker.delayed.stopping import gather
from aerobee.broker.delayed.waiting_log import WaitingLog
from aerobee.broker.features import Feature, Task
from aerobee.broker.journal.journal import Journal
from aerobee.broker.journal.log import JournalLog
from aerobee.broker.journal.state_file import StateFile
from aerobee.broker.replication.roles import Roles
from aerobee.broker.retention.holds import JournalHold
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.timers.entries import TIMER_JOURNAL_TOPIC, Source, TimerEntry
from aerobee.broker.timers.index import PendingIndex
from aerobee.broker.timers.progress import TimerProgress
from aerobee.broker.timers.record_rows import HandedTimers
from aerobee.broker.timers.state import PROGRESS_PATH
from aerobee.broker.timers.term import TimerTerm, TimerTerms
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, NotWritable, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.families import AnyFamily
from aerobee.runtime.metrics.histogram import Histogram
from aerobee.runtime.waiting import Turns
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.flush.table_files import TableFiles
from aerobee.store.flush.workers import DiskWorkers
from aerobee.store.format.delayed_records import TIMER_TOPIC
from aerobee.store.format.tags import SCHEDULE_TOPIC

log = logging.getLogger(__name__)

LATENCY_MS = (10, 100, 500, 1_000, 5_000, 10_000, 60_000, 600_000, 3_600_000)
SAVE_TIMEOUT_S = 20.0
"""How long a stop waits for files that spare the next start reading more of the log."""


class Parts(Protocol):
    """What delayed messages need of the broker."""

    config: BrokerConfig
    clock: Clock
    disk: Disk
    workers: DiskWorkers
    store: MessageStore
    topics: TopicTable
    guard: Guard
    roles: Roles
    durability: Durability
    writes: OwnWrites
    reads: ReadPool
    files: TableFiles
    on_store_failed: Callable[[StoreFailed], None]
    memory: MemoryBudget
    timers: HandedTimers


class Delays(Feature):
    """On the loop, while `run` runs."""

    @classmethod
    def own_topics(cls, config: StoreConfig) -> Mapping[str, int]:
        return {
            TIMER_JOURNAL_TOPIC: 1,
            SCHEDULE_TOPIC: len(config.delay_levels_ms),
            TIMER_TOPIC: 1,
        }

    @classmethod
    def open(cls, disk: Disk, store: MessageStore, config: StoreConfig) -> OpenedDelays:
        return open_delays(disk, store, config.delay_levels_ms)

    @classmethod
    def forget(cls, disk: Disk, position: int) -> None:
        forget_delays(disk)

    @classmethod
    def forget_end(cls, disk: Disk) -> None:
        # They may describe what is cut.
        forget_apache_files(disk)

    def __init__(self, parts: Parts, opened: OpenedDelays) -> None:
        store, durability, clock = parts.store, parts.durability, parts.clock
        disk, works = parts.disk, parts.workers.reads
        self.state = opened.state
        self.latency_ms = Histogram(LATENCY_MS)
        """How late messages were delivered."""
        self._taken_over = opened.taken_over
        self._disk, self._works, self._clock = disk, works, clock
        self._journal_log = JournalLog(
            TIMER_JOURNAL_TOPIC,
            store,
            durability,
            parts.roles,
            parts.reads,
            parts.writes,
            on_store_failed=parts.on_store_failed,
        )
        self._files, self._handed = parts.files, parts.timers
        self.waiting = WaitingLog(store, parts.roles, parts.reads)
        self.feeder = Feeder(
            disk,
            opened.index,
            opened.levels,
            opened.state,
            self.waiting,
            works,
            handed=parts.timers,
            on_fed=self._on_fed,
            on_index=self._on_index,
        )
        self.feeder.follow(self.progress)
        pages = Turns(parts.memory.lookups_at_a_time)
        self.finder = Finder(
            self.feeder, self.waiting, works, self.progress, parts.reads.loop_turns, pages
        )
        self.counts = WaitingCounts(
            self.finder, self.waiting, self.feeder, self.progress, parts.topics, works
        )
        self.copies = Copies(parts.writes, parts.topics, clock)
        self.mover = Mover(
            self.feeder,
            self.waiting,
            self.finder,
            self.copies,
            store,
            durability,
            clock,
            prepare=self._note_taken_over,
            on_moved=self._on_moved,
        )
        segment_bytes = parts.config.store.segment_bytes
        self.journal: Journal[TimerEntry, TimerTerm] = self._make_journal(segment_bytes)
        self.schedule = Schedule(
            self.finder, self.mover, self.journal, parts.guard, store, durability, clock
        )
        self._show_and_keep(parts)
        store.on_grown(self.feeder.on_grown)
        durability.listen(self.feeder.on_confirmed)
        durability.listen(self.progress_file.look)

    def _show_and_keep(self, parts: Parts) -> None:
        store, durability, clock = parts.store, parts.durability, parts.clock
        hold = DelaysHold(
            self.feeder,
            self.finder,
            self.mover,
            self.waiting,
            self.state,
            store,
            durability,
            clock,
        )
        self.progress_file = StateFile(
            PROGRESS_PATH, self.state, self.journal, parts.files, store, durability
        )
        self.holds = (hold, JournalHold(self.journal, self.progress_file.save_if_room))
        self._figures = DelayFigures(
            self.feeder,
            self.mover,
            self.waiting,
            self.counts,
            self.copies,
            clock,
            progress=self.progress,
            latency_ms=self.latency_ms,
            topics_max=parts.config.metrics.topics_max,
        )

    def _make_journal(self, image_interval_bytes: int) -> Journal[TimerEntry, TimerTerm]:
        mover, clock = self.mover, self._clock
        return Journal(
            self.state,
            self._journal_log,
            TimerTerms(self.state, clock, on_begin=mover.begin, on_end=mover.end),
            clock,
            name="timer journal",
            subject="delayed messages",
            image_interval_bytes=image_interval_bytes,
        )

    def progress(self) -> TimerProgress:
        """What is done: on a master including its decisions, on a slave as far as confirmed."""
        term = self.mover.term
        return self.state.progress if term is None else term.progress

    def end(self) -> None:
        self._handed.clear()

    def tasks(self) -> Mapping[str, Task]:
        return {"delays": self.run}

    async def figures(self) -> Sequence[AnyFamily]:
        return await self._figures.families()

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.journal.run(), name="timer-journal")
            tasks.create_task(self.feeder.run(), name="timer-feeder")
            tasks.create_task(self.mover.run(), name="timer-mover")
            tasks.create_task(self.progress_file.run(), name="timer-progress")

    async def save(self) -> None:
        """Called at a stop, once nothing moves, so that the next start has little to read. Raises
        StoreFailed."""
        try:
            async with asyncio.timeout(SAVE_TIMEOUT_S):
                await self.journal.followed()
                await self.progress_file.save_if_room()
                await self._hand_over()
                await self.feeder.save()
        except TimeoutError:
            log_event(
                log, "the state of delayed messages was not saved in time", level=logging.WARNING
            )

    async def _hand_over(self) -> None:
        """For Apache's broker, in case it uses the folder next."""
        try:
            waits = await gather(
                self.state,
                self.feeder,
                self.finder,
                self.waiting,
                self._clock,
                journal_end=self._journal_log.records_end,
            )
            if waits is None or self._taken_over is not None:
                return
            write = partial(write_apache_files, self._disk, waits)
            await asyncio.get_running_loop().run_in_executor(self._works, write)
        except StoreFailed:
            raise
        except (AerobeeError, OSError) as error:
            log_event(
                log,
                "Apache's files of delayed messages were not written",
                level=logging.WARNING,
                reason=error,
            )

    async def _note_taken_over(self, term: TimerTerm) -> None:
        """Messages that Apache's broker delivered are not delivered again. Raises AerobeeError."""
        if self._taken_over is None:
            return
        for entry in self._taken_over.entries:
            if (written := term.note_known(entry)) is not None:
                await asyncio.shield(written)
        try:
            await self._files.write(SEEN_PATH, self._taken_over.seen)
        except NotWritable:
            return  # the next start finds that everything is known
        self._taken_over = None

    def _on_moved(self, sources: Sequence[Source], now_ms: int) -> None:
        for source in sources:
            self.latency_ms.observe(max(0, now_ms - source.due_ms))

    def _on_fed(self) -> None:
        self.mover.wake()

    def _on_index(self, index: PendingIndex) -> None:
        self.mover.use_index()
