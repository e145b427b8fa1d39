"""One broker program that the refusal tests share: what it refuses leaves no trace in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.serving import MIB, BrokerProcess, Client, write_topics


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Topics `t` and `u` of four queues, `closed` (no permission) and `frozen` (reading only)."""
    folder = tmp_path_factory.mktemp("shared-broker")
    write_topics(
        folder / "store",
        {"t": 4, "u": 4, "closed": 4, "frozen": 4},
        perm={"closed": 2, "frozen": 4},
    )
    broker = BrokerProcess(folder / "store", folder / "broker.log", {})
    with asyncio.Runner() as runner:
        runner.run(broker.start())
        try:
            yield broker
            assert not broker.has_ended, broker.said()
            assert "Traceback" not in broker.said(), broker.said()
        finally:
            runner.run(broker.close())


@pytest.fixture
async def client(shared_broker: BrokerProcess) -> AsyncIterator[Client]:
    async with shared_broker.client() as client:
        yield client


MakeSmallDisk = Callable[[int], Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[MakeSmallDisk]:
    """Mounts a file system of so many bytes; skips where that is not allowed."""
    mounted: list[Path] = []

    def mount(size_bytes: int) -> Path:
        folder = tmp_path / f"disk-{len(mounted)}"
        folder.mkdir()
        if not sys.platform.startswith("linux") or os.geteuid() != 0 or not shutil.which("mount"):
            pytest.skip("a file system can be mounted by root on Linux only")
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"this machine forbids mounting a file system: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def full_disk(small_disk: MakeSmallDisk) -> Path:
    return small_disk(24 * MIB)
