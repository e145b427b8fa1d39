"""A disk that is really full: a small file system, filled to the last byte."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
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
    refusal,
)
from tests.support.waiting import until

pytestmark = pytest.mark.slow

BODY_BYTES = 128 * KIB


class Ballast:
    """A file that takes a disk's space away, and gives it back."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self._path = disk / "ballast"

    def leave(self, free_bytes: int) -> None:
        while (excess := shutil.disk_usage(self._disk).free - free_bytes) > 0:
            # The broker may take the last of it first.
            with contextlib.suppress(OSError), self._path.open("ab", buffering=0) as file:
                file.write(bytes(min(excess, MIB)))
        assert shutil.disk_usage(self._disk).free <= free_bytes

    def drop(self) -> None:
        self._path.unlink()


class Sender:
    """Remembers what was acknowledged, in the order of queue 0 of topic `t`."""

    def __init__(self) -> None:
        self._random_bytes = random.Random(1).randbytes
        self.acknowledged: list[bytes] = []

    async def send(self, client: Client, *, size: int = BODY_BYTES) -> broker_pb2.SendAck:
        body = len(self.acknowledged).to_bytes(8, "big") + self._random_bytes(size - 8)
        ack = await client.send("t", 0, body)
        if ack.code == common_pb2.OK:
            assert ack.base_queue_offset == len(self.acknowledged)
            self.acknowledged.append(body)
        return ack

    async def until_refused(self, client: Client) -> broker_pb2.SendAck:
        for _ in range(1_000):
            ack = await self.send(client)
            if ack.code != common_pb2.OK:
                return ack
        raise AssertionError("the disk never became full")

    async def until_taken(self, client: Client) -> None:
        async def taken() -> bool:
            return (await self.send(client)).code == common_pb2.OK

        await until(taken, "sends are taken again")

    async def check(self, client: Client) -> None:
        assert await client.bodies("t", 0) == self.acknowledged


@pytest.fixture
async def broker(full_disk: Path, tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    settings = {"store-checkpoint-interval-ms": "200"}
    log = tmp_path / "broker.log"
    async with broker_process(full_disk / "store", log, {"t": 1}, settings) as broker:
        yield broker
        assert "Traceback" not in broker.said(), broker.said()


@pytest.fixture
def ballast(full_disk: Path) -> Ballast:
    return Ballast(full_disk)


async def test_without_room_for_a_segment_sends_are_refused_reads_go_on_and_it_resumes_by_itself(
    broker: BrokerProcess, ballast: Ballast
) -> None:
    sender = Sender()
    async with broker.client() as client:
        await sender.send(client)
        ballast.leave(6 * MIB)  # one more segment, and room for small files
        refused = await sender.until_refused(client)
        assert len(sender.acknowledged) > 4 * MIB // BODY_BYTES
        assert refused.code == common_pb2.NOT_WRITABLE
        assert "no room for another log segment" in refused.message
        assert "free space" in refused.message
        end = await client.log_end()
        status, error = await refusal(
            client.send_service.Send(broker_pb2.SendRequest(topic="t", body=bytes(BODY_BYTES)))
        )
        assert (status, type(error)) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            errors.NotWritable,
        )
        assert "free space" in str(error)
        stats = await client.stats()
        assert (stats.log_appended_end, stats.writable) == (end, False)
        assert "disk full" in stats.not_writable_reason
        await sender.check(client)
        ballast.drop()
        await sender.until_taken(client)
        await eventually_writable(client)
        await sender.check(client)
    await broker.end(signal.SIGKILL)
    await broker.start()
    async with broker.client() as client:
        await sender.check(client)
        await sender.until_taken(client)
    assert await broker.end() == 0


async def test_a_disk_full_to_the_last_byte_loses_neither_messages_nor_offsets(
    broker: BrokerProcess, ballast: Ballast
) -> None:
    """Neither queue files nor the offset file can be written; both follow when there is room."""
    sender = Sender()
    offsets_file = broker.folder / "config" / "consumerOffset.json"
    async with broker.client() as client:
        for _ in range(3):
            await sender.send(client, size=KIB)
        assert (await client.commit("g", "t", 0, 1)).code == common_pb2.OK
        await until(lambda: offsets_file.exists(), "the offsets are saved")
        ballast.leave(0)
        # The segment has room, but entries of the queue cannot reach their file for long.
        for _ in range(3_000):
            ack = await sender.send(client, size=KIB)
            if ack.code != common_pb2.OK:
                break
        if ack.code == common_pb2.OK:
            ack = await sender.until_refused(client)
        assert ack.code == common_pb2.NOT_WRITABLE
        assert "free space" in ack.message
        end = await client.log_end()
        # Offsets are journalled in the log: what was taken counts, what was not is refused.
        taken = []
        for group in range(300):
            name = f"group-with-a-long-name-{group:04}"
            status = await client.commit(name, "t", 0, 2)
            if status.code == common_pb2.OK:
                taken.append(name)
            else:
                assert status.code == common_pb2.NOT_WRITABLE
                assert "free space" in status.message
        assert not broker.has_ended
        await sender.check(client)
        if not taken:
            assert await client.log_end() == end
        ballast.drop()
        await sender.until_taken(client)
        for group in range(300):
            name = f"group-with-a-long-name-{group:04}"
            assert (await client.commit(name, "t", 0, 2)).code == common_pb2.OK
        await until(
            lambda: offsets_file.exists() and "-name-0299" in offsets_file.read_text(),
            "they are saved",
        )
    await broker.end(signal.SIGKILL)
    await broker.start()
    async with broker.client() as client:
        await sender.check(client)
        assert await client.committed("g", "t", 0) == 1
        for name in (*taken, "group-with-a-long-name-0299"):
            assert await client.committed(name, "t", 0) == 2


async def test_a_broker_that_is_stopped_or_killed_while_the_disk_is_full_loses_nothing(
    broker: BrokerProcess, ballast: Ballast
) -> None:
    sender = Sender()
    for number in (signal.SIGTERM, signal.SIGKILL):
        async with broker.client() as client:
            await sender.send(client)
            ballast.leave(0)
            await sender.until_refused(client)
            for group in range(300):
                await client.commit(f"group-with-a-long-name-{group:04}-{number}", "t", 0, 1)
        code = await broker.end(number)
        assert code == (0 if number is signal.SIGTERM else -number), broker.said()[-2_000:]
        # A start needs a little room; without it, it says so.
        code, words = await broker.refuses_to_start()
        assert code == 3
        assert "No space left on device" in words
        assert str(broker.folder) in words
        ballast.drop()
        await broker.start()
        async with broker.client() as client:
            await sender.check(client)


async def test_a_member_whose_session_cannot_be_noted_is_told_to_wait(
    broker: BrokerProcess, ballast: Ballast
) -> None:
    async with broker.client() as client:
        ballast.leave(0)
        with pytest.raises(errors.NotWritable, match="free space"):
            await Member(client, group="g", client_id="m").join(session_timeout_ms=60_000)
        ballast.drop()

        async def joins() -> bool:
            member = Member(client, group="g", client_id="m")
            try:
                joined = await member.join(session_timeout_ms=60_000)
            except errors.NotWritable:
                return False  # the store asks the disk once a second
            assert joined.session_timeout_ms == 60_000
            await member.leave()
            return True

        await until(joins, "a member joins, now that there is room")


async def test_below_the_minimum_of_free_space_nothing_is_taken(
    full_disk: Path, ballast: Ballast, tmp_path: Path
) -> None:
    sender = Sender()
    settings = {"store-disk-free-bytes-min": str(8 * MIB), "store-segment-bytes": str(MIB)}
    async with (
        broker_process(full_disk / "store", tmp_path / "broker.log", {"t": 1}, settings) as broker,
        broker.client() as client,
    ):
        await sender.send(client)
        ballast.leave(10 * MIB + MIB // 2)
        refused = await sender.until_refused(client)
        assert refused.code == common_pb2.NOT_WRITABLE
        assert f"no room for another log segment of {MIB} bytes" in refused.message
        assert f"beside the {8 * MIB} that must stay; free space" in refused.message
        # The log itself does not take what must stay, however fast it grows.
        assert shutil.disk_usage(full_disk).free > 8 * MIB
        ballast.leave(7 * MIB)

        async def is_below() -> bool:
            ack = await sender.send(client)
            assert ack.code == common_pb2.NOT_WRITABLE
            return f"less than the {8 * MIB} that must stay: free space" in ack.message

        await until(is_below, "it has measured the disk")
        first, second = await client.exchange(
            batch_of("t", 0, b"a", sequence=1), batch_of("t", 0, b"b", sequence=2)
        )
        assert (first.code, second.code) == (common_pb2.NOT_WRITABLE, common_pb2.NOT_WRITABLE)
        await sender.check(client)
        ballast.drop()
        await sender.until_taken(client)
        await sender.check(client)


async def test_above_its_percentage_nothing_is_taken_until_the_disk_is_clearly_emptier(
    full_disk: Path, ballast: Ballast, tmp_path: Path
) -> None:
    sender = Sender()
    settings = {"store-segment-bytes": str(MIB), "store-retention-enabled": "true"}
    total = shutil.disk_usage(full_disk).total
    async with (
        broker_process(full_disk / "store", tmp_path / "broker.log", {"t": 1}, settings) as broker,
        broker.client() as client,
    ):
        await sender.send(client, size=KIB)
        ballast.leave(total * 8 // 100)

        async def is_above() -> bool:
            ack = await sender.send(client, size=KIB)
            return "messages are refused above 90 %" in ack.message

        await until(is_above, "it has measured the disk")
        stats = await client.stats()
        assert (stats.writable, stats.disk_total_bytes) == (False, total)
        assert 0 < stats.disk_free_bytes <= total * 8 // 100
        await sender.check(client)
        ballast.drop()
        await sender.until_taken(client)
        await sender.check(client)


async def eventually_writable(client: Client) -> None:
    async def writable() -> bool:
        return (await client.stats()).writable

    await until(writable, "it says that it is writable")
