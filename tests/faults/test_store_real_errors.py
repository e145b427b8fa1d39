"""Errors that a real kernel gives: a file system that shuts down, turns read-only, or promises more
space than it has; a folder that is gone; no file descriptors left."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from aerobee.runtime.supervise import ExitCode
from aerobee.v1 import broker_pb2, common_pb2
from tests.faults.serving import KIB, MIB, BrokerProcess, Client, broker_process
from tests.support.loop_disk import LoopDisk, run
from tests.support.waiting import until

pytestmark = pytest.mark.slow

SYNC = {"store-flush-mode": "sync", "store-segment-bytes": str(MIB)}


MakeLoopDisk = Callable[..., LoopDisk]


@pytest.fixture
def loop_disk(tmp_path: Path) -> Iterator[MakeLoopDisk]:
    disks: list[LoopDisk] = []

    def make(folder: Path = tmp_path, size_bytes: int = 64 * MIB) -> LoopDisk:
        disk = LoopDisk(folder / "image", tmp_path / f"mounted-{len(disks)}", size_bytes)
        disks.append(disk)
        return disk

    yield make
    for disk in disks:
        disk.unmount()


class Sender:
    """What was acknowledged, in the order of queue 0."""

    def __init__(self) -> None:
        self._random_bytes = random.Random(1).randbytes
        self.acknowledged: list[bytes] = []

    async def send(self, client: Client, size: int = 10 * KIB) -> broker_pb2.SendAck | None:
        """None if the broker went away before it answered."""
        body = len(self.acknowledged).to_bytes(8, "big") + self._random_bytes(size - 8)
        acks = await client.exchange_or_nothing("t", 0, body)
        if acks is not None and acks.code == common_pb2.OK:
            self.acknowledged.append(body)
        return acks

    async def until_failed(self, client: Client) -> None:
        """Send until the broker says that its store failed, or is gone."""
        for _ in range(10_000):
            ack = await self.send(client)
            if ack is None:
                return
            if ack.code != common_pb2.OK:
                assert ack.code == common_pb2.STORE_FAILED, ack
                return
        raise AssertionError("the broker went on as if nothing had happened")

    async def check(self, client: Client) -> None:
        """All of it in order; what came last may be there without having been acknowledged."""
        found = await client.bodies("t", 0)
        assert found[: len(self.acknowledged)] == self.acknowledged
        assert len(found) <= len(self.acknowledged) + 1

    async def forget_last_if_lost(self, client: Client) -> None:
        if await client.bodies("t", 0) == self.acknowledged[:-1]:
            self.acknowledged.pop()


async def check_ended(broker: BrokerProcess, *words: str) -> None:
    """It ended by itself with the exit code of a failure, and says why in its last line."""
    assert await broker.wait() == ExitCode.FAILED
    said = broker.said()
    assert "Traceback" not in said, said[-3_000:]
    assert "the store failed; the broker ends" in said
    for word in words:
        assert word in said.splitlines()[-1], said.splitlines()[-1]


async def check_restart(
    broker: BrokerProcess, sender: Sender, *, device_may_lie: bool = False
) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        await broker.start()
        async with broker.client() as client:
            if device_may_lie:
                await sender.forget_last_if_lost(client)
            await sender.check(client)
            sender.acknowledged = await client.bodies("t", 0)
            ack = await sender.send(client)
            assert ack is not None
            assert ack.code == common_pb2.OK
            await sender.check(client)
        await broker.end(number)


async def test_a_disk_that_is_suddenly_gone_ends_the_broker_and_keeps_what_was_acknowledged(
    loop_disk: MakeLoopDisk, tmp_path: Path
) -> None:
    """EIO on write, on fsync and on read, from the kernel; and its journal is lost, as at a power
    failure."""
    disk = loop_disk()
    sender = Sender()
    async with (
        broker_process(disk.store, tmp_path / "broker.log", {"t": 1}, SYNC) as broker,
        broker.client() as client,
    ):
        for _ in range(150):  # over a segment's end
            ack = await sender.send(client)
            assert ack is not None
            assert ack.code == common_pb2.OK
        disk.shut_down()
        await sender.until_failed(client)
        assert len(sender.acknowledged) == 150
        await check_ended(broker, "Input/output error")
        code, words = await broker.refuses_to_start()
        assert code == ExitCode.REFUSED
        assert "Input/output error" in words
        disk.remount()
        await check_restart(broker, sender)


async def test_a_disk_that_turns_read_only_ends_the_broker_and_keeps_what_was_acknowledged(
    loop_disk: MakeLoopDisk, tmp_path: Path
) -> None:
    disk = loop_disk()
    sender = Sender()
    async with (
        broker_process(disk.store, tmp_path / "broker.log", {"t": 1}, SYNC) as broker,
        broker.client() as client,
    ):
        for _ in range(20):
            assert await sender.send(client) is not None
        disk.turn_read_only()
        await sender.until_failed(client)
        await check_ended(broker)
        code, words = await broker.refuses_to_start()
        assert code == ExitCode.REFUSED
        assert "Read-only file system" in words
        assert "check its owner and the mount" in words
        disk.remount()
        await check_restart(broker, sender)


@pytest.mark.thorough
async def test_a_disk_with_less_space_than_it_promised_ends_the_broker_at_the_fsync_that_fails(
    loop_disk: MakeLoopDisk, tmp_path: Path
) -> None:
    """A thin volume: the file system has room, its device has none. Writes succeed, the sync that
    shall bring them to the device does not, and is not tried again: the kernel forgot the bytes.

    A loop device calls a write done that its file took a part of, so the one message that meets the
    end of the space may be acknowledged and lost: by this device, not by the broker.
    """
    thin = tmp_path / "thin"
    thin.mkdir()
    if run("mount", "-t", "tmpfs", "-o", f"size={14 * MIB}", "tmpfs", thin).returncode:
        pytest.skip("this machine forbids mounting a file system")
    try:
        disk = loop_disk(thin, 64 * MIB)
        sender = Sender()
        async with (
            broker_process(disk.store, tmp_path / "broker.log", {"t": 1}, SYNC) as broker,
            broker.client() as client,
        ):
            await sender.until_failed(client)
            assert len(sender.acknowledged) > 100
            await check_ended(broker)
            run("mount", "-o", f"remount,size={80 * MIB}", thin)
            disk.remount()
            await check_restart(broker, sender, device_may_lie=True)
            disk.unmount()
    finally:
        run("umount", "--lazy", thin)


async def test_a_folder_that_is_removed_under_a_broker_ends_it(tmp_path: Path) -> None:
    """It holds open files that nobody will find again: it must not go on acknowledging."""
    folder = tmp_path / "store"
    async with (
        broker_process(folder, tmp_path / "broker.log", {"t": 1}) as broker,
        broker.client() as client,
    ):
        assert (await client.send("t", 0, b"body")).code == common_pb2.OK
        # Moved first: the broker makes files in it while others are removed.
        shutil.rmtree(folder.rename(tmp_path / "removed"))
        await check_ended(broker, str(folder))
        assert not (folder / "commitlog").exists()


def with_descriptors(argv: Sequence[str], soft: int, hard: int | None = None) -> tuple[str, ...]:
    """The same program with no more than so many file descriptors, ever."""
    limits = f"ulimit -Sn {soft} && ulimit -Hn {hard or soft}"
    return ("/bin/sh", "-c", f'{limits} && exec "$@"', "sh", *argv)


async def test_without_enough_file_descriptors_the_start_is_refused_with_the_limit(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path / "store", tmp_path / "broker.log", {})
    broker.argv = with_descriptors(broker.argv, 48)
    code, words = await broker.refuses_to_start()
    assert code == ExitCode.REFUSED
    assert "48" in words
    assert "file descriptors" in words


async def test_a_low_soft_limit_of_file_descriptors_is_raised_to_the_hard_one(
    tmp_path: Path,
) -> None:
    """Many a shell has 1,024, which a thousand clients exhaust."""
    broker = BrokerProcess(tmp_path / "store", tmp_path / "broker.log", {})
    broker.argv = with_descriptors(broker.argv, 256, 4096)
    try:
        await broker.start()
        limits = Path(f"/proc/{broker.pid}/limits").read_text()
        (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
        assert line.split()[3:5] == ["4096", "4096"]
    finally:
        await broker.close()


async def test_clients_that_take_all_file_descriptors_do_not_harm_the_store(
    tmp_path: Path,
) -> None:
    """Nobody new can connect; those who are there go on, and so does the store."""
    import socket

    folder = tmp_path / "store"
    settings = {"store-segment-bytes": str(MIB), "store-open-files-max": "16"}
    async with broker_process(folder, tmp_path / "broker.log", {"t": 1}, settings) as first:
        await first.end()
    broker = BrokerProcess(folder, tmp_path / "broker.log", settings)
    broker.argv = with_descriptors(broker.argv, 300)
    sender = Sender()
    connections: list[socket.socket] = []
    try:
        await broker.start()
        async with broker.client() as client:
            assert await sender.send(client) is not None
            host, port = broker.address.split(":")
            for _ in range(400):
                try:
                    connections.append(socket.create_connection((host, int(port)), timeout=1))
                except OSError:
                    break
            for _ in range(250):  # over segments and checkpoints
                ack = await sender.send(client)
                assert ack is not None
                assert ack.code == common_pb2.OK, ack
            await sender.check(client)
            assert not broker.has_ended
            for connection in connections:
                connection.close()
            connections.clear()

            async def connects() -> bool:
                async with broker.client() as newcomer:
                    return (await newcomer.stats()).writable

            await until(connects, "newcomers are served again")
        assert await broker.end() == 0
        assert "Traceback" not in broker.said(), broker.said()
    finally:
        for connection in connections:
            connection.close()
        await broker.close()
