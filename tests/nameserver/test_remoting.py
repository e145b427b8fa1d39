"""What a nameserver answers over remoting besides the routes of topics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.rocketmq_remoting.codes import Code
from aerobee.v1 import access_pb2, access_pb2_grpc
from aerobee.v1 import nameserver_pb2 as pb
from tests.nameserver.conftest import Nameserver
from tests.support.remoting_peer import Peer, object_of, peer_at


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


async def test_names_of_the_cluster_and_of_groups_have_routes(server: Any, cluster: str) -> None:
    """Tools create topics where such a name leads, and wait for brokers by it."""
    async with peer_at(server.port) as peer:
        found = object_of(await peer.done(105, topic=cluster))
        assert queues_of(found) == {"broker-a": 1, "broker-b": 1}
        assert all(each["cluster"] == cluster for each in found["brokerDatas"])
        assert queues_of(object_of(await peer.done(105, topic="broker-b"))) == {"broker-b": 1}
        assert object_of(await peer.done(206)) == {"topicList": []}
        # A topic of that name is itself.
        request = pb.CreateTopicRequest(name="broker-b", queues=4)
        await server.stub.CreateTopic(request)
        found = object_of(await peer.done(105, topic="broker-b"))
        assert queues_of(found) == {"broker-a": 2, "broker-b": 2}


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


# ------------------------------------------------------------------------------------ users


@pytest.fixture
async def keeper(
    shared_etcd: Any, start_nameserver: Any, tmp_path: Path
) -> AsyncIterator[tuple[Nameserver, Peer]]:
    """A nameserver that can seal secrets."""
    file = tmp_path / "cluster-secret"
    file.write_text("cluster-secret-of-a-test-" + "x" * 16)
    server: Nameserver = await start_nameserver(shared_etcd.endpoint, secret_file=str(file))
    async with peer_at(server.port) as peer:
        yield server, peer


def policies(*entries: tuple[str, str, str], kind: str | None = "Custom") -> bytes:
    said = [
        {"resource": resource, "actions": actions.split(","), "decision": decision}
        for resource, actions, decision in entries
    ]
    return json.dumps({"policies": [{"policyType": kind, "entries": said}]}).encode()


async def shown(peer: Peer, user: str) -> set[tuple[str, ...]]:
    """A user's policies as tools see them."""
    found = object_of(await peer.done(3009, subject=f"User:{user}"))
    return {
        (each["policyType"], entry["resource"], ",".join(entry["actions"]), entry["decision"])
        for each in found["policies"]
        for entry in each["entries"]
    }


async def test_tools_change_users(keeper: tuple[Nameserver, Peer]) -> None:
    server, peer = keeper
    own = access_pb2_grpc.AccessServiceStub(server.channel)
    new = {"username": "shop", "password": "first-secret-of-shop", "userType": "Normal"}
    await peer.done(3001, json.dumps(new).encode(), username="shop")
    assert object_of(await peer.done(3004, username="shop")) == {
        "userStatus": "enable",
        "userType": "Normal",
        "username": "shop",
    }
    for wrong in (new, {**new, "password": ""}, {**new, "userType": "King"}, {"password": 7}):
        answer = await peer.ask(3001, json.dumps(wrong).encode(), username="shop")
        assert (answer.code, bool(answer.remark)) == (Code.INVALID_PARAMETER, True)
        assert new["password"] not in answer.remark
    await peer.done(3002, b'{"password":"second-secret-of-shop"}', username="shop")
    (user,) = (await own.ListUsers(access_pb2.ListUsersRequest())).users
    assert user.secrets == 1  # the first one is void
    await peer.done(3002, b'{"userType":"Super","userStatus":"disable"}', username="shop")
    (user,) = (await own.ListUsers(access_pb2.ListUsersRequest())).users
    assert (user.super, user.enabled) == (True, False)
    await peer.done(3003, username="shop")
    assert json.loads((await peer.done(3005)).body) == []
    assert (await peer.ask(3003, username="shop")).code == Code.INVALID_PARAMETER


async def test_tools_change_policies(keeper: tuple[Nameserver, Peer]) -> None:
    _, peer = keeper
    await peer.done(3001, b'{"password":"a-secret-of-shop-here"}', username="shop")
    subject = "User:shop"
    two = policies(("Topic:orders", "Pub,Sub", "Allow"), ("Group:g", "Sub", "Allow"))
    await peer.done(3006, two, subject=subject)
    await peer.done(3007, policies(("Topic:orders", "Pub", "Deny")), subject=subject)
    await peer.done(3006, policies(("Topic:*", "Sub", "Allow"), kind="Default"), subject=subject)
    assert await shown(peer, "shop") == {
        ("Custom", "Topic:orders", "Pub", "Deny"),
        ("Custom", "Group:g", "Sub", "Allow"),
        ("Default", "Topic:*", "Sub", "Allow"),
    }
    await peer.done(3008, subject=subject, policyType="Default", resource="Topic:*")
    await peer.done(3008, subject=subject, resource="Group:g")
    assert await shown(peer, "shop") == {("Custom", "Topic:orders", "Pub", "Deny")}
    for wrong in (
        policies(("Topic:orders", "Fly", "Allow")),
        policies(("Topic:orders", "Pub", "Maybe")),
        policies(("orders", "Pub", "Allow")),
        policies(("Topic:orders", "Pub", "Allow"), kind="King"),
        policies(),
    ):
        assert (await peer.ask(3006, wrong, subject=subject)).code == Code.INVALID_PARAMETER
    await peer.done(3008, subject=subject)
    assert await shown(peer, "shop") == set()
    assert (await peer.ask(3008, subject="User:no")).code == Code.INVALID_PARAMETER
    assert (await peer.ask(3006, two, subject="User:no")).code == Code.INVALID_PARAMETER
