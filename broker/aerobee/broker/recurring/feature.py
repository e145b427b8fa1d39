"""Messages that recur: a feature, put together from its parts.

The journal and its file work on every replica; the runner only while this one is master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Feature, Task
from aerobee.broker.journal.journal import Journal
from aerobee.broker.journal.log import JOURNAL_QUEUE, JournalLog
from aerobee.broker.journal.state_file import StateFile, forget_state, load_state
from aerobee.broker.recurring.book import Book
from aerobee.broker.recurring.entries import SCHEDULE_JOURNAL_TOPIC
from aerobee.broker.recurring.runner import Runner
from aerobee.broker.recurring.schedules import ScheduleEntry
from aerobee.broker.recurring.state import (
    PROGRESS_PATH,
    ScheduleJournalState,
    ScheduleTerm,
    ScheduleTerms,
    file_reader,
)
from aerobee.broker.replication.roles import Roles
from aerobee.broker.retention.holds import JournalHold
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import StoreFailed
from aerobee.runtime.metrics.families import AnyFamily, one_counter, one_gauge
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.flush.table_files import TableFiles
from aerobee.store.format.record_layout import HostAddress


class Parts(Protocol):
    """What schedules need of the broker."""

    config: BrokerConfig
    clock: Clock
    store: MessageStore
    store_host: HostAddress
    guard: Guard
    roles: Roles
    durability: Durability
    writes: OwnWrites
    reads: ReadPool
    files: TableFiles
    on_store_failed: Callable[[StoreFailed], None]


class Recurring(Feature):
    """On the loop, while `run` runs."""

    @classmethod
    def own_topics(cls, config: StoreConfig) -> Mapping[str, int]:
        return {SCHEDULE_JOURNAL_TOPIC: 1}

    @classmethod
    def open(cls, disk: Disk, store: MessageStore, config: StoreConfig) -> ScheduleJournalState:
        end = store.queues.bounds(SCHEDULE_JOURNAL_TOPIC, JOURNAL_QUEUE).max_offset
        return load_state(disk, PROGRESS_PATH, file_reader(end)) or ScheduleJournalState()

    @classmethod
    def forget(cls, disk: Disk, position: int) -> None:
        forget_state(disk, PROGRESS_PATH)

    def __init__(self, parts: Parts, opened: ScheduleJournalState) -> None:
        store, durability, clock = parts.store, parts.durability, parts.clock
        journal_log = JournalLog(
            SCHEDULE_JOURNAL_TOPIC,
            store,
            durability,
            parts.roles,
            parts.reads,
            parts.writes,
            on_store_failed=parts.on_store_failed,
        )
        self.runner = Runner(parts.writes, parts.guard, store, durability, clock, parts.store_host)
        self.journal: Journal[ScheduleEntry, ScheduleTerm] = Journal(
            opened,
            journal_log,
            ScheduleTerms(opened, on_begin=self.runner.begin, on_end=self.runner.end),
            clock,
            name="schedule journal",
            subject="schedules",
            image_interval_bytes=parts.config.store.segment_bytes,
        )
        self.book = Book(opened, self.journal, self.runner, parts.guard, store, durability, clock)
        self._file = StateFile(PROGRESS_PATH, opened, self.journal, parts.files, store, durability)
        self.holds = (JournalHold(self.journal, self._file.save_if_room),)
        durability.listen(self._file.look)

    def tasks(self) -> Mapping[str, Task]:
        return {"schedules": self.run}

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.journal.run(), name="schedule-journal")
            tasks.create_task(self.runner.run(), name="schedule-runner")
            tasks.create_task(self._file.run(), name="schedule-progress")

    async def save(self) -> None:
        await self.journal.followed()
        await self._file.save_if_room()

    async def figures(self) -> Sequence[AnyFamily]:
        runner = self.runner
        return (
            one_gauge("aerobee_schedules", "Schedules that have not ended.", self.book.count()),
            one_counter("aerobee_schedule_runs_total", "Runs of schedules sent.", runner.sent),
            one_gauge(
                "aerobee_schedules_in_trouble",
                "Schedules whose topic takes no message now.",
                len(runner.troubles),
            ),
        )
