"""Brokers that stop, refuse, stall and cut connections at random: every send has a true outcome."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from aerobee.producer_client import Message, PartlySent, Producer, ProducerConfig, Receipt
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeBroker, FakeNameserver

REFUSALS = (
    common_pb2.BUSY,
    common_pb2.NOT_MASTER,
    common_pb2.NOT_WRITABLE,
    common_pb2.SHUTTING_DOWN,
    common_pb2.TOPIC_NOT_FOUND,
    common_pb2.INTERNAL,
)
SENDERS = 12
MESSAGES_PER_SENDER = 25


async def disturb(brokers: list[FakeBroker], chance: random.Random, enough: asyncio.Event) -> None:
    """One fault at a time, each to its end: a gRPC server must not be cancelled while it stops."""

    def refuse(batch: broker_pb2.RecordBatch) -> broker_pb2.SendAck | None:
        if chance.random() < 0.2:
            return broker_pb2.SendAck(code=chance.choice(REFUSALS), retry_after_ms=5)
        return None

    for broker in brokers:
        broker.refuse = refuse
    while not enough.is_set():
        broker = chance.choice(brokers)
        fault = chance.randrange(3)
        if fault == 0:
            broker.cut_after_store = 1
        elif fault == 1:
            broker.hold_acks.clear()
        else:
            await broker.stop()
        await asyncio.sleep(chance.random() * 0.05)
        if fault == 0:
            broker.cut_after_store = 0
        elif fault == 1:
            broker.hold_acks.set()
        elif fault == 2:
            await broker.start()
        await asyncio.sleep(chance.random() * 0.02)


async def send_many(
    producer: Producer, sender: int, chance: random.Random
) -> list[tuple[bytes, Receipt | errors.AerobeeError]]:
    outcomes: list[tuple[bytes, Receipt | errors.AerobeeError]] = []
    for number in range(MESSAGES_PER_SENDER):
        body = b"%d-%d" % (sender, number)
        key = f"key-{sender}" if sender % 3 == 0 else None
        try:
            if chance.random() < 0.2:
                batch = [Message("orders", body + b"-%d" % n, sharding_key=key) for n in range(5)]
                receipts = await producer.send_batch(batch)
                outcomes += [
                    (message.body, receipt)
                    for message, receipt in zip(batch, receipts, strict=True)
                ]
            else:
                message = Message("orders", body, sharding_key=key)
                outcomes.append((body, await producer.send(message)))
        except PartlySent as error:
            outcomes += [
                (message.body, receipt)
                for message, receipt in zip(batch, error.receipts, strict=True)
                if receipt is not None
            ]
        except errors.AerobeeError as error:
            outcomes.append((body, error))
    return outcomes


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
async def test_every_receipt_is_true_whatever_happens(
    two_brokers: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker, seed: int
) -> None:
    chance = random.Random(seed)
    brokers = {"broker-a": broker_a, "broker-b": broker_b}
    config = ProducerConfig(send_timeout_ms=2_000, batch_bytes_max=1_000)
    async with Producer(two_brokers.address, config=config) as producer:
        enough = asyncio.Event()
        disturbing = asyncio.ensure_future(disturb(list(brokers.values()), chance, enough))
        outcomes = await asyncio.gather(
            *(send_many(producer, sender, chance) for sender in range(SENDERS))
        )
        enough.set()
        await disturbing
        assert producer.statistics().buffered_bytes == 0
    stored = {
        (name, each.queue_id, each.queue_offset): each.record
        for name, broker in brokers.items()
        for each in broker.stored
    }
    bodies = [each.record.body for broker in brokers.values() for each in broker.stored]
    assert len(bodies) == len(set(bodies)), "nothing is stored twice"
    receipts = 0
    for sender, outcome in enumerate(outcomes):
        queues = set()
        for body, result in outcome:
            if isinstance(result, errors.AerobeeError):
                assert not isinstance(result, errors.Unreachable) or "not sent" in str(result)
                continue
            receipts += 1
            queues.add(result.queue)
            record = stored[result.queue.broker_name, result.queue.queue_id, result.queue_offset]
            assert record.body == body
            assert record.unique_key == result.message_id
        assert len(queues) <= 1 or sender % 3, "one sharding key, one queue"
    assert receipts > SENDERS * MESSAGES_PER_SENDER * 0.7
