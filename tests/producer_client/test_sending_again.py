"""What a producer does about refusals, broken streams, restarts and deadlines."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.producer_client import (
    Message,
    PartlySent,
    Producer,
    ProducerConfig,
    SendStatus,
)
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.fake_cluster import FakeBroker, FakeNameserver
from tests.support.waiting import PATIENCE_S


def refusal(
    code: int, *, times: int, retry_after_ms: int = 0
) -> tuple[list[broker_pb2.RecordBatch], object]:
    refused: list[broker_pb2.RecordBatch] = []

    def refuse(batch: broker_pb2.RecordBatch) -> broker_pb2.SendAck | None:
        if len(refused) >= times:
            return None
        refused.append(batch)
        return broker_pb2.SendAck(
            code=code,  # type: ignore[arg-type]
            message="refused by the test",
            retry_after_ms=retry_after_ms,
        )

    return refused, refuse


@pytest.mark.parametrize(
    "code",
    [
        common_pb2.NOT_MASTER,
        common_pb2.SHUTTING_DOWN,
        common_pb2.NOT_WRITABLE,
        common_pb2.TOPIC_NOT_FOUND,
        common_pb2.INTERNAL,
    ],
)
async def test_a_refused_batch_is_sent_to_another_broker(
    two_brokers: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker, code: int
) -> None:
    refused, broker_a.refuse = refusal(code, times=1_000)  # type: ignore[assignment]
    async with Producer(two_brokers.address) as producer:
        receipts = [await producer.send(Message("orders", b"%d" % n)) for n in range(4)]
    assert refused
    assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}
    assert sorted(broker_b.bodies("orders")) == [b"0", b"1", b"2", b"3"]


async def test_a_broker_that_keeps_failing_is_given_up_after_two_more_attempts(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    refused, broker_a.refuse = refusal(common_pb2.INTERNAL, times=99)  # type: ignore[assignment]
    async with Producer(nameserver.address) as producer:
        with pytest.raises(errors.AerobeeError, match="refused by the test"):
            await producer.send(Message("orders", b"1"))
    assert len(refused) == 3


async def test_a_full_disk_is_tried_until_there_is_room_or_the_time_is_over(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    refused, broker_a.refuse = refusal(common_pb2.NOT_WRITABLE, times=4)  # type: ignore[assignment]
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"1"), timeout=PATIENCE_S)
        assert len(refused) == 4
        refused, broker_a.refuse = refusal(common_pb2.NOT_WRITABLE, times=999)  # type: ignore[assignment]
        with pytest.raises(errors.NotWritable, match=r"not sent within .*: refused by the test"):
            await producer.send(Message("orders", b"2"), timeout=0.5)
        # With pauses that grow.
        assert 2 < len(refused) < 40
    assert broker_a.bodies("orders") == [b"1"]


async def test_a_final_refusal_is_not_repeated(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    refused, broker_a.refuse = refusal(common_pb2.MESSAGE_TOO_LARGE, times=99)  # type: ignore[assignment]
    async with Producer(nameserver.address) as producer:
        with pytest.raises(errors.MessageTooLarge):
            await producer.send(Message("orders", b"1"))
    assert len(refused) == 1


async def test_a_busy_broker_is_asked_again_after_the_time_it_named(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    refused, broker_a.refuse = refusal(common_pb2.BUSY, times=5, retry_after_ms=30)  # type: ignore[assignment]
    loop = asyncio.get_running_loop()
    async with Producer(nameserver.address) as producer:
        start_s = loop.time()
        await producer.send(Message("orders", b"1"))
        assert loop.time() - start_s >= 5 * 0.030
    assert len(refused) == 5


async def test_a_busy_broker_runs_into_the_deadline(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    """It does while the producer waits to try again: an attempt under way may have succeeded."""
    _, broker_a.refuse = refusal(common_pb2.BUSY, times=10_000, retry_after_ms=600)  # type: ignore[assignment]
    async with Producer(nameserver.address) as producer:
        with pytest.raises(errors.Busy, match=r"not sent within 1\.1 s"):
            await producer.send(Message("orders", b"1"), timeout=1.1)


async def test_no_answer_in_time_leaves_the_outcome_open(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        broker_a.hold_acks.clear()
        with pytest.raises(errors.DeadlineExceeded, match="unknown"):
            await producer.send(Message("orders", b"1"), timeout=0.2)
        broker_a.hold_acks.set()
        receipt = await producer.send(Message("orders", b"2"))
        assert receipt.status is SendStatus.OK
    assert broker_a.batches[0].timeout_ms <= 180


async def test_what_was_in_flight_when_the_stream_broke_is_sent_again(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    broker_a.cut_after_store = 2
    async with Producer(nameserver.address) as producer:
        receipt = await producer.send(Message("orders", b"1"))
        keyed = await producer.send(Message("orders", b"2", sharding_key="k"))
    assert broker_a.bodies("orders") == [b"1", b"2"]
    assert broker_a.duplicates == 2
    assert receipt.queue_offset == 0
    assert keyed.status is SendStatus.OK


async def test_without_numbers_it_is_stored_again(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    broker_a.cut_after_store = 2
    config = ProducerConfig(idempotent=False)
    async with Producer(nameserver.address, config=config) as producer:
        await producer.send(Message("orders", b"1"))
    assert broker_a.bodies("orders").count(b"1") == 3
    assert not any(batch.producer_id for batch in broker_a.batches)


async def test_a_restarted_broker_gets_what_waited_for_it_in_order(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"first", sharding_key="k"))
        await broker_a.stop()
        sends = [
            asyncio.ensure_future(producer.send(Message("orders", b"%d" % n, sharding_key="k")))
            for n in range(10)
        ]
        await asyncio.sleep(0.1)
        await broker_a.start()
        receipts = await asyncio.gather(*sends)
    offsets = [receipt.queue_offset for receipt in receipts]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == 10


async def test_an_unreachable_broker_is_named(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    await broker_a.stop()
    async with Producer(nameserver.address) as producer:
        with pytest.raises(errors.Unreachable, match=f"not sent within.*{broker_a.port}"):
            await producer.send(Message("orders", b"1"), timeout=0.3)


async def test_a_new_master_is_found_through_the_route(
    nameserver: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"1", sharding_key="k"))
        _, broker_a.refuse = refusal(common_pb2.NOT_MASTER, times=10_000)  # type: ignore[assignment]
        nameserver.brokers["broker-a"] = broker_b
        await producer.send(Message("orders", b"2", sharding_key="k"))
    assert broker_b.bodies("orders") == [b"2"]


async def test_a_batch_that_fails_in_part_says_which_messages_are_stored(
    two_brokers: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker
) -> None:
    _, broker_b.refuse = refusal(common_pb2.MESSAGE_ILLEGAL, times=10_000)  # type: ignore[assignment]
    config = ProducerConfig(batch_bytes_max=2_000)
    messages = [Message("orders", b"%d" % n) for n in range(100)]
    async with Producer(two_brokers.address, config=config) as producer:
        with pytest.raises(PartlySent, match="of 100 messages are stored") as caught:
            await producer.send_batch(messages)
        assert isinstance(caught.value.__cause__, errors.MessageIllegal)
        stored = [
            message.body
            for message, receipt in zip(messages, caught.value.receipts, strict=True)
            if receipt is not None
        ]
        assert sorted(stored) == sorted(broker_a.bodies("orders"))
        assert 0 < len(stored) < 100


async def test_a_hanging_nameserver_does_not_hold_up_retries(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"1"))
        nameserver.hangs = True
        broker_a.cut_after_store = 1
        _, broker_a.refuse = refusal(common_pb2.NOT_MASTER, times=1)  # type: ignore[assignment]
        async with asyncio.timeout(2):
            await producer.send(Message("orders", b"2"))
            await producer.send(Message("orders", b"3", sharding_key="k"))
        nameserver.hangs = False


async def test_batches_behind_expired_ones_are_still_sent(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    config = ProducerConfig(inflight_bytes_max=1_000, batch_bytes_max=1_000)
    async with Producer(nameserver.address, config=config) as producer:
        await producer.send(Message("orders", b"1"))
        broker_a.hold_acks.clear()
        sends = [
            asyncio.ensure_future(
                producer.send(Message("orders", bytes(800)), timeout=0.1 if n < 2 else 2)
            )
            for n in range(4)
        ]
        results = await asyncio.gather(*sends[:2], return_exceptions=True)
        assert all(isinstance(result, errors.DeadlineExceeded) for result in results)
        broker_a.hold_acks.set()
        await asyncio.gather(*sends[2:])


async def test_a_broker_that_restarts_while_nothing_is_sent_is_found_again(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"0"))
        await producer.send(Message("orders", b"1"), timeout=0.2)
        await broker_a.stop()
        await asyncio.sleep(0.3)
        await broker_a.start()
        await producer.send(Message("orders", b"2"))
    assert broker_a.bodies("orders") == [b"0", b"1", b"2"]


async def test_records_are_encoded_again_for_a_broker_of_another_address_family(
    two_brokers: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker
) -> None:
    broker_b.store_host_ipv6 = True
    _, broker_a.refuse = refusal(common_pb2.NOT_WRITABLE, times=100)  # type: ignore[assignment]
    async with Producer(two_brokers.address) as producer:
        receipts = await producer.send_batch([Message("orders", b"%d" % n) for n in range(20)])
    assert broker_b.bodies("orders") == [b"%d" % n for n in range(20)]
    assert receipts[19].queue_offset == 19
