"""What a nameserver answers over remoting besides the routes of topics."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.rocketmq_remoting.codes import Code
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.remoting_peer import object_of, peer_at


@pytest.fixture
async def server(shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any) -> Any:
    server = await start_nameserver(shared_etcd.endpoint)
    for name in ("broker-a", "broker-b"):
        await running(make_broker(name), server)
    return server


def queues_of(route: dict[str, Any]) -> dict[str, int]:
    return {each["brokerName"]: each["writeQueueNums"] for each in route["queueDatas"]}


async def test_new_topics_and_replies_have_routes_to_all_brokers(server: Any, cluster: str) -> None:
    async with peer_at(server.port) as peer:
        begins = object_of(await peer.done(105, topic="TBW102"))
        assert queues_of(begins) == {"broker-a": 4, "broker-b": 4}
        assert all("0" in each["brokerAddrs"] for each in begins["brokerDatas"])
        replies = object_of(await peer.done(105, topic=f"{cluster}_REPLY_TOPIC"))
        assert queues_of(replies) == {"broker-a": 1, "broker-b": 1}
        assert (await peer.ask(105, topic="another_REPLY_TOPIC")).code == Code.TOPIC_NOT_EXIST


async def test_topics_do_not_begin_by_sending_where_that_is_off(
    shared_etcd: Any, start_nameserver: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint, auto_create=False)
    async with peer_at(server.port) as peer:
        assert (await peer.ask(105, topic="TBW102")).code == Code.TOPIC_NOT_EXIST


async def test_tools_delete_topics_and_close_brokers(server: Any, cluster: str) -> None:
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=4))
    async with peer_at(server.port) as peer:
        assert object_of(await peer.done(224, cluster=cluster)) == {"topicList": ["orders"]}
        assert object_of(await peer.done(224, cluster="another")) == {"topicList": []}
        answer = await peer.done(205, brokerName="broker-a")
        assert answer.fields == {"wipeTopicCount": "1"}
        route = object_of(await peer.done(105, topic="orders"))
        perms = {each["brokerName"]: each["perm"] for each in route["queueDatas"]}
        assert perms == {"broker-a": 4, "broker-b": 6}
        assert queues_of(object_of(await peer.done(105, topic="TBW102"))) == {"broker-b": 4}
        assert (await peer.done(327, brokerName="broker-a")).fields == {"addTopicCount": "1"}
        assert (await peer.ask(205, brokerName="no")).code != Code.SUCCESS
        for _ in range(2):  # a broker may have done it already
            await peer.done(216, topic="orders")
        await peer.done(216, topic="%RETRY%billing")
        await peer.done(102, namespace="ORDER_TOPIC_CONFIG", key="orders")
        assert object_of(await peer.done(206)) == {"topicList": []}
