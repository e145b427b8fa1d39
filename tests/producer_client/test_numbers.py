"""Numbered batches: asked again where they may be stored, moved where they certainly are not, and
in order per queue."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client import Message, Producer, ProducerConfig, SendStatus
from aerobee.producer_client.accumulator import Batch
from aerobee.producer_client.turns import AHEAD_MAX, QueueTurns, Sequences
from aerobee.runtime import errors
from aerobee.store.format.producer_number import PRODUCER_ID_END, SEQUENCE_END
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.fake_cluster import FakeBroker, FakeNameserver, FakeTopic

QUEUES = [MessageQueue("t", "a", number) for number in range(3)]


# ---------------------------------------------------------------------------------- numbers


@given(st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(1, SEQUENCE_END // 3)), max_size=40))
def test_no_two_messages_of_a_queue_have_the_same_number(
    taken: list[tuple[MessageQueue, int]],
) -> None:
    sequences = Sequences(random.Random(1))
    ends: dict[tuple[MessageQueue, int], int] = {}
    for queue, count in taken:
        producer_id, first = sequences.take(queue, count)
        assert 0 < producer_id < PRODUCER_ID_END
        assert first == ends.get((queue, producer_id), 0), "without a gap"
        ends[queue, producer_id] = first + count
        assert first + count <= SEQUENCE_END


def test_a_new_identity_is_for_one_queue_alone() -> None:
    sequences = Sequences(random.Random(1))
    before = [sequences.take(queue, 5) for queue in QUEUES]
    assert len({producer_id for producer_id, _ in before}) == 1
    sequences.renew(QUEUES[1])
    after = [sequences.take(queue, 5) for queue in QUEUES]
    assert after[0] == (before[0][0], 5)
    assert after[2] == (before[2][0], 5)
    assert after[1][1] == 0
    assert after[1][0] != before[1][0]


# ---------------------------------------------------------------------------------- turns


def batch_of(queue: MessageQueue, *, pinned: bool) -> Batch:
    return Batch(queue, opened_s=1.0, born_timestamp_ms=0, timeout_ms=3_000, is_pinned=pinned)


def test_batches_of_a_chosen_queue_go_one_at_a_time() -> None:
    turns = QueueTurns()
    first, second, elsewhere = (
        batch_of(queue, pinned=True) for queue in (QUEUES[0], QUEUES[0], QUEUES[1])
    )
    assert turns.claim(first)
    assert not turns.claim(second)
    assert turns.claim(first), "its turn lasts until it leaves"
    assert turns.claim(elsewhere)
    turns.leave(second)
    assert not turns.claim(second)
    turns.leave(first)
    assert turns.claim(second)


@pytest.mark.parametrize("pinned", [False, True])
def test_nothing_goes_so_far_ahead_of_an_open_batch_that_a_broker_could_forget_that(
    pinned: bool,
) -> None:
    turns = QueueTurns()
    oldest = batch_of(QUEUES[0], pinned=not pinned)
    assert turns.claim(oldest)
    for _ in range(AHEAD_MAX - 1):
        batch = batch_of(QUEUES[0], pinned=pinned)
        assert turns.claim(batch)
        turns.leave(batch)
    late = batch_of(QUEUES[0], pinned=pinned)
    assert not turns.claim(late)
    assert not turns.claim(batch_of(QUEUES[0], pinned=not pinned))
    assert turns.claim(oldest), "it may be sent again"
    assert turns.claim(batch_of(QUEUES[1], pinned=pinned))
    turns.leave(oldest)
    assert turns.claim(late)


@pytest.mark.parametrize("pinned", [False, True])
def test_a_batch_that_stood_back_holds_up_only_those_that_must_follow_it(pinned: bool) -> None:
    turns = QueueTurns()
    refused = batch_of(QUEUES[0], pinned=pinned)
    assert turns.claim(refused)
    turns.stand_back(refused)
    assert turns.claim(batch_of(QUEUES[0], pinned=pinned)) == (not pinned)
    for _ in range(3 * AHEAD_MAX):
        other = batch_of(QUEUES[0], pinned=False)
        assert turns.claim(other)
        turns.leave(other)
        if not pinned:
            turns = QueueTurns()
    assert turns.claim(refused)


def test_how_far_ahead_counts_for_all_that_waits_at_a_broker_for_its_time() -> None:
    """Brokers remember it together; but that a chosen queue's batches go one at a time is for those
    that arrive in the same way."""
    turns = QueueTurns()

    def later(queue: MessageQueue, level: int | None, *, pinned: bool = False) -> Batch:
        return Batch(
            queue, opened_s=1.0, born_timestamp_ms=0, timeout_ms=1, is_pinned=pinned, level=level
        )

    oldest = later(QUEUES[0], 3, pinned=True)
    assert turns.claim(oldest)
    assert turns.claim(later(QUEUES[0], None, pinned=True))
    assert not turns.claim(later(QUEUES[0], 3, pinned=True))
    for number in range(AHEAD_MAX - 1):
        batch = later(QUEUES[number % 3], number % 5)
        assert turns.claim(batch)
        turns.leave(batch)
    assert not turns.claim(later(QUEUES[2], 0))
    assert turns.claim(later(QUEUES[2], None))
    turns.leave(oldest)
    assert turns.claim(later(QUEUES[2], 0))


def test_what_is_left_of_a_batch_goes_before_those_behind_it() -> None:
    turns = QueueTurns()
    first, rest, behind = (batch_of(QUEUES[0], pinned=True) for _ in range(3))
    assert turns.claim(first)
    turns.pass_on(first, rest)
    turns.leave(first)
    assert not turns.claim(behind)
    assert turns.claim(rest)
    turns.leave(rest)
    assert turns.claim(behind)


# ---------------------------------------------------------------------------------- sending


async def test_numbers_rise_per_queue_and_are_kept_over_retries(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    broker_a.cut_after_store = 3
    async with Producer(nameserver.address) as producer:
        for _ in range(3):
            await asyncio.gather(
                *(
                    producer.send(
                        Message("orders", b"x"), queue=MessageQueue("orders", "broker-a", n)
                    )
                    for n in range(4)
                    for _ in range(5)
                )
            )
    assert broker_a.duplicates > 0
    assert len({batch.producer_id for batch in broker_a.batches}) == 1
    for queue_id in range(4):
        ends = {0}
        for batch in broker_a.batches:
            if batch.queue_id == queue_id:
                assert batch.producer_sequence in ends
                ends.add(batch.producer_sequence + len(batch.record_sizes))
        assert max(ends) == 15 == len(broker_a.bodies("orders", queue_id))


@pytest.mark.parametrize("pinned", [True, False])
async def test_a_batch_that_may_be_stored_waits_for_its_group(
    two_brokers: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker, pinned: bool
) -> None:
    """Also when the group's next master is another process that has the log."""
    two_brokers.topics["orders"] = FakeTopic({"broker-a": 1})
    async with Producer(two_brokers.address) as producer:
        await producer.send(Message("orders", b"0"))
        two_brokers.topics["orders"] = FakeTopic({"broker-a": 1, "broker-b": 1})
        broker_a.hold_acks.clear()
        queue = MessageQueue("orders", "broker-a", 0) if pinned else None
        sending = asyncio.ensure_future(producer.send(Message("orders", b"1"), queue=queue))
        while len(broker_a.stored) < 2:
            await asyncio.sleep(0.005)
        await two_brokers.publish()
        # The slave has everything and becomes master elsewhere.
        slave = FakeBroker("broker-a")
        slave.producer_bases, slave.ends = broker_a.producer_bases, broker_a.ends
        await slave.start()
        await broker_a.stop()
        del two_brokers.brokers["broker-a"]
        await two_brokers.publish()
        await asyncio.sleep(0.3)
        assert not sending.done()
        two_brokers.brokers["broker-a"] = slave
        await two_brokers.publish()
        receipt = await sending
        await slave.stop()
    assert receipt.queue == MessageQueue("orders", "broker-a", 0)
    assert receipt.queue_offset == 1
    assert slave.duplicates == 1
    assert slave.stored == broker_b.stored == []


async def test_a_new_master_is_asked_as_soon_as_the_route_shows_it(
    nameserver: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker
) -> None:
    """A master that hangs is left, and no pause outlasts the news."""
    loop = asyncio.get_running_loop()
    async with Producer(nameserver.address) as producer:
        await producer.send(Message("orders", b"0"))
        broker_a.hold_acks.clear()
        sends = [
            asyncio.ensure_future(producer.send(Message("orders", b"%d" % n))) for n in range(9)
        ]
        await asyncio.sleep(0.1)
        nameserver.brokers["broker-a"] = broker_b
        before_s = loop.time()
        await nameserver.publish()
        await asyncio.gather(*sends)
        assert loop.time() - before_s < 0.5
        broker_a.hold_acks.set()
    assert sorted(broker_b.bodies("orders")) == [b"%d" % n for n in range(9)]


@pytest.mark.parametrize(
    "status",
    [
        common_pb2.FLUSH_SLAVE_TIMEOUT,
        common_pb2.FLUSH_DISK_TIMEOUT,
        common_pb2.SLAVE_NOT_AVAILABLE,
    ],
)
async def test_what_is_stored_but_not_confirmed_is_asked_again_until_it_is(
    nameserver: FakeNameserver, broker_a: FakeBroker, status: common_pb2.Code
) -> None:
    broker_a.status = status
    async with Producer(nameserver.address) as producer:
        sending = asyncio.ensure_future(producer.send(Message("orders", b"1")))
        while broker_a.duplicates < 2:
            await asyncio.sleep(0.01)
        broker_a.status = common_pb2.OK
        receipt = await sending
        assert receipt.status is SendStatus.OK
        # At the deadline the caller learns what the broker said.
        broker_a.status = status
        late = await producer.send(Message("orders", b"2"), timeout=0.3)
        assert late.status.name == common_pb2.Code.Name(status)
        assert late.queue_offset == broker_a.stored[-1].queue_offset
    assert broker_a.bodies("orders") == [b"1", b"2"]


async def test_without_numbers_it_is_not_asked_again(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    broker_a.status = common_pb2.FLUSH_SLAVE_TIMEOUT
    config = ProducerConfig(idempotent=False)
    async with Producer(nameserver.address, config=config) as producer:
        receipt = await producer.send(Message("orders", b"1"))
    assert receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT
    assert broker_a.bodies("orders") == [b"1"]


async def test_out_of_sequence_is_told_and_the_next_send_has_a_new_identity(
    nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    refused: list[broker_pb2.RecordBatch] = []

    def refuse(batch: broker_pb2.RecordBatch) -> broker_pb2.SendAck | None:
        if refused:
            return None
        refused.append(batch)
        return broker_pb2.SendAck(code=common_pb2.OUT_OF_SEQUENCE, message="too old")

    broker_a.refuse = refuse
    async with Producer(nameserver.address) as producer:
        with pytest.raises(errors.OutOfSequence, match="too old"):
            await producer.send(Message("orders", b"1"), queue=queue)
        await producer.send(Message("orders", b"2"), queue=queue)
    assert broker_a.batches[-1].producer_id != refused[0].producer_id
    assert broker_a.batches[-1].producer_sequence == 0


async def test_a_failing_disk_is_asked_again_until_the_group_has_another_master(
    nameserver: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker
) -> None:
    """More often than `retries_max`: with numbers no retry does harm."""
    broker_a.refuse = lambda batch: broker_pb2.SendAck(code=common_pb2.STORE_FAILED)
    async with Producer(nameserver.address) as producer:
        sending = asyncio.ensure_future(producer.send(Message("orders", b"1")))
        while len(broker_a.batches) < 5:
            await asyncio.sleep(0.01)
        nameserver.brokers["broker-a"] = broker_b
        await nameserver.publish()
        receipt = await sending
    assert receipt.status is SendStatus.OK
    assert broker_b.bodies("orders") == [b"1"]


async def test_what_was_certainly_not_stored_goes_to_another_group(
    two_brokers: FakeNameserver, broker_a: FakeBroker, broker_b: FakeBroker
) -> None:
    broker_a.refuse = lambda batch: broker_pb2.SendAck(code=common_pb2.NOT_ENOUGH_REPLICAS)
    async with Producer(two_brokers.address) as producer:
        receipts = [await producer.send(Message("orders", b"%d" % n)) for n in range(6)]
    assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}
    by_queue: dict[int, list[int]] = {}
    for batch in broker_b.batches:
        by_queue.setdefault(batch.queue_id, []).append(batch.producer_sequence)
    assert all(sequence == list(range(len(sequence))) for sequence in by_queue.values())


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
async def test_messages_of_a_chosen_queue_keep_their_order_whatever_happens(
    nameserver: FakeNameserver, broker_a: FakeBroker, seed: int
) -> None:
    chance = random.Random(seed)
    codes = (common_pb2.BUSY, common_pb2.NOT_MASTER, common_pb2.TOPIC_NOT_FOUND)

    def refuse(batch: broker_pb2.RecordBatch) -> broker_pb2.SendAck | None:
        if chance.random() < 0.25:
            return broker_pb2.SendAck(code=chance.choice(codes), retry_after_ms=chance.randrange(9))
        if chance.random() < 0.1:
            broker_a.cut_after_store = 1
        return None

    broker_a.refuse = refuse
    config = ProducerConfig(send_timeout_ms=20_000, batch_bytes_max=600, linger_ms=seed % 3)
    async with Producer(nameserver.address, config=config) as producer:

        async def send(sender: int) -> None:
            for number in range(0, 120, 40):
                messages = [
                    Message("orders", b"%d-%d" % (sender, each), sharding_key=f"key-{sender}")
                    for each in range(number, number + 40)
                ]
                if chance.random() < 0.5:
                    await asyncio.gather(*(producer.send(message) for message in messages))
                else:
                    await producer.send_batch(messages)

        async with asyncio.TaskGroup() as tasks:
            for sender in range(5):
                tasks.create_task(send(sender))
    for sender in range(5):
        stored = [
            each.record.body
            for each in broker_a.stored
            if each.record.body.startswith(b"%d-" % sender)
        ]
        assert stored == [b"%d-%d" % (sender, number) for number in range(120)]
