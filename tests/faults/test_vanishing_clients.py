"""Clients that die, hang or stop reading: the broker forgets them, and its memory stays bounded."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.v1 import broker_pb2, common_pb2
from tests.faults.members import Member
from tests.faults.serving import (
    KIB,
    MIB,
    BrokerProcess,
    Client,
    Process,
    batch_of,
    broker_process,
    resident_bytes,
)
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
FLOOD = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
from tests.faults.serving import Client, batch_of
from aerobee.v1 import broker_pb2

async def main(address, name, queue_id, path):
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    async with Client(address) as client:
        call = client.send_service.SendStream()

        async def read():
            while True:
                for ack in (await call.read()).acks:
                    line = f"{ack.code} {ack.base_queue_offset} {ack.sequence}\\n"
                    os.write(journal, line.encode())

        reader = asyncio.ensure_future(read())
        number = 0
        while True:
            bodies = [b"%s %d %d " % (name.encode(), number, n) + bytes(30_000) for n in range(8)]
            batch = batch_of("t", int(queue_id), *bodies, sequence=number)
            await call.write(broker_pb2.SendFrame(batches=[batch]))
            number += 1

asyncio.run(main(*sys.argv[2:]))
"""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    settings = {"store-segment-bytes": str(64 * MIB), "store-unflushed-bytes-max": str(32 * MIB)}
    log = tmp_path / "broker.log"
    async with broker_process(tmp_path / "store", log, {"t": 4, "u": 1}, settings) as broker:
        yield broker
        assert not broker.has_ended, broker.said()
        assert "Traceback" not in broker.said(), broker.said()


def has_lines(path: Path, count: int) -> bool:
    return path.exists() and path.read_text().count("\n") > count


async def streams(client: Client) -> tuple[int, int]:
    stats = await client.stats()
    return stats.send_streams, stats.pull_streams


async def eventually_alone(client: Client) -> None:
    async def nobody() -> bool:
        return await streams(client) == (0, 0)

    await until(nobody, "the broker has forgotten its clients")


async def test_producers_killed_in_mid_stream_leave_whole_batches_and_nothing_else(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(broker.client())
        floods = []
        for queue_id in range(3):
            journal = tmp_path / f"flood-{queue_id}.journal"
            arguments = (str(ROOT), broker.address, f"f{queue_id}", str(queue_id), str(journal))
            flood = Process(
                f"flood-{queue_id}",
                (sys.executable, "-c", FLOOD, *arguments),
                tmp_path / f"flood-{queue_id}.log",
            )
            stack.push_async_callback(flood.close)
            floods.append((queue_id, await flood.start(), journal))
        for _, flood, journal in floods:
            await until(partial(has_lines, journal, 20), "it is in mid-stream")
            assert await flood.end(signal.SIGKILL) == -signal.SIGKILL
        await eventually_alone(client)
        for queue_id, _, journal in floods:
            records = await client.records("t", queue_id)
            numbers = [tuple(map(int, bytes(one.body).split(b" ", 3)[1:3])) for one in records]
            # Every batch as a whole, in the order in which it was sent, none twice.
            assert numbers == [(batch, n) for batch in range(len(records) // 8) for n in range(8)]
            for line in journal.read_text().rpartition("\n")[0].split("\n"):
                code, offset, sequence = map(int, line.split())
                assert code == common_pb2.OK
                assert numbers[offset] == (sequence, 0)
        assert (await client.send("t", 3, b"next")).code == common_pb2.OK


async def test_readers_that_stop_reading_cost_a_bounded_amount_and_hold_nobody_up(
    broker: BrokerProcess,
) -> None:
    """64 MiB wait for each of 16 readers with endless credit that read one frame and no more."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(broker.client())
        for _ in range(32):
            await until_taken(client, batch_of("t", 0, *([bytes(64 * KIB)] * 32)))
        before = resident_bytes(broker.pid)
        for _ in range(16):
            # Each with a connection of its own.
            reader = await stack.enter_async_context(broker.client())
            call = reader.pull_service.PullStream()
            await call.write(
                broker_pb2.PullCommand(
                    subscribe=broker_pb2.SubscribeQueue(
                        handle=1,
                        request=broker_pb2.PullRequest(topic="t", queue_id=0, max_bytes=MIB),
                        credit_bytes=2**60,
                    )
                )
            )
            assert (await call.read()).result.record_count > 0
        peak = 0
        for turn in range(20):
            assert (await client.send("u", 0, b"%d" % turn)).code == common_pb2.OK
            result = await client.pull("u", 0, turn)
            assert result.record_count == 1
            peak = max(peak, resident_bytes(broker.pid))
            await asyncio.sleep(0.05)
        assert peak - before < 16 * 8 * MIB, f"{(peak - before) / MIB:.0f} MiB"
        assert (await streams(client))[1] == 16
    async with broker.client() as client:
        await eventually_alone(client)


async def written_until_blocked(call: Any, message: Any, most: int) -> int:
    """How many of a message a stream takes whose answers nobody reads."""
    written = 0
    with contextlib.suppress(TimeoutError):
        while written < most:
            async with asyncio.timeout(3):
                await call.write(message)
            written += 1
    return written


async def assert_hurts_nobody(broker: BrokerProcess, message: Any, most: int, method: str) -> None:
    async with broker.client() as client, broker.client() as deaf:
        before = await client.stats()
        call = (
            deaf.pull_service.PullStream() if method == "pull" else deaf.send_service.SendStream()
        )
        assert await written_until_blocked(call, message, most) < most, "it was read to the end"
        after = await client.stats()
        assert after.resident_bytes < before.resident_bytes + 96 * MIB
        assert (await client.send("u", 0, b"x")).code == common_pb2.OK
        call.cancel()
        await eventually_alone(client)


@pytest.mark.thorough
@pytest.mark.parametrize("topic", ["nowhere", "t"])
@pytest.mark.parametrize("flush_mode", ["async", "sync"])
async def test_a_sender_that_never_reads_its_acknowledgements_is_read_no_further(
    tmp_path: Path, flush_mode: str, topic: str
) -> None:
    """Refusals, or receipts that have come true, of which nobody takes any."""
    frame = broker_pb2.SendFrame(
        batches=[batch_of(topic, 0, b"x", sequence=number) for number in range(4_000)]
    )
    settings = {"store-flush-mode": flush_mode}
    async with broker_process(
        tmp_path / "store", tmp_path / "broker.log", {"t": 1, "u": 1}, settings
    ) as broker:
        await assert_hurts_nobody(broker, frame, 200, "send")


@pytest.mark.thorough
async def test_a_reader_that_never_reads_why_it_is_refused_is_read_no_further(
    broker: BrokerProcess,
) -> None:
    """Each subscription is answered, and no answer is taken."""
    command = broker_pb2.PullCommand(
        subscribe=broker_pb2.SubscribeQueue(
            handle=1,
            request=broker_pb2.PullRequest(topic="nowhere", client_id="c" * 1_000),
            credit_bytes=2**60,
        )
    )
    await assert_hurts_nobody(broker, command, 80_000, "pull")


async def test_a_frozen_process_is_dropped_when_it_dies(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """Stopped in mid-stream its connection looks alive; its end is noticed at once."""
    journal = tmp_path / "journal"
    flood = Process(
        "flood",
        (sys.executable, "-c", FLOOD, str(ROOT), broker.address, "f", "0", str(journal)),
        tmp_path / "flood.log",
    )
    async with broker.client() as client:
        try:
            await flood.start()
            await until(lambda: has_lines(journal, 0), "it is in mid-stream")
            before = resident_bytes(broker.pid)
            flood.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.5)
            end = await client.log_end()
            await asyncio.sleep(0.5)
            assert await client.log_end() == end
            assert await streams(client) == (1, 0)
            assert resident_bytes(broker.pid) < before + 64 * MIB
        finally:
            await flood.end(signal.SIGKILL)
        await eventually_alone(client)


async def test_members_that_come_and_vanish_in_masses_are_forgotten(broker: BrokerProcess) -> None:
    async with broker.client() as client:
        for turn in range(3):
            members = [
                Member(client, group=f"g-{turn}", client_id=f"m-{number}") for number in range(60)
            ]
            # On a busy machine its session would be over before all others have joined.
            await members[0].join(session_timeout_ms=2_000)
            await members[0].acquire(0)
            async with asyncio.TaskGroup() as joins:
                for member in members[1:]:
                    joins.create_task(member.join(session_timeout_ms=2_000))
            for member in members:
                member.vanish()

        async def nobody() -> bool:
            return (await client.stats()).members == 0

        await until(nobody, "all have expired")
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await client.groups.DescribeGroup(broker_pb2.DescribeGroupRequest(group="g-0"))
        assert failure.value.code() is grpc.StatusCode.NOT_FOUND


async def until_taken(client: Client, batch: broker_pb2.RecordBatch) -> None:
    """Through back-pressure."""
    for _ in range(200):
        (ack,) = await client.exchange(batch)
        if ack.code == common_pb2.OK:
            return
        assert ack.code == common_pb2.BUSY, ack.message
        await asyncio.sleep(ack.retry_after_ms / 1_000)
    raise AssertionError("the broker stays busy")
