"""What a group's members sent back comes to the clients that poll for the topic it came from.

All topics of a group share one retry topic. A poll names a topic and the tags that it wants there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aerobee.consumer_client import ConsumerConfig, ConsumeResult, PushConsumer, StartFrom
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.support.grpcio_client import build_channel
from tests.support.real_brokers import RealBroker, RealCluster, RouteServer
from tests.support.v2_calls import V2
from tests.support.waiting import until

pytestmark = pytest.mark.slow
SENT_BACK_MS = 2_000
"""So that they come when the members are gone."""
QUICK = ConsumerConfig(session_timeout_ms=1_000, commit_interval_ms=100, release_timeout_ms=2_000)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    broker = await RealBroker(
        "broker-a",
        tmp_path / "broker-a",
        {"orders": 1, "refunds": 1},
        store_options={"delay_levels_ms": (SENT_BACK_MS,) * 18},  # type: ignore[dict-item]
    ).start()
    nameserver = await RouteServer([broker]).start()
    nameserver.has_retry_topics = True
    cluster = RealCluster({"broker-a": broker}, nameserver)
    for topic in ("orders", "refunds"):
        await cluster.send(topic, 0, [f"{topic} paid".encode()], tag="paid")
        await cluster.send(topic, 0, [f"{topic} void".encode()], tag="void")
    yield cluster
    await cluster.stop()


async def sent_back(cluster: RealCluster, group: str) -> None:
    """Members of the group fail on everything once, and leave."""
    consumer = PushConsumer(
        group,
        lambda messages: ConsumeResult.RETRY_LATER,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=QUICK,
    )
    consumer.subscribe("orders")
    consumer.subscribe("refunds")
    async with consumer:
        await until(lambda: consumer.statistics().sent_back >= 4)


async def acknowledged(
    client: V2, topic: str, count: int, tags: str = "*", sql: str | None = None
) -> list[bytes]:
    """The bodies of so many messages; refused polls are repeated, as clients do it."""
    bodies: list[bytes] = []
    async with asyncio.timeout(30):
        while len(bodies) < count:
            found = await client.receive(topic, "g", tags=tags, sql=sql, wait_s=5)
            if found.code == v2.PRECONDITION_FAILED:
                await asyncio.sleep(0.1)  # POP has not got the queue from the members yet
            for message in found.messages:
                assert message.topic.name == topic
                # The members' attempt counts.
                assert message.system_properties.delivery_attempt == 2
                bodies.append(message.body)
            if found.messages:
                assert set(await client.acknowledge("g", *found.messages)) == {v2.OK}
    return bodies


@pytest.mark.thorough
async def test_each_topic_s_messages_come_to_its_own_polls_by_its_own_tags(
    cluster: RealCluster,
) -> None:
    await sent_back(cluster, "g")
    async with build_channel(cluster.brokers["broker-a"].address) as channel:
        client = V2(channel)
        orders, refunds = await asyncio.gather(
            acknowledged(client, "orders", 1, "paid"), acknowledged(client, "refunds", 2)
        )
        assert orders == [b"orders paid"]
        assert sorted(refunds) == [b"refunds paid", b"refunds void"]
        for topic, tags in (("orders", "paid"), ("refunds", "*")):
            assert (await client.receive(topic, "g", tags=tags)).code == v2.MESSAGE_NOT_FOUND


@pytest.mark.thorough
async def test_an_expression_is_for_the_messages_that_came_from_its_topic(
    cluster: RealCluster,
) -> None:
    await sent_back(cluster, "g")
    async with build_channel(cluster.brokers["broker-a"].address) as channel:
        client = V2(channel)
        orders, refunds = await asyncio.gather(
            acknowledged(client, "orders", 1, sql="TAGS = 'void' AND RETRY_TOPIC IS NOT NULL"),
            acknowledged(client, "refunds", 2),
        )
        assert orders == [b"orders void"]
        assert sorted(refunds) == [b"refunds paid", b"refunds void"]
        assert (await client.receive("orders", "g", wait_s=1)).code == v2.MESSAGE_NOT_FOUND


@pytest.mark.thorough
async def test_a_topic_that_nobody_polls_loses_nothing(cluster: RealCluster) -> None:
    await sent_back(cluster, "g")
    async with build_channel(cluster.brokers["broker-a"].address) as channel:
        client = V2(channel)
        assert sorted(await acknowledged(client, "orders", 2)) == [b"orders paid", b"orders void"]
        assert (await client.receive("orders", "g")).code == v2.MESSAGE_NOT_FOUND
        # Much later, also when nothing new comes: the poll finds what waits.
        refunds = await acknowledged(client, "refunds", 1, "void")
        assert refunds == [b"refunds void"]
