"""A frame with many half messages: they are stored together, and each is answered as by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aerobee.broker.config import TransactionsConfig
from aerobee.broker.transactions.feature import Transactions
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.record import encode_batch
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import BORN_HOST, RunningBroker, StartBroker
from tests.support.transactions import ORDERS, stored, transactional
from tests.support.waiting import until


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    return await ready(await start_broker(topics={ORDERS: transactional()}))


async def ready(broker: RunningBroker) -> RunningBroker:
    await until(lambda: broker.feature(Transactions).ends.is_ready)
    return broker


def half(
    message_id: str, body: bytes = b"", *, queue_id: int = 0, more: str = "", copies: int = 1
) -> broker_pb2.RecordBatch:
    records, sizes = encode_batch(
        topic=ORDERS.encode(),
        bodies=[body or message_id.encode()] * copies,
        properties=[f"UNIQ_KEY\x01{message_id}\x02{more}".encode()] * copies,
        born_timestamp_ms=1_700_000_000_000,
        born_host=BORN_HOST,
    )
    return broker_pb2.RecordBatch(
        topic=ORDERS, queue_id=queue_id, records=records, record_sizes=sizes, is_half=True
    )


async def send(
    broker: RunningBroker, batches: Sequence[broker_pb2.RecordBatch]
) -> list[broker_pb2.SendAck]:
    """In one frame."""
    for sequence, batch in enumerate(batches):
        batch.sequence = sequence
    stream = broker.send.SendStream()
    await stream.write(broker_pb2.SendFrame(batches=batches))
    await stream.done_writing()
    acks = [ack async for frame in stream for ack in frame.acks]
    assert [ack.sequence for ack in acks] == list(range(len(batches)))
    return acks


async def halves(broker: RunningBroker) -> list[bytes]:
    await until(lambda: broker.feature(Transactions).follower.has_all)
    return [bytes(each.body) for each in await stored(broker, HALF_TOPIC, 1)]


async def test_each_is_answered_with_its_own_place(broker: RunningBroker) -> None:
    ids = [f"M-{number}" for number in range(20)]
    acks = await send(broker, [half(each, queue_id=n % 4) for n, each in enumerate(ids)])
    assert [ack.transaction_id for ack in acks] == ids
    assert await halves(broker) == [each.encode() for each in ids]
    records = await stored(broker, HALF_TOPIC, 1)
    for number, (ack, record) in enumerate(zip(acks, records, strict=True)):
        assert ack.base_physical_offset == record.physical_offset
        assert record.properties["REAL_QID"] == str(number % 4)
        assert record.properties["REAL_TOPIC"] == ORDERS
    # Sent again, each is answered with the same place, and nothing is stored.
    again = await send(broker, [half(each, queue_id=n % 4) for n, each in enumerate(ids)])
    assert again == acks
    assert len(await halves(broker)) == len(ids)


async def test_one_that_a_frame_has_twice_is_stored_once(broker: RunningBroker) -> None:
    acks = await send(broker, [half("A"), half("B"), half("A"), half("B", b"another")])
    assert [ack.transaction_id for ack in acks[:3]] == ["A", "B", "A"]
    assert acks[2].base_physical_offset == acks[0].base_physical_offset
    assert acks[3].transaction_id.startswith("B~")
    assert await halves(broker) == [b"A", b"B", b"another"]


async def test_what_is_wrong_with_one_does_not_affect_its_neighbours(
    broker: RunningBroker,
) -> None:
    damaged = half("D")
    damaged.records = damaged.records.replace(b"D", b"E", 1)
    acks = await send(
        broker,
        [
            half("A"),
            damaged,
            half("", b"without an id"),
            half("L", more="DELAY\x013\x02"),
            half("Q", queue_id=9),
            half("T", copies=2),
            half("B"),
        ],
    )
    assert [ack.code == common_pb2.OK for ack in acks] == [True, *[False] * 5, True]
    assert await halves(broker) == [b"A", b"B"]


async def test_no_more_are_open_than_may_be(start_broker: StartBroker) -> None:
    broker = await ready(
        await start_broker(
            topics={ORDERS: transactional()}, transactions=TransactionsConfig(pending_max=5)
        )
    )
    acks = await send(broker, [half(f"M-{number}") for number in range(8)])
    assert [ack.code for ack in acks] == [common_pb2.OK] * 5 + [common_pb2.BUSY] * 3
    assert len(await halves(broker)) == 5
