"""Writing tables: one write per file at a time, whoever gives up waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import NotWritable
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.tables.consumer_offset_table import (
    CONSUMER_OFFSETS_PATH,
    ROWS_PER_TURN,
    ConsumerOffsetTable,
)
from aerobee.store.engine.tables.offset_texts import OffsetRow, OffsetTexts
from aerobee.store.flush.table_files import TableFiles


class GatedDisk(RealDisk):
    """A disk whose renames wait, and which notes how many writers are at work."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.renaming = threading.Event()

    def rename(self, old: str, new: str) -> None:
        self.renaming.set()
        assert self.gate.wait(10)
        super().rename(old, new)

    @contextmanager
    def gated(self) -> Iterator[ThreadPoolExecutor]:
        """A pool for its writers, none of which hangs in the end."""
        with ThreadPoolExecutor(2) as pool:
            try:
                yield pool
            finally:
                self.gate.set()


def fill(table: ConsumerOffsetTable, groups: int = 40, topics: int = 50) -> None:
    for group in range(groups):
        for topic in range(topics):
            for queue_id in range(8):
                table.put(f"group-{group}", f"topic-{topic}", queue_id, 5, 1)


async def test_offsets_are_copied_a_part_at_a_time_and_rendered_on_the_pool(
    tmp_path: Path,
) -> None:
    """Some hundred thousand of them would hold up the loop for a second."""
    table = ConsumerOffsetTable()
    threads: list[str] = []
    takes: list[int] = []
    update, take = OffsetTexts.update, OffsetTexts.take

    def noted_update(texts: OffsetTexts) -> None:
        threads.append(threading.current_thread().name)
        update(texts)

    def noted_take(texts: OffsetTexts, rows: Sequence[OffsetRow]) -> None:
        takes.append(len(rows))
        if len(takes) == 3:  # others go on meanwhile
            table.put("group-1", "topic-1", 0, 9, 1)
            table.put("one-more", "topic-1", 0, 9, 1)
            table.remove("group-2", "topic-2", 0)
        take(texts, rows)

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(1, "files") as pool:
        patched.setattr(OffsetTexts, "update", noted_update)
        patched.setattr(OffsetTexts, "take", noted_take)
        files = TableFiles(RealDisk(tmp_path), ManualClock(), pool)
        files.add(CONSUMER_OFFSETS_PATH, table)
        fill(table)
        await files.save(CONSUMER_OFFSETS_PATH)
        assert max(takes) <= ROWS_PER_TURN
        assert sum(takes) >= 2_000
        assert threads == ["files_0"]
        table.put("group-3", "topic-3", 0, 11, 1)
        takes.clear()
        await files.save(CONSUMER_OFFSETS_PATH)
        assert takes == [1]
    data = (tmp_path / CONSUMER_OFFSETS_PATH).read_bytes()
    assert ConsumerOffsetTable.load(data).as_json() == table.as_json()


def test_a_snapshot_is_the_table_as_it_was_when_it_was_taken() -> None:
    table = ConsumerOffsetTable()
    fill(table, 2, 2)
    before = table.as_json()
    render = table.snapshot(1)
    table.put("group-1", "topic-1", 3, 700, 2)
    table.remove_all("group-0", None)
    assert ConsumerOffsetTable.load(render()).as_json() == before
    assert ConsumerOffsetTable.load(table.snapshot_bytes(2)).as_json() == table.as_json()


def test_what_a_snapshot_had_that_was_never_written_is_in_the_next_one() -> None:
    table = ConsumerOffsetTable()
    fill(table, 2, 2)
    table.snapshot(1)  # the folder was closed before the pool came to it
    assert ConsumerOffsetTable.load(table.snapshot_bytes(2)).as_json() == table.as_json()


async def test_a_cancelled_writer_keeps_its_turn_until_its_thread_is_done(tmp_path: Path) -> None:
    """A client that goes away cancels its request in the middle of a write; the next write must
    not meet the thread that is still at it."""
    disk = GatedDisk(tmp_path)
    loop = asyncio.get_running_loop()
    with disk.gated() as pool:
        files = TableFiles(disk, ManualClock(), pool)
        lock = asyncio.Lock()

        async def write(data: bytes) -> None:
            async with lock:
                await files.write("config/x.json", data)

        async with asyncio.TaskGroup() as tasks:
            first: asyncio.Task[Any] = tasks.create_task(write(b"first"))
            await loop.run_in_executor(None, disk.renaming.wait, 10)
            first.cancel()
            second = tasks.create_task(write(b"second"))
            await asyncio.sleep(0.05)
            assert lock.locked()
            assert not first.done()
            disk.gate.set()
            with pytest.raises(asyncio.CancelledError):
                await first
            await second
    assert (tmp_path / "config/x.json").read_bytes() == b"second"
    assert (tmp_path / "config/x.json.bak").read_bytes() == b"first"


async def test_a_writer_that_is_cancelled_again_keeps_its_turn_until_its_thread_is_done(
    tmp_path: Path,
) -> None:
    """A server that stops cancels what its client's going away has cancelled already."""
    disk = GatedDisk(tmp_path)
    loop = asyncio.get_running_loop()
    with disk.gated() as pool:
        files = TableFiles(disk, ManualClock(), pool)
        writer = asyncio.ensure_future(files.write("config/x.json", b"first"))
        await loop.run_in_executor(None, disk.renaming.wait, 10)
        for _ in range(3):
            writer.cancel()
            await asyncio.sleep(0.01)
            assert not writer.done()
        disk.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await writer
    assert (tmp_path / "config/x.json").read_bytes() == b"first"


async def test_a_folder_is_not_given_up_while_a_thread_writes_to_it(tmp_path: Path) -> None:
    """A server that has stopped does not wait for the calls that it cancelled: what they write must
    not meet those who open the folder again."""
    disk = GatedDisk(tmp_path)
    loop = asyncio.get_running_loop()
    with disk.gated() as pool:
        files = TableFiles(disk, ManualClock(), pool)
        writer = asyncio.ensure_future(files.write("config/x.json", b"first"))
        await loop.run_in_executor(None, disk.renaming.wait, 10)
        closing = asyncio.ensure_future(files.close())
        writer.cancel()
        await asyncio.sleep(0.05)
        assert not closing.done()
        with pytest.raises(NotWritable, match="opened again"):
            await files.write("config/x.json", b"second")
        disk.gate.set()
        await closing
        with pytest.raises(asyncio.CancelledError):
            await writer
    assert (tmp_path / "config/x.json").read_bytes() == b"first"


async def test_what_a_table_follows_from_is_on_the_disk_before_the_table(tmp_path: Path) -> None:
    """And what is changed meanwhile is not in the file, for that is not on the disk."""
    table = ConsumerOffsetTable()
    table.commit("g", "t", 0, 1)
    path = tmp_path / CONSUMER_OFFSETS_PATH
    path.parent.mkdir()
    happened: list[str] = []

    async def flush() -> None:
        happened.append("file" if path.exists() else "log")
        table.commit("g", "t", 0, 2)

    with ThreadPoolExecutor(1) as pool:
        files = TableFiles(RealDisk(tmp_path), ManualClock(), pool)
        files.add(CONSUMER_OFFSETS_PATH, table, before_write=flush)
        table.commit("g", "t", 1, 1)
        await files.save(CONSUMER_OFFSETS_PATH)
    assert happened == ["log"]
    assert ConsumerOffsetTable.load(path.read_bytes()).query("g", "t", 0) == 1
