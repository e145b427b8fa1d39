"""Any node of a real cluster answers any call, and our own consumers read what was sent."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from aerobee.rocketmq_api.services.caller import FORWARDED_KEY
from aerobee.rocketmq_api.times import timestamp
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.rocketmq_api.nodes import Nodes, addresses
from tests.support.local_up import Up, running
from tests.support.transactions import end, half_message
from tests.support.v2_calls import codes, sent_message

pytestmark = pytest.mark.slow
GROUPS = [f"g{number}" for number in range(12)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two brokers and a nameserver."""
    with running(tmp_path_factory.mktemp("cluster"), "--brokers", "2") as up:
        for topic, kind in (
            ("t", "NORMAL"),
            ("fifo", "FIFO"),
            ("later", "DELAY"),
            ("once", "FIFO"),
            ("orders", "TRANSACTION"),
        ):
            up.run("topic", "create", topic, "--queues", "8", "--attribute", f"message.type={kind}")
        up.run("topic", "create", "read", "--queues", "4")
        yield up


@pytest.fixture
async def nodes(up: Up) -> AsyncIterator[Nodes]:
    nodes = Nodes(up)
    yield nodes
    await nodes.close()


def consumed(up: Up, topic: str, group: str, count: int) -> list[dict[str, Any]]:
    done = up.run("consume", topic, "--group", group, "--count", str(count), "--format", "json")
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_every_node_gives_the_same_route(up: Up, nodes: Nodes) -> None:
    route = await nodes.nameserver.route("t")
    assert [(q.broker.name, q.id) for q in route.message_queues] == [
        (name, number) for name in ("broker-a", "broker-b") for number in range(4)
    ]
    for address in addresses(route).values():
        assert await nodes.connect(address).route("t") == route
    answer = await nodes.nameserver.route("absent")
    assert answer.status.code == v2.TOPIC_NOT_FOUND


async def test_a_nameserver_knows_the_rules_of_groups(up: Up, nodes: Nodes) -> None:
    up.run("group", "configure", "in-order", "--ordered", "--retries-max", "4")
    every_queue = [(name, number) for name in ("broker-a", "broker-b") for number in range(4)]
    for group, is_ordered, attempts, queues in (
        ("billing", False, 17, [("broker-a", -1), ("broker-b", -1)]),
        ("in-order", True, 5, every_queue),
    ):
        resource = v2.Resource(name=group)
        request = service_pb2.QueryAssignmentRequest(topic=v2.Resource(name="t"), group=resource)
        answer = await nodes.nameserver.call("QueryAssignment", request)
        assert answer.status.code == v2.OK
        found = [(a.message_queue.broker.name, a.message_queue.id) for a in answer.assignments]
        assert found == queues
        stream = nodes.nameserver.telemetry()
        subscription = v2.Subscription(group=resource)
        settings = v2.Settings(client_type=v2.PUSH_CONSUMER, subscription=subscription)
        await stream.write(service_pb2.TelemetryCommand(settings=settings))
        told = (await stream.read()).settings
        assert told.subscription.fifo is is_ordered
        assert told.backoff_policy.max_attempts == attempts
        stream.cancel()


async def test_the_messages_of_a_group_stay_in_order_whichever_node_they_are_sent_to(
    up: Up, nodes: Nodes
) -> None:
    brokers = addresses(await nodes.nameserver.route("fifo"))
    clients = [nodes.nameserver, *(nodes.connect(each) for each in brokers.values())]
    count = 15
    for number in range(count):
        client = clients[number % len(clients)]
        batch = [
            sent_message(
                "fifo", f"{group}:{number}".encode(), f"{group}-{number}", message_group=group
            )
            for group in GROUPS
        ]
        # One request for messages of both brokers, and each by itself.
        answers = (
            [await client.send(*batch)]
            if number % 2
            else [await client.send(message) for message in batch]
        )
        for answer in answers:
            assert answer.status.code == v2.OK, answer
        entries = [entry for answer in answers for entry in answer.entries]
        assert [entry.message_id for entry in entries] == [f"{group}-{number}" for group in GROUPS]
    received = consumed(up, "fifo", "readers", count * len(GROUPS))
    orders: dict[str, list[int]] = {}
    for message in received:
        group, _, turn = body_of(message).partition(":")
        orders.setdefault(group, []).append(int(turn))
    assert orders == {group: list(range(count)) for group in GROUPS}


def body_of(message: dict[str, Any]) -> str:
    if "body" in message:
        return str(message["body"])
    return base64.b64decode(message["body_base64"]).decode()


async def test_a_nameserver_passes_a_send_on_with_all_that_is_in_it(up: Up, nodes: Nodes) -> None:
    message = sent_message("t", b"by the nameserver", "ID-N", tag="paid", keys=["order-7"])
    message.user_properties["carrier"] = "UA"
    answer = await nodes.nameserver.send(message)
    assert codes(answer.entries) == [v2.OK]
    (received,) = consumed(up, "t", "readers", 1)
    told = json.dumps(received)
    for part in ("by the nameserver", "paid", "order-7", "carrier", "UA"):
        assert part in told
    for refused, code in (
        (sent_message("t", message_group="g"), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (sent_message("absent"), v2.TOPIC_NOT_FOUND),
    ):
        assert (await nodes.nameserver.send(refused)).status.code == code


async def test_a_recall_finds_the_broker_where_the_message_waits(nodes: Nodes) -> None:
    route = await nodes.nameserver.route("later")
    clients = {name: nodes.connect(address) for name, address in addresses(route).items()}
    later = timestamp(int(time.time() * 1_000) + 3_600_000)
    for name, sender in clients.items():
        (other,) = (client for each, client in clients.items() if each != name)
        for number, client in enumerate((nodes.nameserver, other)):
            message_id = f"ID-{name}-{number}"
            message = sent_message("later", b"x", message_id, delivery_timestamp=later)
            answer = await sender.send(message)
            request = service_pb2.RecallMessageRequest(
                topic=v2.Resource(name="later"), recall_handle=answer.entries[0].recall_handle
            )
            answer = await client.call("RecallMessage", request)
            assert (answer.status.code, answer.message_id) == (v2.OK, message_id)


async def test_a_call_is_passed_on_once(nodes: Nodes) -> None:
    address = (await nodes.nameserver.route("once")).message_queues[0].broker.endpoints.addresses[0]
    forwarded = nodes.connect(
        f"{address.host}:{address.port}", {FORWARDED_KEY: "ipv4:10.0.0.7:50000"}
    )
    found = {
        (await forwarded.send(sent_message("once", message_group=group))).status.code
        for group in GROUPS
    }
    assert found == {v2.OK, v2.INTERNAL_SERVER_ERROR}


async def test_any_node_reads_any_queue_and_knows_its_groups_offsets(up: Up, nodes: Nodes) -> None:
    route = await nodes.nameserver.route("read")
    brokers = [nodes.connect(address) for address in addresses(route).values()]
    clients = [nodes.nameserver, *brokers]
    for number in range(8):
        await brokers[number % 2].send(sent_message("read", b"x", f"ID-{number}"))
    for client in clients:
        found = [await client.pull(queue) for queue in route.message_queues]
        assert [len(each.messages) for each in found] == [2] * 4
    billing = v2.Resource(name="billing")
    for number, queue in enumerate(route.message_queues):
        writer, *readers = clients[number % 3 :] + clients[: number % 3]
        update = service_pb2.UpdateOffsetRequest(group=billing, message_queue=queue, offset=1)
        assert (await writer.call("UpdateOffset", update)).status.code == v2.OK
        request = service_pb2.GetOffsetRequest(group=billing, message_queue=queue)
        for reader in readers:
            assert (await reader.call("GetOffset", request)).offset == 1
    (state,) = (each for each in up.json("group", "list") if each["group"] == "billing")
    assert state["lag"] == 4


async def test_a_transaction_ends_at_any_node(up: Up, nodes: Nodes) -> None:
    route = await nodes.nameserver.route("orders")
    everywhere = [nodes.nameserver, *map(nodes.connect, addresses(route).values())]
    names = []
    for number, begun_at in enumerate(everywhere):
        for other, ended_at in enumerate(everywhere):
            name = f"T-{number}-{other}"
            sent = await begun_at.send(half_message(name, name.encode()))
            assert codes(sent.entries) == [v2.OK]
            resolution = v2.ROLLBACK if number == other == 1 else v2.COMMIT
            assert (await end(ended_at, name, resolution)).message == "OK"
            # A repetition at another node finds the same.
            again = everywhere[(other + 1) % len(everywhere)]
            assert (await end(again, name, resolution)).message == "OK"
            names += [] if resolution == v2.ROLLBACK else [name]
    for node in everywhere:
        status = await end(node, "unknown", v2.COMMIT)
        assert status.code == v2.INVALID_TRANSACTION_ID
    found = consumed(up, "orders", "g-orders", len(names))
    assert sorted(each["body"] for each in found) == sorted(names)
