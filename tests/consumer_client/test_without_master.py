"""What a member does while its broker group has no master."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aerobee.client_core import ClusterConnection, Offsets
from aerobee.consumer_client import (
    ConsumerConfig,
    MessageQueue,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.consumer_client.beginnings import StartPolicy
from aerobee.runtime import errors
from aerobee.v1 import common_pb2, nameserver_pb2
from tests.support.real_brokers import RealCluster
from tests.support.waiting import until

OPTIONS = ConsumerConfig(session_timeout_ms=2_000, commit_interval_ms=100)
LONG = ConsumerConfig(session_timeout_ms=6_000, commit_interval_ms=100)

SLAVE = nameserver_pb2.BrokerEndpoint(
    identity=common_pb2.BrokerIdentity(broker_name="broker-a", broker_id=1),
    address="127.0.0.1:9",
    role=common_pb2.SLAVE,
)
"""A replica that is shown alive; nobody answers there."""


def member(
    cluster: RealCluster, bodies: list[bytes], options: ConsumerConfig = OPTIONS
) -> PushConsumer:
    def listen(messages: Sequence[ReceivedMessage]) -> None:
        bodies.extend(message.body for message in messages)

    return PushConsumer(
        "g",
        listen,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=options,
    ).subscribe("single")


async def lose_master(cluster: RealCluster) -> None:
    await cluster.brokers["broker-a"].stop()
    await cluster.nameserver.publish()


@pytest.mark.slow
async def test_leases_are_kept_over_a_time_without_master_that_is_shorter_than_the_session(
    cluster: RealCluster,
) -> None:
    cluster.nameserver.slaves.append(SLAVE)
    bodies: list[bytes] = []
    consumer = member(cluster, bodies, LONG)
    async with consumer:
        await until(lambda: consumer.statistics().queues)
        epoch = consumer.statistics().queues[0].lease_epoch
        await lose_master(cluster)
        await asyncio.sleep(2)
        assert consumer.statistics().queues[0].lease_epoch == epoch
        await cluster.brokers["broker-a"].start()
        await cluster.nameserver.publish()
        await cluster.send("single", 0, [b"after"])
        await until(lambda: bodies == [b"after"])
        assert consumer.statistics().queues[0].lease_epoch == epoch
        assert consumer.statistics().queues_lost == 0
    assert await cluster.committed("g") == {("single", 0): 1}


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("why", ["not stale", "stale", "unreachable", "no replica alive"])
async def test_without_a_master_a_member_stops_with_its_session_whatever_a_nameserver_says(
    cluster: RealCluster, why: str
) -> None:
    """A nameserver may lag behind, and a master it does not know of gives queues away."""
    if why != "no replica alive":
        cluster.nameserver.slaves.append(SLAVE)
    consumer = member(cluster, [])
    async with consumer:
        await until(lambda: consumer.statistics().queues)
        cluster.nameserver.stale = why == "stale"
        await lose_master(cluster)
        if why == "unreachable":
            await asyncio.sleep(0.1)
            await cluster.nameserver.stop()
        await until(lambda: consumer.statistics().queues_lost == 1, timeout_s=2.2)
        assert consumer.statistics().queues == ()


async def test_a_master_that_the_route_replaces_is_left_although_it_still_answers(
    cluster: RealCluster,
) -> None:
    """A process that was cut off from everything but this member."""
    consumer = member(cluster, [])
    async with consumer:
        await until(lambda: consumer.statistics().queues)
        elsewhere = nameserver_pb2.BrokerEndpoint()
        elsewhere.CopyFrom(SLAVE)
        elsewhere.role, elsewhere.epoch = common_pb2.MASTER, 7
        cluster.nameserver.slaves.append(elsewhere)
        await cluster.nameserver.publish()
        # Its heartbeats would be acknowledged there for ever.
        await until(lambda: consumer.statistics().queues_lost == 1, timeout_s=2.5)


@pytest.mark.thorough
@pytest.mark.parametrize("start_from", [StartFrom.FIRST, StartFrom.LAST, StartFrom.TIMESTAMP])
async def test_a_slave_is_never_asked_where_a_group_starts(
    two_brokers: RealCluster, start_from: StartFrom
) -> None:
    """It may know less: a group that begins at its end would be given what came before."""
    slave = nameserver_pb2.BrokerEndpoint()
    slave.CopyFrom(SLAVE)
    slave.address = two_brokers.brokers["broker-b"].address
    two_brokers.nameserver.slaves.append(slave)
    await lose_master(two_brokers)
    queue = MessageQueue("orders", "broker-a", 0)
    timestamp_ms = 1 if start_from is StartFrom.TIMESTAMP else None
    policy = StartPolicy(start_from, timestamp_ms)
    async with ClusterConnection(two_brokers.address) as connection:
        offsets = Offsets(connection, timeout_ms=700)
        assert queue in await offsets.bounds([queue]), "the slave would answer"
        with pytest.raises(errors.NoBrokerAvailable):
            await policy.start_offsets(offsets, [queue])
        await two_brokers.brokers["broker-a"].start()
        await two_brokers.nameserver.publish()
        assert await policy.start_offsets(Offsets(connection), [queue]) == {queue: 0}
