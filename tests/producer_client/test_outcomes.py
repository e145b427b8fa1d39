"""What was certainly not stored, what may be, and what is in part: each is told as it is, and
nothing is lost or doubled."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client import Message, Producer, ProducerConfig, SendStatus
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.fake_cluster import FakeBroker, FakeNameserver, FakeTopic, Refusal
from tests.support.waiting import until

QUEUE = MessageQueue("orders", "broker-a", 0)


def once(code: common_pb2.Code, body: bytes) -> Refusal:
    """Refuses the first batch that carries `body`."""
    refused: list[bytes] = []

    def refuse(batch: broker_pb2.RecordBatch) -> broker_pb2.SendAck | None:
        if refused or body not in batch.records:
            return None
        refused.append(body)
        return broker_pb2.SendAck(code=code, message="not now", retry_after_ms=300)

    return refuse


async def test_a_refused_batch_takes_a_new_number_so_no_wait_makes_it_too_old(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    nameserver.topics["orders"] = FakeTopic({"broker-a": 1})
    broker_a.refuse = once(common_pb2.BUSY, b"victim")
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"first"))
        waiting = asyncio.ensure_future(producer.send(Message("orders", b"victim")))
        await until(lambda: any(b"victim" in batch.records for batch in broker_a.batches))
        count = 0
        while not waiting.done():
            await producer.send(Message("orders", b"other"))
            count += 1
        assert count > 128
        await waiting
    first, second = (batch for batch in broker_a.batches if b"victim" in batch.records)
    assert first.producer_id == second.producer_id
    between = broker_a.batches[broker_a.batches.index(first) + 1 : broker_a.batches.index(second)]
    assert second.producer_sequence > max(batch.producer_sequence for batch in between)
    assert broker_a.bodies("orders").count(b"victim") == 1


async def test_batches_behind_one_that_may_be_stored_wait_before_it_is_forgotten(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    nameserver.topics["orders"] = FakeTopic({"broker-a": 1})

    def refuse(batch: broker_pb2.RecordBatch) -> broker_pb2.SendAck | None:
        if b"victim" not in batch.records or done.is_set():
            return None
        return broker_pb2.SendAck(code=common_pb2.STORE_FAILED)

    done = asyncio.Event()
    broker_a.refuse = refuse
    async with Producer(nameserver.address) as producer:
        waiting = asyncio.ensure_future(producer.send(Message("orders", b"victim")))
        await until(lambda: len(broker_a.batches) >= 1)

        async def send_many() -> None:
            for _ in range(200):
                await producer.send(Message("orders", b"other"))

        others = asyncio.ensure_future(send_many())
        await until(lambda: len(broker_a.stored) == 63)
        await asyncio.sleep(0.1)
        assert len(broker_a.stored) == 63
        done.set()
        await waiting
        await others
    assert len(broker_a.stored) == 201


@pytest.mark.parametrize("sends", ["one by one", "batch", "batch to a queue", "two topics"])
async def test_the_rest_of_a_batch_that_a_crash_cut_is_stored_once(
    nameserver: FakeNameserver, broker_a: FakeBroker, sends: str
) -> None:
    """The new master has its first three messages, and another producer's after them."""
    nameserver.topics["orders"] = FakeTopic({"broker-a": 1})
    topics = {5: "others"} if sends == "two topics" else {}
    messages = [Message(topics.get(n, "orders"), b"%d" % n, flag=n) for n in range(10)]
    queue = QUEUE if sends == "batch to a queue" else None
    async with Producer(nameserver.address) as producer:
        for topic in ("orders", "others"):
            await producer.send(Message(topic, b"first"))
        broker_a.hold_acks.clear()
        if sends == "one by one":
            sending = asyncio.gather(*(producer.send(message) for message in messages))
        else:
            sending = asyncio.ensure_future(producer.send_batch(messages, queue=queue))  # type: ignore[arg-type]
        await until(lambda: len(broker_a.stored) == 12)
        behind = asyncio.ensure_future(producer.send(Message("orders", b"behind"), queue=queue))
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0.02)
        await broker_a.stop()
        broker_a.lose_end(3)
        broker_a.hold_acks.set()
        await broker_a.start()
        await flushing
        assert sending.done(), "flush waits for the rest, too"
        receipts = list(await sending)
        await behind
    for topic in ("orders", "others"):
        wanted = [message.body for message in messages if message.topic == topic]
        stored = [body for body in broker_a.bodies(topic) if body.isdigit()]
        assert stored == wanted, "each once"
    places = {
        (each.topic, each.queue_id, each.queue_offset): each.record for each in broker_a.stored
    }
    for message, receipt in zip(messages, receipts, strict=True):
        record = places[message.topic, receipt.queue.queue_id, receipt.queue_offset]
        assert (record.body, record.flag) == (message.body, message.flag)
        assert record.properties["UNIQ_KEY"] == receipt.message_id
    assert [receipt.queue_offset for receipt in receipts[:3]] == [1, 2, 3]
    if queue is not None:
        assert broker_a.bodies("orders")[-1] == b"behind", "in the order of sending"


async def test_a_part_that_is_not_confirmed_is_asked_for_again_as_a_whole(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    """For the next master may have all of it."""
    async with Producer(nameserver.address) as producer:
        broker_a.hold_acks.clear()
        messages = [Message("orders", b"%d" % n) for n in range(10)]
        sending = asyncio.ensure_future(producer.send_batch(messages, queue=QUEUE))
        await until(lambda: len(broker_a.stored) == 10)
        broker_a.lose_end(3)
        broker_a.status = common_pb2.FLUSH_SLAVE_TIMEOUT
        await broker_a.stop()
        broker_a.hold_acks.set()
        await broker_a.start()
        await until(lambda: broker_a.duplicates >= 3)
        assert len({batch.producer_sequence for batch in broker_a.batches}) == 1
        broker_a.status = common_pb2.OK
        receipts = await sending
    assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2, *range(4, 11)]
    assert broker_a.bodies("orders") == [b"%d" % n for n in range(10)]


async def test_what_is_stored_has_its_receipt_though_it_is_refused_when_asked_for_again(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    broker_a.status = common_pb2.FLUSH_SLAVE_TIMEOUT
    broker_a.refuse = lambda batch: (
        broker_pb2.SendAck(code=common_pb2.NOT_WRITABLE_TOPIC) if broker_a.stored else None
    )
    async with Producer(nameserver.address) as producer:
        receipt = await producer.send(Message("orders", b"1"))
    assert receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT
    assert len(broker_a.batches) == 2


@pytest.mark.parametrize("refused_by", ["broker", "nameserver"])
async def test_what_may_be_stored_is_never_called_refused(
    nameserver: FakeNameserver, broker_a: FakeBroker, refused_by: str
) -> None:
    config = ProducerConfig(create_missing_topics=False)
    async with Producer(nameserver.address, config=config) as producer:
        await producer.send(Message("orders", b"0"))
        if refused_by == "nameserver":
            broker_a.refuse = lambda batch: broker_pb2.SendAck(code=common_pb2.STORE_FAILED)
            del nameserver.topics["orders"]
        else:
            broker_a.cut_after_store = 1
            broker_a.refuse = lambda batch: (
                broker_pb2.SendAck(code=common_pb2.NOT_WRITABLE_TOPIC)
                if len(broker_a.stored) == 2
                else None
            )
        with pytest.raises(errors.DeadlineExceeded, match="unknown"):
            await producer.send(Message("orders", b"1"), timeout=4)


async def test_sends_are_over_at_their_deadline_while_the_nameserver_hangs(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    loop = asyncio.get_running_loop()
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"0"))
        nameserver.hangs = True
        broker_a.refuse = lambda batch: broker_pb2.SendAck(code=common_pb2.NOT_MASTER)

        async def send(number: int) -> float:
            await asyncio.sleep(number * 0.01)
            topic = "orders" if number % 2 else "unknown"
            before_s = loop.time()
            with pytest.raises(errors.AerobeeError):
                await producer.send(Message(topic, b"x"), timeout=0.4)
            return loop.time() - before_s

        took_s = await asyncio.gather(*(send(number) for number in range(20)))
        nameserver.hangs = False
    assert max(took_s) < 0.8
