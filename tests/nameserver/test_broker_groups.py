"""Broker groups are closed, opened again and removed; routes and placement follow."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import KeyValue, Put
from aerobee.nameserver.stored import Keys, ReplicaSet, SetState
from aerobee.v1 import nameserver_pb2 as pb


async def refused(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.details() or ""


async def route(server: Any, topic: str) -> pb.TopicRoute:
    answer = await server.stub.QueryRoute(pb.QueryRouteRequest(topics=[topic]))
    return answer.routes[0]  # type: ignore[no-any-return]


async def close(server: Any, name: str) -> pb.GroupRecord:
    return await server.stub.CloseBrokerGroup(  # type: ignore[no-any-return]
        pb.CloseBrokerGroupRequest(broker_name=name)
    )


async def remove(server: Any, name: str) -> int:
    request = pb.RemoveBrokerGroupRequest(broker_name=name)
    return (await server.stub.RemoveBrokerGroup(request)).topics  # type: ignore[no-any-return]


@pytest.fixture
async def two(shared_etcd: Any, start_nameserver: Any, make_replica: Any) -> tuple[Any, Any, Any]:
    """A nameserver and two broker groups with topic `t`, two queues on each."""
    server = await start_nameserver(shared_etcd.endpoint)
    a = make_replica(0, "a1", lease_ms=30_000)
    b = make_replica(0, "b1", name="broker-b", address="127.0.0.1:7", lease_ms=30_000)
    await a.connect(server)
    await b.connect(server)
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="t", queues=4))
    return server, a, b


async def test_a_closed_group_is_in_routes_as_such_and_gets_no_queues(
    two: tuple[Any, Any, Any],
) -> None:
    server, a, b = two
    record = await close(server, "broker-b")
    assert record.state == pb.BROKER_GROUP_CLOSED
    shown = await route(server, "t")
    assert shown.closed == ["broker-b"]
    assert dict(shown.topic.queues_by_broker) == {"broker-a": 2, "broker-b": 2}
    assert {each.identity.broker_name for each in shown.brokers} == {"broker-a", "broker-b"}
    assert (await route(server, "%RETRY%g")).closed == ["broker-b"]
    # Its brokers are told at once, and nobody else's are.
    await b.until(lambda: b.last.group.state == pb.BROKER_GROUP_CLOSED)
    assert a.last.group.state == pb.BROKER_GROUP_OPEN
    new = await server.stub.CreateTopic(pb.CreateTopicRequest(name="new", queues=3))
    assert dict(new.queues_by_broker) == {"broker-a": 3}
    grown = await server.stub.UpdateTopic(pb.UpdateTopicRequest(name="t", queues=6))
    assert dict(grown.queues_by_broker) == {"broker-a": 4, "broker-b": 2}

    opened = await server.stub.OpenBrokerGroup(pb.OpenBrokerGroupRequest(broker_name="broker-b"))
    assert opened.state == pb.BROKER_GROUP_OPEN
    assert (await route(server, "t")).closed == []


async def test_the_last_open_queues_of_a_topic_are_not_closed(two: tuple[Any, Any, Any]) -> None:
    server, _, _ = two
    await close(server, "broker-b")
    assert (await refused(close(server, "broker-a"))).startswith(
        "t would have no queue that takes messages"
    )
    assert "no broker group 'broker-c'" in await refused(close(server, "broker-c"))


async def test_a_removed_group_leaves_all_topics_and_cannot_come_back(
    two: tuple[Any, Any, Any], make_replica: Any
) -> None:
    server, _, b = two
    assert "is open" in await refused(remove(server, "broker-b"))
    await close(server, "broker-b")
    assert await remove(server, "broker-b") == 1
    assert dict((await route(server, "t")).topic.queues_by_broker) == {"broker-a": 2}
    assert dict((await route(server, "%RETRY%g")).topic.queues_by_broker) == {"broker-a": 1}
    # As often as one likes: a call may end before its answer comes.
    assert await remove(server, "broker-b") == 0
    request = pb.OpenBrokerGroupRequest(broker_name="broker-b")
    assert "is removed" in await refused(server.stub.OpenBrokerGroup(request))
    b.kill()
    again = b.restarted("b2")
    call = server.stub.Register()
    await call.write(again.heartbeat())
    assert "was removed from the cluster" in await refused(call.read())
    description = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
    assert [each.broker_name for each in description.groups] == ["broker-a"]
    assert [each.identity.broker_name for each in description.brokers] == ["broker-a"]


async def test_a_removed_group_is_told_so_on_its_stream(two: tuple[Any, Any, Any]) -> None:
    server, _, b = two
    await close(server, "broker-b")
    await remove(server, "broker-b")
    b.keep_beating()
    await b.until(lambda: b.call.done())
    assert "was removed from the cluster" in await b.call.details()


async def test_queues_of_a_topic_that_has_no_others_are_not_taken(
    two: tuple[Any, Any, Any], etcd: Etcd, cluster: str
) -> None:
    """Whatever came between closing and removing."""
    server, _, _ = two
    await close(server, "broker-b")
    alone = b'{"perm":6,"queuesByBroker":{"broker-b":2}}'
    done = await etcd.transaction({}, [Put(Keys(cluster).topic("t"), alone)])
    assert done.succeeded

    async def is_shown() -> bool:
        shown = await route(server, "t")
        return dict(shown.topic.queues_by_broker) == {"broker-b": 2}

    while not await is_shown():
        await asyncio.sleep(0.01)
    said = await refused(remove(server, "broker-b"))
    assert "topic 't' has queues only on broker-b" in said


def test_a_record_of_an_earlier_version_is_of_an_open_group() -> None:
    keys = Keys("c")
    value = b'{"epoch":1,"masterId":0,"masterInstance":"i"}'
    record = keys.decode(KeyValue(keys.replica_set("broker-a"), value, 1, 0))
    assert isinstance(record, ReplicaSet)
    assert record.state is SetState.OPEN
