"""Writing tables: one write per file at a time, whoever gives up waiting."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.store.disk import RealDisk
from aerobee.broker.table_files import TableFiles
from aerobee.runtime.clock import ManualClock


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


async def test_a_cancelled_writer_keeps_its_turn_until_its_thread_is_done(tmp_path: Path) -> None:
    """A client that goes away cancels its request in the middle of a write; the next write must
    not meet the thread that is still at it."""
    disk = GatedDisk(tmp_path)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as pool:
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
