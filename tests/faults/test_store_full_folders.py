"""Each folder of a store on a small disk of its own, full while the others have room."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2
from tests.faults.members import Member
from tests.faults.serving import (
    KIB,
    MIB,
    BrokerProcess,
    Client,
    batch_of,
    broker_process,
)
from tests.support.waiting import until

pytestmark = pytest.mark.slow

SETTINGS = {
    "store-segment-bytes": str(MIB),
    "store-consume-queue-entries-per-file": "1000",
    "store-checkpoint-interval-ms": "100",
    "store-queue-tail-bytes-max": str(20 * KIB),
}
QUEUES = 8


class SmallDisk:
    """A file system in the place of one folder, which can be filled, emptied and made larger."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._mount("size", size_bytes)

    def _mount(self, option: str, size_bytes: int, *flags: str) -> None:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"{option}={size_bytes}", *flags, "tmpfs", self.folder],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"this machine forbids mounting a file system: {done.stderr.strip()}")

    def resize(self, size_bytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size_bytes}", str(self.folder)], check=True)

    def fill(self) -> None:
        with (self.folder / "ballast").open("wb", buffering=0) as file:
            size = MIB
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def drop_ballast(self) -> None:
        (self.folder / "ballast").unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


MakeSmallDisk = Callable[[str, int], SmallDisk]


@pytest.fixture
def small_disk_at(tmp_path: Path) -> Iterator[MakeSmallDisk]:
    """Mounts a small disk over a folder of the store; skips where that is not allowed."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("a file system can be mounted by root on Linux only")
    disks: list[SmallDisk] = []

    def make(folder: str, size_bytes: int) -> SmallDisk:
        disks.append(SmallDisk(tmp_path / "store" / folder, size_bytes))
        return disks[-1]

    yield make
    for disk in disks:
        disk.unmount()


@asynccontextmanager
async def served(tmp_path: Path, **changes: str) -> AsyncIterator[tuple[BrokerProcess, Client]]:
    settings = {**SETTINGS, **{key.replace("_", "-"): value for key, value in changes.items()}}
    async with (
        broker_process(
            tmp_path / "store", tmp_path / "broker.log", {"t": QUEUES}, settings
        ) as broker,
        broker.client() as client,
    ):
        yield broker, client
        assert "Traceback" not in broker.said(), broker.said()


class Sender:
    """Sends numbered messages with keys over all queues and knows which were acknowledged."""

    def __init__(self, *, body_bytes: int = 200) -> None:
        self._random_bytes = random.Random(1).randbytes
        self.acknowledged: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
        self._body_bytes = body_bytes
        self._sent = 0

    async def send(self, client: Client, count: int = 20) -> broker_pb2.SendAck:
        """One batch; its acknowledgement."""
        queue_id = self._sent % QUEUES
        bodies = [
            b"%d-%d " % (self._sent, number) + self._random_bytes(self._body_bytes)
            for number in range(count)
        ]
        keys = f"KEYS\x01key-{self._sent}\x02".encode()
        (ack,) = await client.exchange(batch_of("t", queue_id, *bodies, properties=keys))
        self._sent += 1
        if ack.code == common_pb2.OK:
            assert ack.base_queue_offset == len(self.acknowledged[queue_id])
            self.acknowledged[queue_id] += bodies
        return ack

    async def until_refused(self, client: Client, batches: int = 5_000) -> broker_pb2.SendAck:
        """Sends until more than a pause is asked for; returns what was said then."""
        for _ in range(batches):
            ack = await self.send(client)
            if ack.code == common_pb2.BUSY:  # a checkpoint is under way
                await asyncio.sleep(ack.retry_after_ms / 1_000)
            elif ack.code != common_pb2.OK:
                return ack
        raise AssertionError("the disk never became full")

    async def until_taken(self, client: Client) -> None:
        async def taken() -> bool:
            return (await self.send(client)).code == common_pb2.OK

        await until(taken, "sends are taken again")

    async def check(self, client: Client) -> None:
        for queue_id, bodies in self.acknowledged.items():
            assert await client.bodies("t", queue_id) == bodies


async def check_after_restarts(
    broker: BrokerProcess, sender: Sender, *, number: signal.Signals
) -> None:
    """However it ends and starts again, everything acknowledged is there, once, in order."""
    await broker.end(number)
    for _ in range(2):
        await broker.start()
        async with broker.client() as client:
            await sender.check(client)
            await sender.until_taken(client)
            await sender.check(client)
        assert await broker.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_full_disk_of_the_log_refuses_sends_and_nothing_else(
    small_disk_at: MakeSmallDisk, tmp_path: Path, number: signal.Signals
) -> None:
    disk = small_disk_at("commitlog", 3 * MIB + 512 * KIB)
    sender = Sender(body_bytes=4 * KIB)
    async with served(tmp_path) as (broker, client):
        refused = await sender.until_refused(client)
        assert refused.code == common_pb2.NOT_WRITABLE
        assert "no room for another log segment" in refused.message
        assert "free space" in refused.message
        await sender.check(client)
        assert (await client.commit("g", "t", 0, 1)).code == common_pb2.OK
        disk.resize(8 * MIB)
        await sender.until_taken(client)
        await sender.until_refused(client)
        disk.resize(16 * MIB)
        await check_after_restarts(broker, sender, number=number)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_full_disk_of_the_consume_queues_refuses_sends_before_memory_runs_out(
    small_disk_at: MakeSmallDisk, tmp_path: Path, number: signal.Signals
) -> None:
    """Entries wait in memory; messages in them are readable all the time."""
    disk = small_disk_at("consumequeue", 64 * KIB)
    sender = Sender()
    async with served(tmp_path) as (broker, client):
        refused = await sender.until_refused(client)
        assert refused.code == common_pb2.NOT_WRITABLE
        assert (
            refused.message
            == "the disk is too full to write consume queues and the index: free space"
        )
        await sender.check(client)
        assert not broker.has_ended
        disk.resize(16 * MIB)
        await sender.until_taken(client)
        await sender.check(client)
        disk.fill()
        await sender.until_refused(client)
        await broker.end(number)
        disk.drop_ballast()
        await check_after_restarts(broker, sender, number=number)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_full_disk_of_the_index_loses_no_key(
    small_disk_at: MakeSmallDisk, tmp_path: Path, number: signal.Signals
) -> None:
    disk = small_disk_at("index", 32 * KIB)
    sender = Sender()
    slots = {"store_index_slots_max": "1000", "store_index_entries_max": "2000"}
    async with served(tmp_path, **slots) as (broker, client):
        refused = await sender.until_refused(client)
        assert refused.code == common_pb2.NOT_WRITABLE
        assert "index" in refused.message
        assert "free space" in refused.message
        await sender.check(client)
        assert await found(client, "key-0") == 20
        disk.resize(16 * MIB)
        await sender.until_taken(client)
        await broker.end(number)
        await broker.start()
        async with broker.client() as again:
            for key in ("key-0", "key-3"):
                assert await found(again, key) == 20
        await check_after_restarts(broker, sender, number=number)


async def found(client: Client, key: str) -> int:
    """How many messages have this key."""
    response = await client.admin.QueryMessages(
        broker_pb2.QueryMessagesRequest(topic="t", key=key), timeout=10
    )
    assert not response.more
    return len(response.records)


async def test_a_full_disk_of_the_tables_stops_neither_sends_nor_commits(
    small_disk_at: MakeSmallDisk, tmp_path: Path
) -> None:
    """What cannot be saved is kept in memory and saved when there is room."""
    disk = small_disk_at("config", 256 * KIB)
    sender = Sender()
    async with served(tmp_path, snapshot_interval_ms="100") as (broker, client):
        await sender.send(client)
        disk.fill()
        for group in range(50):
            status = await client.commit(f"a-group-with-a-long-name-{group:04}", "t", 0, 2)
            assert status.code == common_pb2.OK
        await until(lambda: "table not saved" in broker.said(), "it tried to save them")
        assert (await sender.send(client)).code == common_pb2.OK
        with pytest.raises(errors.NotWritable, match=r"queueLeases\.json: free space"):
            await Member(client, group="g", client_id="m").join(session_timeout_ms=60_000)
        # A start writes the lease file: without room it says so, and harms nothing.
        await broker.end(signal.SIGTERM)
        code, words = await broker.refuses_to_start()
        assert code == 3
        assert "No space left on device" in words
        disk.drop_ballast()
        await check_after_restarts(broker, sender, number=signal.SIGKILL)


async def test_offsets_that_could_not_be_saved_are_saved_when_there_is_room(
    small_disk_at: MakeSmallDisk, tmp_path: Path
) -> None:
    disk = small_disk_at("config", 256 * KIB)
    sender = Sender()
    name = "a-group-with-a-long-name"
    async with served(tmp_path, snapshot_interval_ms="100") as (broker, client):
        await sender.send(client)
        disk.fill()
        for group in range(50):
            await client.commit(f"{name}-{group:04}", "t", 0, 2)
        disk.drop_ballast()
        offsets = tmp_path / "store" / "config" / "consumerOffset.json"
        await until(
            lambda: offsets.exists() and f"{name}-0049" in offsets.read_text(), "they are saved"
        )
        await broker.end(signal.SIGKILL)
        await broker.start()
        async with broker.client() as again:
            assert await again.committed(f"{name}-0049", "t", 0) == 2
