"""What may happen while a cleaning run waits: it is cancelled, groups come or are set back."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aerobee.broker.flush.flush_thread import FlushThread
from aerobee.broker.groups.members import Member, Members, Subscription
from aerobee.broker.retention.cleaning import Cleaning
from aerobee.broker.retention.unread_readers import UnreadReaders
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.store.retention.queue_readers import QueueReaders
from aerobee.broker.store.tables.config_tables import TopicConfig, TopicTable
from aerobee.broker.store.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.runtime.clock import SystemClock
from tests.support.fault_disk import FaultDisk
from tests.support.retention import COMMAND, RETAINED, expire, fill, roomy_disk
from tests.support.stores import check_agreement, open_store

CONFIG = replace(
    RETAINED,
    checkpoint_interval_ms=10,
    retention=replace(RETAINED.retention, delete_pause_ms=0),
)


class DisturbedReaders(UnreadReaders):
    """Something happens right after it was asked who wants what, before the removal."""

    disturb: Callable[[], object] | None = None

    async def collect(self) -> AsyncIterator[list[QueueReaders]]:
        async for each in super().collect():
            yield each
        if self.disturb is not None:
            self.disturb()


@dataclass
class Cleaned:
    store: MessageStore
    offsets: ConsumerOffsetTable
    groups: Members
    readers: DisturbedReaders
    cleaning: Cleaning


@asynccontextmanager
async def cleaned(disk: FaultDisk) -> AsyncIterator[Cleaned]:
    """A store with some ten expired segments, and what cleans it."""
    clock = SystemClock()
    store = open_store(disk, CONFIG, clock)
    fill(store, 60, topic="t", queues=1)
    topics = TopicTable()
    topics.put(TopicConfig(name="t", read_queue_count=1, write_queue_count=1))
    offsets, groups = ConsumerOffsetTable(), Members()
    readers = DisturbedReaders(topics, offsets, groups, store)
    cleaning = Cleaning(store.retention, readers, CONFIG.retention)
    flushing = FlushThread(store, disk, clock, CONFIG, on_flushed=lambda _: None)
    cleaning.attach(flushing.upkeep)
    run = asyncio.create_task(flushing.run())
    async with asyncio.timeout(10):
        while store.retention._in_files_end() < store.appended_end:
            flushing.request()
            await asyncio.sleep(0.02)
    expire(Path(disk.root), clock)
    try:
        yield Cleaned(store, offsets, groups, readers, cleaning)
    finally:
        run.cancel()
        await asyncio.wait((run,))
        store.close()


class SlowDisk(FaultDisk):
    """Removing a log segment takes a while and is refused."""

    def remove(self, path: str) -> None:
        if path.startswith("commitlog/"):
            time.sleep(0.4)
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        super().remove(path)


async def test_a_run_that_is_cancelled_twice_ends_only_once_the_removal_has(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path)
    disk.free, disk.total = 50, 100
    async with cleaned(disk) as now:
        run = asyncio.create_task(now.cleaning.clean(COMMAND))
        for _ in range(2):
            await asyncio.sleep(0.12)
            run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        # The file is still there, so the log begins with it.
        assert now.store.min_offset == 0
        check_agreement(now.store)


async def test_a_group_that_is_set_back_meanwhile_loses_nothing(tmp_path: Path) -> None:
    async with cleaned(roomy_disk(tmp_path)) as now:
        now.offsets.commit("billing", "t", 0, 60)
        now.readers.disturb = lambda: now.offsets.commit("billing", "t", 0, 0)
        report = await now.cleaning.clean(COMMAND)
        assert report.removed == []
        assert "group billing has not read topic t" in report.kept_because


async def test_a_group_that_joins_meanwhile_loses_nothing(tmp_path: Path) -> None:
    async with cleaned(roomy_disk(tmp_path)) as now:
        member = Member("billing", "c", "1", (Subscription("t"),), False, 60.0, 0.0)
        now.readers.disturb = lambda: now.groups.join(member)
        report = await now.cleaning.clean(COMMAND)
        assert report.removed == []
        assert "group billing has not read topic t" in report.kept_because


async def test_groups_that_read_on_meanwhile_delay_nothing(tmp_path: Path) -> None:
    async with cleaned(roomy_disk(tmp_path)) as now:
        now.offsets.commit("billing", "t", 0, 58)

        def read_on() -> None:
            now.offsets.commit("billing", "t", 0, 59)

        now.readers.disturb = read_on
        assert len((await now.cleaning.clean(COMMAND)).removed) > 5


async def test_while_groups_come_all_the_time_nothing_goes(tmp_path: Path) -> None:
    async with cleaned(roomy_disk(tmp_path)) as now:
        came: list[str] = []

        def come() -> None:
            came.append(f"group-{len(came)}")
            now.offsets.commit(came[-1], "t", 0, 60)

        now.readers.disturb = come
        report = await now.cleaning.clean(COMMAND)
        assert (report.removed, len(came)) == ([], 3)
        assert "groups came" in report.kept_because
        now.readers.disturb = None
        assert len((await now.cleaning.clean(COMMAND)).removed) > 5
