"""A cluster has no more topics and queues than its settings allow, and says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.nameserver.config import TopicPolicy
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import Topic
from aerobee.nameserver.topic_limits import TopicLimits
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Busy, LimitReached
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb
from tests.nameserver.test_topics import code_of
from tests.support.waiting import until


def topic(name: str, **queues: int) -> Topic:
    return Topic(name, perm=6, order=False, attributes={}, queues_by_broker=queues)


def test_automatic_creation_has_a_rate_and_says_when_to_come_again() -> None:
    clock = ManualClock()
    policy = TopicPolicy(auto_create_per_minute=6, auto_create_burst=2)
    limits = TopicLimits(policy, clock)

    def create(*, automatic: bool = True) -> None:
        with limits.creating(topic("new", a=1), RouteTable(1, {}, {}, {}), automatic=automatic):
            pass

    create()
    create()
    with pytest.raises(Busy, match=r"6 times a minute.*10000 ms") as refused:
        create()
    assert refused.value.retry_after_ms == 10_000
    create(automatic=False)
    clock.advance_ms(10_000)
    create()


def test_creations_under_way_count() -> None:
    limits = TopicLimits(TopicPolicy(topics_max=2), ManualClock())
    known = RouteTable(1, {}, {}, {"old": topic("old", a=1)})
    with (
        limits.creating(topic("new", a=1), known, automatic=False),
        pytest.raises(LimitReached),
        limits.creating(topic("other", a=1), known, automatic=False),
    ):
        pass
    with limits.creating(topic("other", a=1), known, automatic=False):
        pass


@pytest.fixture
async def start(shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any) -> Any:
    async def started(**policy: int) -> Any:
        server = await start_nameserver(shared_etcd.endpoint, **policy)
        await running(make_broker("broker-a"), server)

        async def is_known() -> bool:
            return len((await server.stub.DescribeCluster(pb.DescribeClusterRequest())).brokers) > 0

        await until(is_known)
        return server

    return started


async def query(server: Any, name: str) -> common_pb2.Status:
    request = pb.QueryRouteRequest(topics=[name], create_missing=True)
    answer = await server.stub.QueryRoute(request)
    return answer.routes[0].status  # type: ignore[no-any-return]


async def test_no_topic_beyond_the_limit_and_one_again_after_a_deletion(start: Any) -> None:
    server = await start(topics_max=3)
    for name in ("one", "two", "three"):
        await server.stub.CreateTopic(pb.CreateTopicRequest(name=name, queues=1))
    four = pb.CreateTopicRequest(name="four", queues=1)
    assert await code_of(server.stub.CreateTopic(four)) == common_pb2.LIMIT_REACHED
    status = await query(server, "four")
    assert status.code == common_pb2.LIMIT_REACHED
    for word in ("3 topics", "topics.topics_max", "delete"):
        assert word in status.message
    three = pb.CreateTopicRequest(name="three", queues=1)
    assert await code_of(server.stub.CreateTopic(three)) == common_pb2.TOPIC_EXISTS
    assert (await query(server, "three")).code == common_pb2.OK
    await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="one"))
    await server.stub.CreateTopic(four)


async def test_no_broker_group_gets_more_queues_than_it_may_have(start: Any) -> None:
    server = await start(queues_per_group_max=10)
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="one", queues=6))
    two = pb.CreateTopicRequest(name="two", queues=5)
    assert await code_of(server.stub.CreateTopic(two)) == common_pb2.LIMIT_REACHED
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="two", queues=4))
    grow = pb.UpdateTopicRequest(name="two", queues=5)
    assert await code_of(server.stub.UpdateTopic(grow)) == common_pb2.LIMIT_REACHED
    await server.stub.UpdateTopic(pb.UpdateTopicRequest(name="two", perm=4))


async def test_topics_come_automatically_only_while_there_are_few(start: Any) -> None:
    server = await start(auto_create_topics_max=2)
    for name in ("one", "two"):
        assert (await query(server, name)).code == common_pb2.OK
    assert (await query(server, "three")).code == common_pb2.LIMIT_REACHED
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="three", queues=1))


async def test_topics_that_come_automatically_too_fast_are_told_when_to_come_again(
    start: Any,
) -> None:
    server = await start(auto_create_per_minute=6, auto_create_burst=3)
    statuses = await asyncio.gather(*(query(server, f"t{number}") for number in range(20)))
    created = [status for status in statuses if status.code == common_pb2.OK]
    assert len(created) == 3
    for status in statuses:
        if status.code != common_pb2.OK:
            assert status.code == common_pb2.BUSY
            assert 0 < status.retry_after_ms <= 10_000
