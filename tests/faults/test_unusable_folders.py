"""Data folders that a broker cannot have: it says so in one sentence and harms nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aerobee.runtime.supervise import ExitCode
from aerobee.v1 import common_pb2
from tests.faults.serving import MIB, BrokerProcess, broker_process

pytestmark = pytest.mark.slow


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


async def filled(folder: Path, log: Path) -> None:
    """A store with three messages, left in order."""
    async with broker_process(folder, log, {"t": 1}) as broker, broker.client() as client:
        assert (await client.send("t", 0, b"a", b"b", b"c")).code == common_pb2.OK
        assert await broker.end() == 0


async def test_a_folder_on_a_read_only_disk_is_refused_and_serves_again_when_it_is_not(
    small_disk: Callable[[int], Path], tmp_path: Path
) -> None:
    disk = small_disk(24 * MIB)
    folder, log = disk / "store", tmp_path / "broker.log"
    await filled(folder, log)
    before = files_of(folder)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    broker = BrokerProcess(folder, log, {})
    code, words = await broker.refuses_to_start()
    assert code == ExitCode.REFUSED
    assert words == (
        f"aerobee broker: {folder} cannot be written (Read-only file system): check its owner and "
        "the mount"
    )
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert files_of(folder) == before
    await broker.start()
    async with broker.client() as client:
        assert await client.bodies("t", 0) == [b"a", b"b", b"c"]
    assert await broker.end() == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
async def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o500)
    code, words = await BrokerProcess(folder, tmp_path / "log", {}).refuses_to_start()
    assert code == ExitCode.REFUSED
    assert "check its owner and the mount" in words


async def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for folder in (tmp_path / "file", tmp_path / "file" / "store"):
        code, words = await BrokerProcess(folder, tmp_path / "log", {}).refuses_to_start()
        assert code == ExitCode.REFUSED
        assert str(folder) in words
        assert "cannot be written" in words
        assert "check its owner" in words
    assert (tmp_path / "file").read_text() == "precious"


async def test_a_folder_in_use_is_refused_and_its_owner_notices_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with (
        broker_process(folder, tmp_path / "first.log", {"t": 1}) as owner,
        owner.client() as client,
    ):
        await client.send("t", 0, b"before")
        second = BrokerProcess(folder, tmp_path / "second.log", {})
        code, words = await second.refuses_to_start()
        assert code == ExitCode.REFUSED
        assert words == (
            f"aerobee broker: {folder} is in use by another process: stop that process or choose "
            "another folder"
        )
        ack = await client.send("t", 0, b"after")
        assert (ack.code, ack.base_queue_offset) == (common_pb2.OK, 1)
        # The lock ends with its owner, however that ends.
        await owner.end(signal.SIGKILL)
        await second.start()
        async with second.client() as heir:
            assert await heir.bodies("t", 0) == [b"before", b"after"]
        assert await second.end() == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config/topics.json", b'{"neither": JSON'),
        ("config/topics.json", b""),
        ("config/topics.json", bytes(512)),
        ("config/consumerOffset.json", b'{"neither": JSON'),
    ],
)
async def test_a_table_that_nobody_can_read_is_named_and_left_for_repair(
    tmp_path: Path, name: str, content: bytes
) -> None:
    folder, log = tmp_path / "store", tmp_path / "broker.log"
    await filled(folder, log)
    for path in (folder / name, folder / f"{name}.bak"):
        path.write_bytes(content)
    broker = BrokerProcess(folder, log, {})
    code, words = await broker.refuses_to_start()
    assert code == ExitCode.REFUSED
    assert name in words
    assert "repair the file, or remove it" in words
    assert (folder / name).read_bytes() == content


async def test_a_folder_written_with_other_sizes_is_refused_untouched(tmp_path: Path) -> None:
    folder, log = tmp_path / "store", tmp_path / "broker.log"
    await filled(folder, log)
    copy = tmp_path / "copy"
    shutil.copytree(folder / "commitlog", copy)
    broker = BrokerProcess(folder, log, {"store-segment-bytes": str(8 * MIB)})
    code, words = await broker.refuses_to_start()
    assert code == ExitCode.REFUSED
    assert "segment" in words
    assert files_of(folder / "commitlog") == files_of(copy)
