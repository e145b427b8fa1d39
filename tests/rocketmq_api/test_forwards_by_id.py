"""A message is given up by its id alone, as the client for C++ does it: it sends no handle.

It asks once a second until it is told OK, and does nothing else with the messages of that answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.rocketmq_api.nodes import Nodes, addresses
from tests.support.local_up import Up, running
from tests.support.v2_calls import V2, sent_message
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
CPP = {"x-mq-language": "CPP", "x-mq-client-version": "5.0.3", "x-mq-client-id": "cpp@1"}
OTHER = {**CPP, "x-mq-client-id": "cpp@2"}
TOPICS = ("at-its-broker", "elsewhere", "others")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("cluster"), "--brokers", "2") as up:
        for topic in TOPICS:
            up.run("topic", "create", topic, "--queues", "2", "--type", "FIFO")
            up.run("group", "configure", f"{topic}-readers", "--ordered")
        for topic in TOPICS:
            wait_until(lambda topic=topic: up.knows(topic), "the topic")
        yield up


@pytest.fixture
async def nodes(up: Up) -> AsyncIterator[Nodes]:
    nodes = Nodes(up)
    yield nodes
    await nodes.close()


async def held_by_a_push_consumer(
    nodes: Nodes, topic: str, message_id: str = "ID-1"
) -> tuple[V2, V2, v2.Message]:
    """The consumer at the broker that has the message, and at the other one."""
    where = addresses(await nodes.nameserver.route(topic))
    sent = sent_message(topic, message_id=message_id, message_group="g")
    assert (await nodes.nameserver.send(sent)).status.code == v2.OK
    clients = [nodes.connect(each, CPP) for each in where.values()]
    for at, other in (clients, clients[::-1]):
        found = await at.receive(topic, f"{topic}-readers", wait_s=5, auto_renew=True)
        if found.messages:
            return at, other, found.messages[0]
    raise AssertionError("nobody has the message")


def dead_letters(up: Up, group: str) -> list[dict[str, Any]]:
    done = up.run("dead-letter", "list", group, "--json", expect=(0, 1))
    letters: list[dict[str, Any]] = json.loads(done.stdout)["letters"]
    return letters


@pytest.mark.thorough
async def test_it_is_one_dead_letter_however_often_it_is_asked_for(up: Up, nodes: Nodes) -> None:
    topic, group = "at-its-broker", "at-its-broker-readers"
    at, _, message = await held_by_a_push_consumer(nodes, topic)
    for _ in range(2):
        assert await at.forward(group, message, by_id=True) == v2.OK
    (letter,) = dead_letters(up, group)
    assert (letter["topic"], letter["messageId"]) == (topic, "ID-1")
    assert await at.acknowledge(group, message) == [v2.OK]


@pytest.mark.thorough
async def test_any_node_finds_the_broker_that_has_it(up: Up, nodes: Nodes) -> None:
    topic, group = "elsewhere", "elsewhere-readers"
    nameserver = nodes.connect(up.document()["nameserver"], CPP)
    _, other, message = await held_by_a_push_consumer(nodes, topic)
    assert await other.forward(group, message, by_id=True) == v2.OK
    assert await nameserver.forward(group, message, by_id=True) == v2.OK
    assert len(dead_letters(up, group)) == 1
    _, _, message = await held_by_a_push_consumer(nodes, topic, "ID-2")
    assert await nameserver.forward(group, message, by_id=True) == v2.OK
    assert len(dead_letters(up, group)) == 2


@pytest.mark.thorough
async def test_nobody_gives_up_what_another_client_has(up: Up, nodes: Nodes) -> None:
    topic, group = "others", "others-readers"
    at, other, message = await held_by_a_push_consumer(nodes, topic)
    for address in (up.document()["nameserver"], *addresses(await at.route(topic)).values()):
        stranger = nodes.connect(address, OTHER)
        assert await stranger.forward(group, message, by_id=True) == v2.INVALID_RECEIPT_HANDLE
    unknown = sent_message(topic, message_id="ID-9")
    for client in (at, other):
        assert await client.forward(group, unknown, by_id=True) == v2.INVALID_RECEIPT_HANDLE
    assert dead_letters(up, group) == []
    assert await at.acknowledge(group, message) == [v2.OK]
