"""Sending against real gRPC servers: receipts, batches, keys, refusals, lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aerobee.client_core.message import MessageId, ReceivedMessage
from aerobee.producer_client import (
    Compression,
    Durability,
    Message,
    MessageQueue,
    Producer,
    ProducerConfig,
    SendStatus,
)
from aerobee.producer_client.broker_stream import ALONE_MIN
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2
from tests.support.fake_cluster import BrokerAt, FakeBroker, FakeNameserver
from tests.support.waiting import until


async def test_a_receipt_says_where_the_message_lies_and_what_was_promised(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        message = Message("orders", b"{}", tag="new", keys=["a", "b"], properties={"colour": "red"})
        receipt = await producer.send(message)
    (stored,) = broker_a.stored
    assert stored.record.body == b"{}"
    assert stored.record.tag == "new"
    assert stored.record.keys == ("a", "b")
    assert stored.record.properties["colour"] == "red"
    assert receipt.message_id == stored.record.unique_key
    assert len(receipt.message_id) == 32
    assert receipt.queue == MessageQueue("orders", "broker-a", stored.queue_id)
    assert receipt.queue_offset == 0
    assert receipt.status is SendStatus.OK
    assert receipt.durability is Durability.PAGE_CACHE
    assert MessageId.parse(receipt.offset_message_id) == (broker_a.address, 0)


async def test_concurrent_sends_share_a_batch(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"first"))
        batches_before = len(broker_a.batches)
        receipts = await asyncio.gather(
            *(producer.send(Message("orders", b"%d" % n)) for n in range(100))
        )
    assert len(broker_a.batches) == batches_before + 1
    assert broker_a.bodies("orders")[1:] == [b"%d" % n for n in range(100)]
    assert len({receipt.message_id for receipt in receipts}) == 100


async def test_a_sender_that_awaits_each_message_writes_the_next_without_another_turn(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    """Many at once share a batch all the same, but for the first of them once."""
    async with Producer(nameserver.address) as producer:
        for _ in range(ALONE_MIN + 2):
            await producer.send(Message("orders", b"one"))
        delivery = producer._delivery
        assert delivery is not None
        sending = producer.send(Message("orders", b"next"))
        sending.send(None)  # its first step alone: the event loop gets no turn
        assert delivery.stream("broker-a")._in_flight, "it was written"
        await until(lambda: broker_a.bodies("orders")[-1] == b"next")
        await until(lambda: not delivery.stream("broker-a")._in_flight)
        with pytest.raises(StopIteration):
            sending.send(None)
        batches = len(broker_a.batches)
        await asyncio.gather(*(producer.send(Message("orders", b"%d" % n)) for n in range(100)))
        assert len(broker_a.batches) <= batches + 2


@pytest.mark.parametrize(
    ("durability", "frames"), [(broker_pb2.PAGE_CACHE, 2), (broker_pb2.FSYNCED, 1)]
)
async def test_many_messages_that_follow_as_many_leave_in_two_halves(
    nameserver: FakeNameserver,
    broker_a: FakeBroker,
    durability: broker_pb2.Durability,
    frames: int,
) -> None:
    """So that the broker stores one while the other is sent; not if each waited for a flush."""
    broker_a.durability = durability
    async with Producer(nameserver.address) as producer:

        async def frames_of(call: Callable[[], Awaitable[object]]) -> int:
            before = broker_a.frames
            await call()
            return broker_a.frames - before

        async def singles() -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(100):
                    message = Message("orders", b"%d" % number)
                    tasks.create_task(producer.send(message), name="send")

        async def batches() -> None:
            messages = [Message("orders", b"1")] * 25
            async with asyncio.TaskGroup() as tasks:
                for _ in range(4):
                    tasks.create_task(producer.send_batch(messages), name="send")

        async def to_one_queue() -> None:
            queue = MessageQueue("orders", "broker-a", 1)
            async with asyncio.TaskGroup() as tasks:
                for number in range(100):
                    message = Message("orders", b"%d" % number)
                    tasks.create_task(producer.send(message, queue=queue), name="send")

        assert await frames_of(singles) == 1
        for _ in range(2):
            assert await frames_of(singles) == frames
            assert {len(batch.record_sizes) for batch in broker_a.batches[-frames:]} == {
                100 // frames
            }
        assert await frames_of(batches) == frames
        assert await frames_of(to_one_queue) == 1


async def test_batches_that_wait_for_the_route_together_keep_their_order(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    """However many queues the messages of each have: a long one is not overtaken."""
    messages = [Message("orders", b"%d" % n, sharding_key=f"key-{n % 3}") for n in range(60)]
    async with Producer(nameserver.address) as producer:
        await asyncio.gather(
            *(producer.send_batch(messages[n : n + 8]) for n in range(0, 24, 8)),
            *(producer.send_batch([message]) for message in messages[24:]),
        )
    stored: dict[str, list[int]] = {}
    for one in broker_a.stored:
        number = int(bytes(one.record.body))
        stored.setdefault(f"key-{number % 3}", []).append(number)
    assert stored == {f"key-{key}": list(range(key, 60, 3)) for key in range(3)}


async def test_a_send_batch_gives_receipts_in_the_order_of_its_messages(
    two_brokers: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker
) -> None:
    config = ProducerConfig(batch_bytes_max=4_096)
    messages = [
        Message("orders", b"body-%d" % n, sharding_key=str(n % 7) if n % 3 else None)
        for n in range(200)
    ]
    async with Producer(two_brokers.address, config=config) as producer:
        receipts = await producer.send_batch(messages)
    stored = {
        (broker.name, each.queue_id, each.queue_offset): each.record
        for broker in (broker_a, broker_b)
        for each in broker.stored
    }
    assert len(stored) == 200
    assert broker_a.stored
    assert broker_b.stored
    assert len(receipts) == 200
    for message, receipt in zip(messages, receipts, strict=True):
        queue = receipt.queue
        record = stored[queue.broker_name, queue.queue_id, receipt.queue_offset]
        assert record.body == message.body
        assert record.unique_key == receipt.message_id
    keys: dict[str, MessageQueue] = {}
    for message, receipt in zip(messages, receipts, strict=True):
        if message.sharding_key is not None:
            assert keys.setdefault(message.sharding_key, receipt.queue) == receipt.queue


async def test_refused_messages_never_leave_the_client(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    config = ProducerConfig(message_body_bytes_max=100)
    async with Producer(nameserver.address, config=config) as producer:
        with pytest.raises(errors.MessageTooLarge, match="101 bytes"):
            await producer.send(Message("orders", bytes(101)))
        with pytest.raises(errors.MessageTooLarge):
            await producer.send_batch([Message("orders", b"1"), Message("orders", bytes(101))])
        with pytest.raises(errors.IllegalName):
            await producer.send(Message("no spaces", b"1"))
        with pytest.raises(errors.QueueNotFound):
            await producer.send(
                Message("orders", b"1"), queue=MessageQueue("orders", "broker-a", 4)
            )
        with pytest.raises(errors.QueueNotFound):
            producer.send_one_way(
                Message("orders", b"1"), queue=MessageQueue("orders", "broker-x", 0)
            )
        assert producer.statistics().buffered_bytes == 0
    assert broker_a.batches == []


async def test_an_unknown_topic_is_created_or_named(nameserver: FakeNameserver) -> None:
    async with Producer(nameserver.address) as producer:
        receipt = await producer.send(Message("fresh", b"1"))
        assert receipt.queue.topic == "fresh"
        nameserver.auto_create = False
        with pytest.raises(errors.TopicNotFound, match="other"):
            await producer.send(Message("other", b"1"))
        nameserver.topics["frozen"] = type(nameserver.topics["orders"])({"broker-a": 1}, perm=4)
        with pytest.raises(errors.NotWritableTopic):
            await producer.send(Message("frozen", b"1"))


@pytest.mark.parametrize("compression", [*Compression, "none", "zlib", "lz4", "zstd"])
async def test_large_bodies_are_compressed_if_that_helps(
    nameserver: FakeNameserver, broker_a: FakeBroker, compression: Compression
) -> None:
    config = ProducerConfig(compression=compression)
    bodies = [b"x" * 10_000, b"small", bytes(range(256)) * 16]
    async with Producer(nameserver.address, config=config) as producer:
        await producer.send_batch([Message("orders", body) for body in bodies])
        await producer.send(Message("orders", b"y" * 1_000_000))
    records = [stored.record for stored in broker_a.stored]
    queue = MessageQueue("orders", "broker-a", 0)
    received = [ReceivedMessage(record, queue).body for record in records]
    assert received == [*bodies, b"y" * 1_000_000]
    assert (records[0].body_size < 1_000) == (compression != "none")
    assert records[1].body_size == 5


async def test_full_buffers_make_senders_wait(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    config = ProducerConfig(buffered_bytes_max=10_000, send_timeout_ms=5_000)
    async with Producer(nameserver.address, config=config) as producer:
        broker_a.hold_acks.clear()
        sends = [
            asyncio.ensure_future(producer.send(Message("orders", bytes(1_000)))) for n in range(50)
        ]
        await until(lambda: producer.statistics().buffered_bytes > 9_000, "full buffers")
        await asyncio.sleep(0.1)
        assert producer.statistics().buffered_bytes < 12_000
        with pytest.raises(errors.Busy):
            producer.send_one_way(Message("orders", b"1"))
        with pytest.raises(errors.Busy):
            await producer.send(Message("orders", b"1"), timeout=0.05)
        sends[40].cancel()
        broker_a.hold_acks.set()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert sum(isinstance(result, BaseException) for result in results) == 1
        assert producer.statistics().buffered_bytes == 0


async def test_one_way_messages_arrive_and_losses_are_counted(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        for n in range(10):
            producer.send_one_way(Message("orders", b"%d" % n))
        await producer.flush()
        assert sorted(broker_a.bodies("orders")) == [b"%d" % n for n in range(10)]
        nameserver.auto_create = False
        producer.send_one_way(Message("missing", b"1"))
        await producer.flush()
        stats = producer.statistics()
        assert (stats.messages_stored, stats.messages_failed) == (10, 1)
        assert stats.buffered_bytes == 0
    assert all(batch.skip_wait for batch in broker_a.batches)


async def test_linger_gathers_sends_of_different_moments(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    config = ProducerConfig(linger_ms=1_000)
    async with Producer(nameserver.address, config=config) as producer:
        sends = []
        for n in range(5):
            sends.append(asyncio.ensure_future(producer.send(Message("orders", b"%d" % n))))
            await asyncio.sleep(0.002)
        await asyncio.gather(*sends)
        assert len(broker_a.batches) == 1
        producer.send_one_way(Message("orders", b"5"))
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await producer.flush()
        assert loop.time() - start_s < 0.9


async def test_closing_waits_for_receipts_and_then_fails_the_rest(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        sent = asyncio.ensure_future(producer.send(Message("orders", b"1")))
        await asyncio.sleep(0)
    assert (await sent).status is SendStatus.OK
    config = ProducerConfig(close_timeout_ms=100)
    async with Producer(nameserver.address, config=config) as producer:
        await producer.send(Message("orders", b"2"))
        broker_a.hold_acks.clear()
        hanging = asyncio.ensure_future(producer.send(Message("orders", b"3")))
        await asyncio.sleep(0.05)
    with pytest.raises(errors.DeadlineExceeded, match="closed"):
        await hanging
    with pytest.raises(errors.ShuttingDown):
        await producer.send(Message("orders", b"4"))
    broker_a.hold_acks.set()


async def test_the_callers_own_error_leaves_the_producer_as_it_is(
    nameserver: FakeNameserver,
) -> None:
    async def fail() -> None:
        async with Producer(nameserver.address) as producer:
            await producer.send(Message("orders", b"1"))
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await fail()


async def test_a_cancelled_send_leaves_the_producer_usable(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        broker_a.hold_acks.clear()
        sending = asyncio.ensure_future(producer.send(Message("orders", b"1")))
        await until(lambda: broker_a.bodies("orders") == [b"1"])
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        broker_a.hold_acks.set()
        await producer.send(Message("orders", b"2"))
    assert broker_a.bodies("orders") == [b"1", b"2"]


async def test_known_routes_outlive_the_nameserver(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"1"))
        await nameserver.stop()
        broker_a.cut_after_store = 1
        await producer.send(Message("orders", b"2"))
        with pytest.raises(errors.Unreachable):
            await producer.send(Message("never-asked", b"1"), timeout=0.2)
    assert broker_a.duplicates == 1


async def test_a_name_is_resolved_for_offset_message_ids(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    nameserver.brokers["broker-a"] = BrokerAt(f"localhost:{broker_a.port}")
    async with Producer(nameserver.address) as producer:
        receipt = await producer.send(Message("orders", b"1"))
    assert MessageId.parse(receipt.offset_message_id).store_host == broker_a.address
    nameserver.brokers["broker-a"] = BrokerAt("no-such-host.invalid:1")
    async with Producer(nameserver.address) as producer:
        with pytest.raises(errors.Unreachable, match="no-such-host"):
            await producer.send(Message("orders", b"1"), timeout=0.5)
