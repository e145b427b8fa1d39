"""Messages are received, and finished or not, by way of any node of a real cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest

from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.rocketmq_api.nodes import Nodes, addresses
from tests.support.local_up import Up, running
from tests.support.v2_calls import V2, Received, sent_message
from tests.support.waiting import until, wait_until

pytestmark = pytest.mark.slow

TOPICS = (
    ("any-node", "NORMAL"),
    ("wakes", "NORMAL"),
    ("left", "NORMAL"),
    ("stale", "NORMAL"),
    ("given-up", "NORMAL"),
    ("in-order", "FIFO"),
    ("leased", "NORMAL"),
    ("moved", "NORMAL"),
    ("tagged", "NORMAL"),
    ("queried", "NORMAL"),
    ("refused", "NORMAL"),
    ("two-readers", "NORMAL"),
    ("again", "NORMAL"),
)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("cluster"), "--brokers", "2") as up:
        for topic, kind in TOPICS:
            up.run("topic", "create", topic, "--queues", "2", "--type", kind)
        for topic, _ in TOPICS:
            wait_until(lambda topic=topic: up.knows(topic), "the topic")
        yield up


@pytest.fixture
async def nodes(up: Up) -> AsyncIterator[Nodes]:
    nodes = Nodes(up)
    yield nodes
    await nodes.close()


async def two_brokers(nodes: Nodes, topic: str) -> list[V2]:
    return [
        nodes.connect(address)
        for address in addresses(await nodes.nameserver.route(topic)).values()
    ]


@pytest.mark.thorough
async def test_any_node_passes_on_what_is_received_and_what_is_said_of_it(nodes: Nodes) -> None:
    first, second = await two_brokers(nodes, "any-node")
    message = sent_message("any-node", b"body", tag="paid", keys=["order-7"])
    message.user_properties["carrier"] = "UA"
    assert (await first.send(message)).status.code == v2.OK
    # A poll at a broker is for that broker's queues; the nameserver takes any that has some.
    found = await first.receive("any-node", "readers")
    assert found.code == v2.OK
    (received,) = found.messages
    system = received.system_properties
    assert (received.body, system.message_id, system.tag) == (b"body", "ID-1", "paid")
    assert (list(system.keys), system.delivery_attempt) == (["order-7"], 1)
    assert dict(received.user_properties) == {"carrier": "UA"}
    assert await second.acknowledge("readers", received) == [v2.OK]
    assert await nodes.nameserver.acknowledge("readers", received) == [v2.OK]
    assert (await first.receive("any-node", "readers")).code == v2.MESSAGE_NOT_FOUND


@pytest.mark.thorough
async def test_a_poll_that_waits_gets_what_comes(nodes: Nodes) -> None:
    first, second = await two_brokers(nodes, "wakes")
    for sender, poller in ((first, first), (second, second)):
        poll = asyncio.create_task(poller.receive("wakes", "readers", wait_s=20))
        await asyncio.sleep(0.3)  # it waits by now, and if not the test is easier
        assert not poll.done()
        await sender.send(sent_message("wakes"))
        async with asyncio.timeout(3):
            found = await poll
        assert found.ids == ["ID-1"]
        assert await poller.acknowledge("readers", *found.messages) == [v2.OK]


async def test_two_polls_share_what_comes(nodes: Nodes) -> None:
    first, _ = await two_brokers(nodes, "two-readers")
    polls = [
        asyncio.create_task(first.receive("two-readers", "readers", wait_s=20, count=1))
        for _ in range(2)
    ]
    await asyncio.sleep(0.3)
    for number in range(2):
        await first.send(sent_message("two-readers", message_id=f"ID-{number}"))
    async with asyncio.timeout(3):
        found = await asyncio.gather(*polls)
    assert sorted(each.ids for each in found) == [["ID-0"], ["ID-1"]]


async def test_a_poll_that_was_given_up_takes_nothing_with_it(nodes: Nodes) -> None:
    first, _ = await two_brokers(nodes, "left")
    poll = asyncio.create_task(first.receive("left", "readers", wait_s=20))
    await asyncio.sleep(0.3)
    poll.cancel()
    await asyncio.wait({poll})
    await first.send(sent_message("left"))
    found = await first.receive("left", "readers")
    assert found.ids == ["ID-1"]
    assert found.messages[0].system_properties.delivery_attempt == 1


async def test_a_handle_that_was_changed_is_good_no_more(nodes: Nodes) -> None:
    first, second = await two_brokers(nodes, "stale")
    await first.send(sent_message("stale"))
    (message,) = (await first.receive("stale", "readers")).messages
    changed = await second.change("readers", message, 30)
    assert changed.status.code == v2.OK
    assert await second.acknowledge("readers", message) == [v2.INVALID_RECEIPT_HANDLE]
    assert (await first.change("readers", message, 30)).status.code == v2.INVALID_RECEIPT_HANDLE
    message.system_properties.receipt_handle = changed.receipt_handle
    changed = await nodes.nameserver.change("readers", message, 0)
    assert changed.status.code == v2.OK
    (again,) = (await first.receive("stale", "readers")).messages
    assert again.system_properties.delivery_attempt == 2
    for nonsense in ("", "x", again.system_properties.receipt_handle[:-1]):
        message.system_properties.receipt_handle = nonsense
        assert await first.acknowledge("readers", message) == [v2.INVALID_RECEIPT_HANDLE]
    assert await first.acknowledge("others", again) == [v2.INVALID_RECEIPT_HANDLE]
    assert await first.acknowledge("readers", again) == [v2.OK]


async def test_what_is_not_acknowledged_in_time_comes_again(nodes: Nodes) -> None:
    first, _ = await two_brokers(nodes, "again")
    await first.send(sent_message("again"))
    (message,) = (await first.receive("again", "readers")).messages
    found = Received()
    while not found.messages:
        found = await first.receive("again", "readers")
    (again,) = found.messages
    assert again.system_properties.delivery_attempt == 2
    assert await first.acknowledge("readers", message) == [v2.INVALID_RECEIPT_HANDLE]
    assert await first.acknowledge("readers", again) == [v2.OK]


async def test_what_its_receiver_gives_up_is_one_dead_letter(up: Up, nodes: Nodes) -> None:
    first, second = await two_brokers(nodes, "given-up")
    await first.send(sent_message("given-up", b"hard"))
    (message,) = (await first.receive("given-up", "strict")).messages
    assert await second.forward("strict", message) == v2.OK
    assert await nodes.nameserver.forward("strict", message) == v2.OK
    (letter,) = json.loads(up.run("dead-letter", "list", "strict", "--json").stdout)["letters"]
    assert letter["topic"] == "given-up"
    assert (await first.receive("given-up", "strict")).code == v2.MESSAGE_NOT_FOUND


@pytest.mark.thorough
async def test_a_message_group_goes_on_when_its_message_is_finished(up: Up, nodes: Nodes) -> None:
    up.run("group", "configure", "orderly", "--ordered")
    first, second = await two_brokers(nodes, "in-order")
    for number in range(3):
        for group in "ab":
            message = sent_message("in-order", message_id=f"{group}{number}", message_group=group)
            assert (await nodes.nameserver.send(message)).status.code == v2.OK
    seen: list[str] = []

    async def read(broker: V2) -> None:
        while len(seen) < 6:
            for message in (await broker.receive("in-order", "orderly", count=1)).messages:
                assert await first.acknowledge("orderly", message) == [v2.OK]
                seen.append(message.system_properties.message_id)

    async with asyncio.timeout(30):
        await asyncio.gather(read(first), read(second))
    for group in "ab":
        turns = [each for each in seen if each[0] == group]
        assert turns == [f"{group}{turn}" for turn in range(3)]


async def test_only_matching_tags_come_and_the_rest_is_finished(up: Up, nodes: Nodes) -> None:
    first, _ = await two_brokers(nodes, "tagged")
    for number, tag in enumerate(("paid", "cancelled", "refunded")):
        await first.send(sent_message("tagged", message_id=f"ID-{number}", tag=tag))
    seen: list[str] = []
    while len(seen) < 2:
        found = await first.receive("tagged", "choosy", tags="paid || refunded")
        assert found.messages
        await first.acknowledge("choosy", *found.messages)
        seen += found.ids
    assert sorted(seen) == ["ID-0", "ID-2"]

    wait_until(lambda: lag(up, "choosy") == 0, "the committed offset")


def lag(up: Up, group: str) -> int:
    (state,) = (each for each in up.json("group", "list") if each["group"] == group)
    return int(state["lag"])


async def test_only_what_an_expression_is_true_for_comes_and_the_rest_is_finished(
    up: Up, nodes: Nodes
) -> None:
    first, second = await two_brokers(nodes, "queried")
    for number in range(40):
        message = sent_message("queried", message_id=f"ID-{number}")
        message.user_properties.update({"a": str(number), "b": "xyz"[number % 3]})
        await first.send(message)
    expression = "a > 5 AND b IN ('x', 'y')"
    wanted = {f"ID-{number}" for number in range(6, 40) if number % 3 != 2}
    seen: list[str] = []
    while len(seen) < len(wanted):
        # Any node compiles it; the broker that has the queue judges.
        for client in (first, nodes.nameserver):
            found = await client.receive("queried", "selective", count=4, sql=expression, wait_s=1)
            assert found.code in (v2.OK, v2.MESSAGE_NOT_FOUND)
            if found.messages:
                await client.acknowledge("selective", *found.messages)
            seen += found.ids
    assert len(seen) == len(set(seen))
    assert set(seen) == wanted
    wait_until(lambda: lag(up, "selective") == 0, "the committed offset")
    for client in (second, nodes.nameserver):
        refused = await client.receive("queried", "selective", sql="a > 5 AND")
        assert refused.code == v2.ILLEGAL_FILTER_EXPRESSION
        assert "at its end" in refused.words


async def test_a_queue_is_either_leased_or_popped(up: Up, nodes: Nodes) -> None:
    first, _ = await two_brokers(nodes, "leased")
    await first.send(sent_message("leased"))
    (message,) = (await first.receive("leased", "both")).messages
    done = await asyncio.to_thread(
        up.run, "consume", "leased", "--group", "both", "--idle-timeout", "2", expect=range(9)
    )
    assert not done.stdout
    assert await first.acknowledge("both", message) == [v2.OK]


@pytest.mark.thorough
async def test_a_queue_goes_from_pop_to_a_member_and_back(up: Up, nodes: Nodes) -> None:
    first, second = await two_brokers(nodes, "moved")
    messages = [sent_message("moved", b"%d" % number, f"ID-{number}") for number in range(6)]
    for message in messages[:3]:
        await first.send(message)
    found: list[v2.Message] = []
    for client in (first, second):
        found += (await client.receive("moved", "movers", wait_s=1)).messages
    assert sorted(each.body for each in found) == [b"0", b"1", b"2"]
    for message in found:
        assert await nodes.nameserver.acknowledge("movers", message) == [v2.OK]
    gone = service_pb2.NotifyClientTerminationRequest(group=v2.Resource(name="movers"))
    for client in (first, second, nodes.nameserver):
        await client.call("NotifyClientTermination", gone)
    await first.send(messages[3])
    done = await asyncio.to_thread(up.run, "consume", "moved", "--group", "movers", "--count", "1")
    assert done.stdout.split()[-1] == "3"
    await second.send(messages[4])
    found = []

    async def has_come() -> bool:
        for client in (first, second):
            found.extend((await client.receive("moved", "movers", wait_s=2)).messages)
        return bool(found)

    await until(has_come)  # the brokers hear one after the other that the member is gone
    assert [each.body for each in found] == [b"4"]


async def test_requests_that_cannot_be_met_are_refused_by_name(nodes: Nodes) -> None:
    for client in (nodes.nameserver, *(await two_brokers(nodes, "refused"))):
        found = await client.receive("absent", "readers")
        assert (found.code, found.messages) == (v2.TOPIC_NOT_FOUND, [])
        found = await client.receive("refused", "readers", invisible_s=1)
        assert (found.code, found.messages) == (v2.ILLEGAL_INVISIBLE_TIME, [])
