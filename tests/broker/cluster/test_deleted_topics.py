"""A deleted topic is empty for good: with its messages go its offsets, on every replica, whichever
of them was away and whichever becomes master."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.cluster_view.methods import COMMIT_OFFSETS, DELETE_TOPIC, QUERY_OFFSETS
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2
from tests.support.etcd import EtcdProcess, running_etcd
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.waiting import until

TOPIC, READERS = "orders", "billing"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


async def grown(group: ReplicaGroup) -> int:
    """All in sync, three messages in the topic, two of them consumed; returns the master's id."""
    await group.in_sync(*group.replicas)
    await group.create_topic(TOPIC)
    master = await group.send_until_stored(TOPIC, b"old")
    for _ in range(2):
        assert (await group.send(master, TOPIC, b"old")).code == common_pb2.OK
    await until(lambda: _commits(group, master, 2))
    return master


async def _commits(group: ReplicaGroup, broker_id: int, offset: int) -> bool:
    wanted = broker_pb2.QueueOffset(topic=TOPIC, queue_id=0, offset=offset)
    try:
        answer = await group.channels.call(
            group.replicas[broker_id].address,
            COMMIT_OFFSETS,
            broker_pb2.CommitOffsetsRequest(group=READERS, client_id="m", offsets=[wanted]),
        )
    except errors.AerobeeError:
        return False
    return bool(answer.results[0].code == common_pb2.OK)


async def committed(group: ReplicaGroup, broker_id: int) -> int:
    """-1: nothing is."""
    found = -2

    async def told() -> bool:
        nonlocal found
        try:
            answer = await group.channels.call(
                group.replicas[broker_id].address,
                QUERY_OFFSETS,
                broker_pb2.QueryOffsetsRequest(
                    group=READERS, queues=[broker_pb2.TopicQueue(topic=TOPIC, queue_id=0)]
                ),
            )
        except errors.AerobeeError:
            return False
        found = answer.offsets[0].offset
        return True

    await until(told)
    return found


async def delete_topic(group: ReplicaGroup) -> None:
    await group.channels.call(
        group.nameserver,
        DELETE_TOPIC,
        nameserver_pb2.DeleteTopicRequest(cluster=group.cluster, name=TOPIC),
    )


async def shows(group: ReplicaGroup, broker_id: int, *bodies: bytes) -> None:
    """Until this replica shows exactly these messages."""

    async def holds() -> bool:
        try:
            return await group.pull_all(broker_id, TOPIC) == list(bodies)
        except errors.AerobeeError:
            return False

    await until(holds)


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_topic_made_again_has_nothing_of_the_former_one_on_any_replica(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        master = await grown(group)
        away, follower = sorted({0, 1, 2} - {master})
        await group.replicas[away].kill()
        await delete_topic(group)
        await group.create_topic(TOPIC)
        # The next master is one that followed the deletion.
        assert await group.send_until_stored(TOPIC, b"new") == master
        await shows(group, master, b"new")
        assert await committed(group, master) == -1
        await group.in_sync(master, follower)
        await group.replicas[master].kill()
        assert await group.send_until_stored(TOPIC, b"new 2") == follower
        await shows(group, follower, b"new", b"new 2")
        assert await committed(group, follower) == -1
        # And one that was away, for deletion and creation, or died right after.
        await group.replicas[away].start()
        await group.replicas[master].start()
        await group.in_sync(0, 1, 2)
        await group.hand_over(follower, away)
        assert await group.master(not_id=follower) == away
        await shows(group, away, b"new", b"new 2")
        assert await committed(group, away) == -1
        await until(lambda: _commits(group, away, 1))
        assert await group.send_until_stored(TOPIC, b"new 3") == away
        for broker_id in group.replicas:
            await shows(group, broker_id, b"new", b"new 2", b"new 3")
        await group.logs_equal(0, 1, 2)
        assert await committed(group, away) == 1


async def test_a_broker_that_was_away_empties_a_topic_that_was_made_again(
    tmp_path: Path, etcd: str
) -> None:
    """With all that is derived from the log built again as well."""
    async with replica_group(tmp_path, etcd, ids=(0,)) as group:
        await grown(group)
        replica = group.replicas[0]
        await replica.kill()
        await delete_topic(group)
        await replica.start()
        await asyncio.wait_for(_create_until_placed(group), 30)
        await shows(group, 0)
        assert await committed(group, 0) == -1
        await group.send_until_stored(TOPIC, b"new")
        await until(lambda: _commits(group, 0, 1))
        await replica.stop()
        for derived in ("consumequeue", "index"):
            shutil.rmtree(replica.folder / derived, ignore_errors=True)
        await replica.start()
        await group.master()
        await shows(group, 0, b"new")
        assert await committed(group, 0) == 1


@pytest.mark.thorough
@pytest.mark.slow
async def test_what_is_acknowledged_after_etcd_was_emptied_outlives_deletions_there(
    tmp_path: Path,
) -> None:
    """Its revisions count from 1 again, so that the broker's are higher for a long time."""
    etcd = EtcdProcess(tmp_path)
    etcd.start()
    try:
        async with replica_group(tmp_path, etcd.endpoint, ids=(0,)) as group:
            await grown(group)
            for number in range(50):
                await group.create_topic(f"another-{number}")
            etcd.kill()
            shutil.rmtree(tmp_path / "etcd")
            etcd.start()
            await group.restart_nameserver()
            await asyncio.wait_for(_create_until_placed(group), 30)
            await shows(group, 0, b"old", b"old", b"old")
            await delete_topic(group)
            await group.create_topic(TOPIC)
            await shows(group, 0)
            await group.send_until_stored(TOPIC, b"new")
            # A nameserver that knows too little of the past tells everything.
            for number in range(100):
                await group.create_topic(f"later-{number}")
            await group.restart_nameserver()
            await asyncio.wait_for(_create_until_placed(group, "last"), 30)
            await group.send_until_stored("last", b"heard of")
            await shows(group, 0, b"new")
    finally:
        etcd.stop()


async def _create_until_placed(group: ReplicaGroup, name: str = TOPIC) -> None:
    """A topic is created on brokers that live; the broker comes with the topic's former life."""
    while True:
        try:
            await group.create_topic(name)
        except errors.AerobeeError:
            await asyncio.sleep(0.02)
        else:
            return
