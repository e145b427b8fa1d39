"""A broker that removes segments all the time is killed, again and again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path

import grpc
import pytest

from aerobee.v1 import broker_pb2, common_pb2
from tests.faults.serving import KIB, BrokerProcess, Client, broker_process

pytestmark = pytest.mark.slow

ROUNDS = 6
UNREAD = 40
SETTINGS = {
    "store-segment-bytes": str(64 * KIB),
    "store-consume-queue-entries-per-file": "50",
    "store-checkpoint-interval-ms": "20",
    "store-flush-interval-ms": "10",
    "store-retention-enabled": "true",
    "store-retention-file-reserved-hours": "0",
    "store-retention-delete-when": ";".join(map(str, range(24))),
    "store-retention-first-clean-ms": "0",
    "store-retention-clean-interval-ms": "5",
    "store-retention-delete-pause-ms": "1",
}


async def minimum(client: Client) -> int:
    response = await client.offsets.QueryBounds(
        broker_pb2.QueryBoundsRequest(queues=[broker_pb2.TopicQueue(topic="t", queue_id=0)])
    )
    return int(response.bounds[0].min_offset)


class Traffic:
    """One producer, and one group that stays some messages behind."""

    def __init__(self) -> None:
        self._random_bytes = random.Random(1).randbytes
        self.sent: list[bytes] = []
        self.read_to = 0

    async def run(self, client: Client) -> None:
        """Until the broker is gone."""
        while True:
            bodies = [self._random_bytes(2 * KIB) for _ in range(10)]
            self.sent += bodies
            ack = await client.exchange_or_nothing("t", 0, *bodies)
            if ack is None:
                return
            assert ack.code == common_pb2.OK, ack
            self.read_to = max(0, len(self.sent) - UNREAD)
            await client.commit("g", "t", 0, self.read_to)

    async def check(self, client: Client) -> None:
        """What the group has not read is there, in order, up to what was acknowledged at least."""
        assert await minimum(client) <= self.read_to
        found = await client.bodies("t", 0, self.read_to)
        assert len(found) >= UNREAD
        assert found == self.sent[self.read_to : self.read_to + len(found)]
        self.sent = self.sent[: self.read_to + len(found)]


@pytest.mark.thorough
async def test_unread_messages_outlive_kills_in_the_midst_of_removals(tmp_path: Path) -> None:
    chance = random.Random(7)
    traffic = Traffic()
    log = tmp_path / "broker.log"
    removed = 0
    async with broker_process(tmp_path / "store", log, {"t": 1}, SETTINGS) as broker:
        for _ in range(ROUNDS):
            async with broker.client() as client:
                removed += await _until_killed(traffic, client, broker, chance)
            await broker.start()
            async with broker.client() as client:
                await traffic.check(client)
        # A kill between a file's removal and the note of it may have the journal's queue, which
        # lost its file in the same moment as the topic's, made anew from the log.
        rebuilt = [line for line in broker.said().splitlines() if "was rebuilt" in line]
        assert all("AEROBEE_OFFSET_JOURNAL" in line for line in rebuilt), rebuilt
        assert "Traceback" not in broker.said(), broker.said()
    assert removed > 3 * ROUNDS


async def _until_killed(
    traffic: Traffic, client: Client, broker: BrokerProcess, chance: random.Random
) -> int:
    """Returns how many segments had gone shortly before."""
    sending = asyncio.create_task(traffic.run(client))
    await asyncio.sleep(0.7 + chance.random() / 3)
    removed = (await client.stats()).removed_segments
    await broker.end(signal.SIGKILL)
    with contextlib.suppress(grpc.aio.AioRpcError):  # a commit may meet the broker's end
        await sending
    return removed
