"""Messages that wait at several real brokers: listed, recalled, delivered now, moved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aerobee.client_core import ClusterConnection, MessageQueue, Schedules
from aerobee.client_core.message import Message
from aerobee.cluster_view.methods import LIST_SCHEDULED, PULL, RECALL_SCHEDULED
from aerobee.producer_client import Producer, Receipt
from aerobee.runtime import errors
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2
from tests.support.fake_cluster import BrokerAt, FakeNameserver, FakeTopic
from tests.support.real_brokers import RealBroker

NAMES = ("broker-a", "broker-b")
HOUR = timedelta(hours=1)


@dataclass
class Cluster:
    """`orders` and `bills` on both brokers, one queue each."""

    brokers: dict[str, RealBroker]
    connection: ClusterConnection
    producer: Producer

    @property
    def schedules(self) -> Schedules:
        return Schedules(self.connection, timeout_ms=2_000)

    async def send(
        self, body: bytes, *, broker: str = "broker-a", topic: str = "orders", **arguments: Any
    ) -> Receipt:
        queue = MessageQueue(topic, broker, 0)
        return await self.producer.send(Message(topic, body, **arguments), queue=queue)

    async def arrived(self, broker: str = "broker-a", *, wait_ms: int = 0) -> list[bytes]:
        """What a consumer sees of `orders`."""
        request = broker_pb2.PullRequest(topic="orders", queue_id=0, group="g", wait_ms=wait_ms)
        result = await self.connection.channels.call(self.brokers[broker].address, PULL, request)
        return [record.body for record in iterate_records(result.records)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    brokers = {
        name: await RealBroker(name, tmp_path / name, {"orders": 1, "bills": 1}).start()
        for name in NAMES
    }
    nameserver = await FakeNameserver(
        brokers={name: BrokerAt(broker.address) for name, broker in brokers.items()},
        topics={topic: FakeTopic(dict.fromkeys(NAMES, 1)) for topic in ("orders", "bills")},
    ).start()
    async with (
        ClusterConnection(nameserver.address) as connection,
        Producer(connection=connection) as producer,
    ):
        yield Cluster(brokers, connection, producer)
    await nameserver.stop()
    for broker in brokers.values():
        await broker.stop()


async def test_all_that_waits_is_listed_in_the_order_of_time(cluster: Cluster) -> None:
    second = await cluster.send(b"second", delay=2 * HOUR, tag="x", keys=["order-7", "k"])
    first = await cluster.send(b"first", delay=HOUR, broker="broker-b")
    await cluster.send(b"by level", delay_level=18, topic="bills")
    await cluster.send(b"plain")
    found = await cluster.schedules.list()
    assert (found.more, found.unanswered) == (False, ())
    by_id = {waiting.message_id: waiting for waiting in found.messages}
    assert [waiting.queue.topic for waiting in found.messages].count("bills") == 1
    times = [waiting.deliver_ms for waiting in found.messages]
    assert times == sorted(times)
    assert len(times) == 3
    waiting = by_id[second.message_id]
    assert waiting.queue == MessageQueue("orders", "broker-a", 0)
    listed = RecallHandle.decode(waiting.recall_handle)
    assert listed.content, "it tells the message from others with its id"
    assert replace(listed, content="") == RecallHandle.decode(second.recall_handle)
    assert (waiting.tag, waiting.keys, waiting.body_bytes) == ("x", ("order-7", "k"), 6)
    assert waiting.store_timestamp_ms == second.store_timestamp_ms
    assert by_id[first.message_id].queue.broker_name == "broker-b"
    (level,) = [each for each in found.messages if each.delay_level]
    assert (level.delay_level, level.recall_handle) == (18, "")


async def test_a_list_is_bounded_by_topic_key_time_and_number(cluster: Cluster) -> None:
    receipts = [
        await cluster.send(
            b"%d" % number,
            broker=NAMES[number % 2],
            topic="orders" if number < 8 else "bills",
            keys=[f"key-{number % 4}"],
            delay=HOUR * (number + 1),
        )
        for number in range(10)
    ]
    ids = [receipt.message_id for receipt in receipts]
    due_ms = [RecallHandle.decode(receipt.recall_handle).deliver_ms for receipt in receipts]

    async def listed(topic: str = "", **bounds: Any) -> tuple[list[str], bool]:
        found = await cluster.schedules.list(topic, **bounds)
        return [waiting.message_id for waiting in found.messages], found.more

    assert await listed() == (ids, False)
    assert await listed("bills") == (ids[8:], False)
    assert await listed(key="key-1") == ([ids[1], ids[5], ids[9]], False)
    assert await listed(key=ids[3]) == ([ids[3]], False)
    assert await listed(begin_ms=due_ms[2], end_ms=due_ms[5]) == (ids[2:5], False)
    assert await listed(max_messages=3) == (ids[:3], True)
    assert await listed("nothing") == ([], False)


async def test_a_list_comes_in_pages(cluster: Cluster) -> None:
    ids = [(await cluster.send(b"x", delay=HOUR)).message_id for _ in range(7)]
    address = cluster.brokers["broker-a"].address
    request, found = broker_pb2.ListScheduledRequest(messages_max=3), list[str]()
    for _ in range(10):
        page = await cluster.connection.channels.call(address, LIST_SCHEDULED, request)
        assert len(page.messages) <= 3
        found += [message.message_id for message in page.messages]
        if not page.after:
            break
        request.after = page.after
    assert found == ids
    request.after = "7"
    with pytest.raises(errors.InvalidArgument, match="is not a page"):
        await cluster.connection.channels.call(address, LIST_SCHEDULED, request)


async def test_a_broker_that_does_not_answer_is_told(cluster: Cluster) -> None:
    await cluster.send(b"here", delay=HOUR)
    await cluster.brokers["broker-b"].stop()
    found = await cluster.schedules.list("orders")
    assert (len(found.messages), found.unanswered) == (1, ("broker-b",))
    await cluster.brokers["broker-a"].stop()
    with pytest.raises(errors.NoBrokerAvailable, match="no broker answers"):
        await cluster.schedules.list("orders")


async def test_a_recalled_message_waits_no_more(cluster: Cluster) -> None:
    receipt = await cluster.send(b"never", delay=HOUR, broker="broker-b")
    await cluster.schedules.recall(receipt.recall_handle)
    assert (await cluster.schedules.list()).messages == ()
    with pytest.raises(errors.MessageNotFound, match="delivered or"):
        await cluster.schedules.recall(receipt.recall_handle)


async def test_a_message_is_delivered_now(cluster: Cluster) -> None:
    receipt = await cluster.send(b"now", delay=HOUR)
    await cluster.schedules.deliver_now(receipt.recall_handle)
    assert await cluster.arrived(wait_ms=2_000) == [b"now"]
    with pytest.raises(errors.MessageNotFound):
        await cluster.schedules.deliver_now(receipt.recall_handle)


async def test_a_moved_message_has_another_handle_and_comes_at_its_new_time(
    cluster: Cluster,
) -> None:
    receipt = await cluster.send(b"moved", delay=HOUR)
    at = datetime.now(UTC) + 2 * HOUR
    handle = await cluster.schedules.move(receipt.recall_handle, at)
    (waiting,) = (await cluster.schedules.list()).messages
    assert waiting.recall_handle == handle
    assert abs(waiting.deliver_ms - at.timestamp() * 1_000) <= 1
    with pytest.raises(errors.MessageNotFound, match="another handle"):
        await cluster.schedules.recall(receipt.recall_handle)
    await cluster.schedules.move(handle, 1)
    assert await cluster.arrived(wait_ms=5_000) == [b"moved"]


async def test_what_is_no_handle_of_this_cluster_is_refused(cluster: Cluster) -> None:
    elsewhere = RecallHandle("orders", "broker-z", 5, "ID").encode()
    with pytest.raises(errors.InvalidArgument, match="no recall handle"):
        await cluster.schedules.recall("nonsense")
    with pytest.raises(errors.NoBrokerAvailable, match="broker-z"):
        await cluster.schedules.recall(elsewhere)
    with pytest.raises(errors.MessageIllegal, match="no time zone"):
        await cluster.schedules.move(elsewhere, datetime(2026, 1, 1))  # noqa: DTZ001
    address = cluster.brokers["broker-a"].address
    for handle, reason in ((elsewhere, "ask broker-z"), ("nonsense", "no recall handle")):
        request = broker_pb2.RecallScheduledRequest(recall_handle=handle)
        with pytest.raises(errors.InvalidArgument, match=reason):
            await cluster.connection.channels.call(address, RECALL_SCHEDULED, request)


async def test_a_producer_recalls_what_it_sent_by_its_receipt_or_its_handle(
    cluster: Cluster,
) -> None:
    sent = [await cluster.send(b"%d" % number, delay=HOUR) for number in range(3)]
    await cluster.producer.recall(sent[0])
    await cluster.producer.recall(sent[1].recall_handle)
    assert [each.message_id for each in (await cluster.schedules.list()).messages] == [
        sent[2].message_id
    ]
    with pytest.raises(errors.MessageNotFound):
        await cluster.producer.recall(sent[0])
    now = await cluster.send(b"now")
    with pytest.raises(errors.InvalidArgument, match="nothing to recall"):
        await cluster.producer.recall(now)
    with pytest.raises(errors.InvalidArgument):
        await cluster.producer.recall("no handle")
