"""Where a topic's queues begin, after kill -9 and changes of master: replicas in processes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.cluster_view.methods import QUERY_BOUNDS
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2
from tests.support.etcd import running_etcd
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


async def bounds(group: ReplicaGroup, broker_id: int) -> tuple[int, int]:
    """Of queue 0, as one replica says, master or slave."""
    request = broker_pb2.QueryBoundsRequest(queues=[broker_pb2.TopicQueue(topic="t", queue_id=0)])
    try:
        answer = await group.channels.call(group.replicas[broker_id].address, QUERY_BOUNDS, request)
    except errors.AerobeeError:
        return -1, -1
    return answer.bounds[0].min_offset, answer.bounds[0].max_offset


async def agree(group: ReplicaGroup, wanted: tuple[int, int], *broker_ids: int) -> None:
    async def holds() -> bool:
        return all([await bounds(group, each) == wanted for each in broker_ids])

    await until(holds, f"replicas {broker_ids} say {wanted}")


async def findings(*arguments: str) -> set[str]:
    """What `aerobee audit` finds."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aerobee.cli", "audit", "--engine", "local", "--format", "json"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, trouble = await process.communicate()
    assert process.returncode in (0, 1), trouble.decode()
    return {each["check"] for each in json.loads(said)["findings"]}


async def test_every_replica_and_every_next_master_begins_at_the_same_message(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd, (0, 1), clean_interval_ms=50) as group:
        await group.in_sync(0, 1)
        await group.create_topic("t", 1, keep_ms="1000")
        for _ in range(5):
            master = await group.send_until_stored("t", b"x")
        slave = 1 - master
        await agree(group, (5, 5), master, slave)

        await group.replicas[master].kill()
        assert await group.master(not_id=master) == slave
        assert await bounds(group, slave) == (5, 5)
        assert await group.send_until_stored("t", b"x") == slave
        await group.replicas[master].start()
        await group.in_sync(0, 1)
        await agree(group, (6, 6), master, slave)

        for each in (0, 1):
            await group.replicas[each].kill()
        for each in (0, 1):
            await group.replicas[each].start()
        await group.in_sync(0, 1)
        await agree(group, (6, 6), 0, 1)

        # One replica knows a moment later than the other what is kept.
        await group.create_topic("u", 1, keep_ms="1000")
        for _ in range(20):
            master = await group.send_until_stored("u", b"x")
        address = group.nameserver, "--cluster", group.cluster
        found = await findings("--nameserver", *address)
        assert found <= {"ONE_ZONE"}
        for each in (0, 1):
            await group.replicas[each].stop()
        stores = [f"{group.replicas[each].folder}=broker-a:{each}" for each in (0, 1)]
        found = await findings("--deep", "--store", stores[0], "--store", stores[1])
        assert found <= {"ONE_ZONE"}
