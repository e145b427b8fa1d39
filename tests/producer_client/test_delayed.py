"""Messages that arrive later: batches of one kind, numbers that no two share, handles."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aerobee.client_core import ClusterConnection, MessageQueue
from aerobee.client_core.message import Message
from aerobee.producer_client import BlockingProducer, Producer
from aerobee.runtime import errors
from aerobee.store.format.delay_levels import DELAY_MAX_MS
from aerobee.store.format.delayed_records import TIMER_TOPIC
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.store.format.record import iterate_records
from aerobee.store.format.tags import SCHEDULE_TOPIC
from aerobee.v1 import broker_pb2
from tests.producer_client.test_real_broker import read_queue
from tests.support.fake_cluster import BrokerAt, FakeBroker, FakeNameserver, FakeTopic
from tests.support.real_brokers import RealBroker

HOUR = timedelta(hours=1)


def kinds_of(batch: broker_pb2.RecordBatch) -> set[str]:
    """How the messages of a batch ask to arrive."""
    return {
        f"level {record.properties['DELAY']}"
        if "DELAY" in record.properties
        else "time"
        if "TIMER_DELIVER_MS" in record.properties
        else "at once"
        for record in iterate_records(batch.records)
    }


def mixed(topic: str, **arguments: Any) -> list[Message]:
    """Each kind several times, all mixed."""
    kinds: list[dict[str, Any]] = [{}, {"delay": HOUR}, {"delay_level": 3}, {"delay_level": 99}, {}]
    return [
        Message(topic, b"%s %d" % (topic.encode(), number), **kind, **arguments)
        for number, kind in enumerate(kinds * 6)
    ]


@pytest.mark.parametrize("way", ["one by one", "as one", "one way"])
@pytest.mark.parametrize("arguments", [{}, {"sharding_key": "k"}])
async def test_a_batch_has_one_kind_of_delay(
    nameserver: FakeNameserver, broker_a: FakeBroker, way: str, arguments: dict[str, Any]
) -> None:
    messages = mixed("orders", **arguments)
    async with Producer(nameserver.address) as producer:
        if way == "one by one":
            await asyncio.gather(*map(producer.send, messages))
        elif way == "as one":
            receipts = await producer.send_batch(messages)
            assert len({receipt.message_id for receipt in receipts}) == len(messages)
        else:
            for message in messages:
                producer.send_one_way(message)
    assert sorted(broker_a.bodies("orders")) == sorted(message.body for message in messages)
    kinds = [kinds_of(batch) for batch in broker_a.batches]
    assert all(len(each) == 1 for each in kinds)
    assert set.union(*kinds) == {"at once", "time", "level 3", "level 99"}


async def test_what_waits_at_a_broker_has_numbers_that_no_two_messages_share(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    """A broker looks up what comes again where it waits, whatever topic and queue it is for."""
    nameserver.topics["bills"] = FakeTopic({"broker-a": 2})
    async with Producer(nameserver.address) as producer:
        for _ in range(3):
            for topic in ("orders", "bills"):
                await asyncio.gather(*map(producer.send, mixed(topic)))
                await producer.send_batch(mixed(topic), queue=MessageQueue(topic, "broker-a", 1))
    numbers = [
        (batch.producer_id, batch.producer_sequence + at)
        for batch in broker_a.batches
        if kinds_of(batch) != {"at once"}
        for at in range(len(batch.record_sizes))
    ]
    assert len(numbers) == len(set(numbers)) == 3 * 2 * 2 * 18


async def test_two_topics_lose_nothing_where_their_messages_wait_together(tmp_path: Path) -> None:
    broker = await RealBroker("broker-a", tmp_path, {"orders": 4, "bills": 2}).start()
    nameserver = await FakeNameserver(
        brokers={"broker-a": BrokerAt(broker.address)},
        topics={"orders": FakeTopic({"broker-a": 4}), "bills": FakeTopic({"broker-a": 2})},
    ).start()
    try:
        async with (
            ClusterConnection(nameserver.address) as connection,
            Producer(connection=connection) as producer,
        ):
            messages = [*mixed("orders"), *mixed("bills")]
            for message in messages:
                await producer.send(message)
            # The topics that hold what waits have no route of their own.
            nameserver.topics[SCHEDULE_TOPIC] = FakeTopic({"broker-a": 18})
            nameserver.topics[TIMER_TOPIC] = FakeTopic({"broker-a": 1})
            found = [
                record.body
                for topic, queue_id in ((SCHEDULE_TOPIC, 2), (SCHEDULE_TOPIC, 17), (TIMER_TOPIC, 0))
                for record in await read_queue(
                    connection, MessageQueue(topic, "broker-a", queue_id)
                )
            ]
            later = [message.body for message in messages if message.schedule is not None]
            assert sorted(found) == sorted(later)
    finally:
        await nameserver.stop()
        await broker.stop()


async def test_what_may_be_stored_comes_again_under_its_number(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"first"))
        broker_a.cut_after_store = 1
        receipt = await producer.send(Message("orders", b"later", delay=HOUR))
    assert broker_a.duplicates == 1
    assert receipt.recall_handle
    first, again = broker_a.batches[-2:]
    assert first.records == again.records, "its time does not move"


async def test_a_receipt_has_the_handle_that_names_the_message_while_it_waits(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    at = datetime.now(UTC) + HOUR
    async with Producer(nameserver.address) as producer:
        timed = await producer.send(Message("orders", b"1", deliver_at=at))
        (waiting,) = [stored.record for stored in broker_a.stored]
        deliver_ms = int(waiting.properties["TIMER_DELIVER_MS"])
        assert abs(deliver_ms - at.timestamp() * 1_000) <= 1
        handle = RecallHandle("orders", "broker-a", deliver_ms, timed.message_id)
        assert RecallHandle.decode(timed.recall_handle) == handle
        assert (timed.queue_offset, timed.offset_message_id) == (-1, "")
        batch = await producer.send_batch([Message("orders", b"%d" % n, delay=n) for n in (1, 2)])
        times = [RecallHandle.decode(receipt.recall_handle).deliver_ms for receipt in batch]
        assert times[1] - times[0] == 1_000
        by_level = await producer.send(Message("orders", b"2", delay_level=3))
        plain = await producer.send(Message("orders", b"3"))
        assert (by_level.recall_handle, by_level.queue_offset) == ("", -1)
        assert (plain.recall_handle, plain.queue_offset >= 0) == ("", True)


async def test_a_time_too_far_away_is_refused_before_it_is_sent(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    far = Message("orders", b"1", deliver_at=now_ms + DELAY_MAX_MS + 60_000)
    async with Producer(nameserver.address) as producer:
        with pytest.raises(errors.MessageIllegal, match="ten years"):
            await producer.send(far)
        with pytest.raises(errors.MessageIllegal, match="ten years"):
            await producer.send_batch([Message("orders", b"2"), far])
        with pytest.raises(errors.MessageIllegal, match="ten years"):
            producer.send_one_way(far)
        assert producer.statistics().buffered_bytes == 0
    assert broker_a.stored == []


async def test_scripts_send_them_too(nameserver: FakeNameserver) -> None:
    def script() -> str:
        with BlockingProducer(nameserver.address) as producer:
            return producer.send(Message("orders", b"1", delay=60)).recall_handle

    assert RecallHandle.decode(await asyncio.to_thread(script)).topic == "orders"
