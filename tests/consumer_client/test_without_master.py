"""What a member does while its broker group has no master: who may be sure of its leases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from aerobee.consumer_client import ConsumerOptions, PushConsumer, ReceivedMessage, StartFrom
from aerobee.v1 import common_pb2, nameserver_pb2
from tests.support.real_brokers import RealCluster

Eventually = Callable[..., Awaitable[None]]

OPTIONS = ConsumerOptions(session_timeout_ms=2_000, commit_interval_ms=100)
BEYOND_SESSION_S = 3.5

SLAVE = nameserver_pb2.BrokerEndpoint(
    identity=common_pb2.BrokerIdentity(broker_name="broker-a", broker_id=1),
    address="127.0.0.1:9",
    role=common_pb2.SLAVE,
)
"""A replica that is shown alive; nobody answers there."""


def member(cluster: RealCluster, bodies: list[bytes]) -> PushConsumer:
    def listen(messages: Sequence[ReceivedMessage]) -> None:
        bodies.extend(message.body for message in messages)

    return PushConsumer(
        cluster.address, "g", listen, start_from=StartFrom.FIRST, options=OPTIONS
    ).subscribe("single")


async def lose_master(cluster: RealCluster) -> None:
    await cluster.brokers["broker-a"].stop()
    await cluster.nameserver.publish()


async def test_leases_outlast_the_session_while_nobody_could_grant_the_queues(
    cluster: RealCluster, eventually: Eventually
) -> None:
    cluster.nameserver.slaves.append(SLAVE)
    bodies: list[bytes] = []
    consumer = member(cluster, bodies)
    async with consumer:
        await eventually(lambda: consumer.statistics().queues)
        epoch = consumer.statistics().queues[0].lease_epoch
        await lose_master(cluster)
        await asyncio.sleep(BEYOND_SESSION_S)
        assert consumer.statistics().queues[0].lease_epoch == epoch
        await cluster.brokers["broker-a"].start()
        await cluster.nameserver.publish()
        await cluster.send("single", 0, [b"after"])
        await eventually(lambda: bodies == [b"after"])
        assert consumer.statistics().queues[0].lease_epoch == epoch
        assert consumer.statistics().queues_lost == 0
    assert await cluster.committed("g") == {("single", 0): 1}


@pytest.mark.parametrize("why", ["stale", "unreachable", "no replica alive"])
async def test_a_member_that_cannot_be_sure_of_that_stops_with_its_session(
    cluster: RealCluster, eventually: Eventually, why: str
) -> None:
    if why != "no replica alive":
        cluster.nameserver.slaves.append(SLAVE)
    consumer = member(cluster, [])
    async with consumer:
        await eventually(lambda: consumer.statistics().queues)
        cluster.nameserver.stale = why == "stale"
        await lose_master(cluster)
        if why == "unreachable":
            await asyncio.sleep(0.1)
            await cluster.nameserver.stop()
        await eventually(lambda: consumer.statistics().queues_lost == 1, timeout_s=2.2)
        assert consumer.statistics().queues == ()


async def test_a_master_that_the_route_replaces_is_left_although_it_still_answers(
    cluster: RealCluster, eventually: Eventually
) -> None:
    """A process that was cut off from everything but this member."""
    consumer = member(cluster, [])
    async with consumer:
        await eventually(lambda: consumer.statistics().queues)
        elsewhere = nameserver_pb2.BrokerEndpoint()
        elsewhere.CopyFrom(SLAVE)
        elsewhere.role, elsewhere.epoch = common_pb2.MASTER, 7
        cluster.nameserver.slaves.append(elsewhere)
        await cluster.nameserver.publish()
        # Its heartbeats would be acknowledged there for ever.
        await eventually(lambda: consumer.statistics().queues_lost == 1, timeout_s=2.5)
