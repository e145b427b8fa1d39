"""Cleaning asks every owner of old data. While it waits it may be cancelled, and groups may come or
be set back."""

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

from aerobee.broker.groups.members import Member, Members, Subscription
from aerobee.broker.reading.unread import Readers
from aerobee.broker.retention.cleaning import Cleaning
from aerobee.broker.retention.holds import GroupsHold, Hold, Need, Upkeep
from aerobee.broker.retention.unread_readers import UnreadReaders
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_ledger import Candidate
from aerobee.store.engine.retention.unread_search import QueueReaders
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.store.flush.flush_thread import FlushThread
from tests.support.fault_disk import FaultDisk
from tests.support.retention import COMMAND, COMMAND_UNREAD, RETAINED, expire, fill, roomy_disk
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
async def cleaned(disk: FaultDisk, *more_holds: Hold) -> AsyncIterator[Cleaned]:
    """A store with some ten expired segments, and what cleans it."""
    clock = SystemClock()
    store = open_store(disk, CONFIG, clock)
    fill(store, 60, topic="t", queues=1)
    topics = TopicTable()
    topics.put(TopicConfig(name="t", read_queue_count=1, write_queue_count=1))
    offsets, groups = ConsumerOffsetTable(), Members()
    readers = DisturbedReaders(Readers(store, topics, offsets, groups))
    holds = [
        GroupsHold(store.retention, readers),
        *more_holds,
    ]
    flushing = FlushThread(store, disk, clock, CONFIG)
    cleaning = Cleaning(store.retention, holds, CONFIG.retention, flushing.upkeep)
    run = asyncio.create_task(flushing.run())
    async with asyncio.timeout(10):
        while store.retention.in_files_end < store.appended_end:
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
        assert "groups appeared" in report.kept_because
        now.readers.disturb = None
        assert len((await now.cleaning.clean(COMMAND)).removed) > 5


class Archive(Hold):
    """An owner of another kind, which keeps the log from a position on."""

    meanwhile: Callable[[], object] | None = None

    def __init__(self, position: int | None) -> None:
        self.position = position
        self.unsure = ""
        self.asked: list[int] = []

    async def need(self, candidate: Candidate, upkeep: Upkeep) -> Need | None:
        self.asked.append(candidate.base)
        if self.meanwhile is not None:
            self.meanwhile()
        return None if self.position is None else Need(self.position, "the archive has no copy yet")

    def changed(self) -> str:
        return self.unsure


async def test_any_owner_keeps_what_it_needs_until_it_lets_go(tmp_path: Path) -> None:
    """Its reason is told in the report and to senders; nothing else knows that it exists."""
    archive = Archive(2 * CONFIG.segment_bytes)
    async with cleaned(roomy_disk(tmp_path), archive) as now:
        report = await now.cleaning.clean(COMMAND)
        assert now.store.min_offset == 2 * CONFIG.segment_bytes
        assert (len(report.removed), report.kept_because) == (2, "the archive has no copy yet")
        assert now.store.statistics().retention.kept_because == "the archive has no copy yet"
        archive.position = None
        report = await now.cleaning.clean(COMMAND)
        assert len(report.removed) > 3
        assert report.kept_because == ""
        check_agreement(now.store)


async def test_a_command_for_unread_messages_takes_them_and_nothing_else(tmp_path: Path) -> None:
    archive = Archive(CONFIG.segment_bytes)
    async with cleaned(roomy_disk(tmp_path), archive) as now:
        now.offsets.commit("billing", "t", 0, 2)
        report = await now.cleaning.clean(COMMAND)
        assert (report.removed, archive.asked) == ([], []), "the groups are asked before"
        report = await now.cleaning.clean(COMMAND_UNREAD)
        assert now.store.min_offset == CONFIG.segment_bytes
        assert report.kept_because == "the archive has no copy yet"
        lost = now.store.queues.bounds("t", 0).min_offset - 2
        assert [(each.group, each.messages) for each in report.unread] == [("billing", lost)]


async def test_an_answer_that_is_true_no_more_is_asked_for_again(tmp_path: Path) -> None:
    """Right before the removal, and not without end; what was said last is told."""
    archive = Archive(None)
    archive.unsure = "the archive is moving"
    async with cleaned(roomy_disk(tmp_path), archive) as now:
        report = await now.cleaning.clean(COMMAND)
        assert (report.removed, archive.asked) == ([], [0, 0, 0])
        assert report.kept_because == "the archive is moving"


async def test_an_owner_that_is_asked_after_the_groups_takes_nothing_from_them(
    tmp_path: Path,
) -> None:
    """While it is asked, a group that had read everything is set back."""
    archive = Archive(None)
    async with cleaned(roomy_disk(tmp_path), archive) as now:
        now.offsets.commit("billing", "t", 0, 60)
        archive.meanwhile = lambda: now.offsets.commit("billing", "t", 0, 0)
        report = await now.cleaning.clean(COMMAND)
        assert report.removed == []
        assert "group billing has not read topic t" in report.kept_because
