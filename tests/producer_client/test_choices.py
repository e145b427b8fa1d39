"""Queue choice, avoidance, retries, splitting, limits: the parts that decide without waiting."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.blocks import split_sizes
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.delivery import ByteBudget
from aerobee.producer_client.receipt import Durability, Receipts, SendStatus, StoredBatch
from aerobee.producer_client.retries import delay_s, retry_of
from aerobee.producer_client.selector import LatencyTable, RoundRobin, by_sharding_key, interleaved
from aerobee.runtime import errors
from aerobee.store.format.message_id import UniqueIdGenerator
from aerobee.store.format.record import HostAddress
from tests.support.property_runs import examples

QUEUES = [MessageQueue("t", broker, number) for broker in "abc" for number in range(4)]


def test_queues_are_taken_in_turn_over_all_brokers() -> None:
    selector = RoundRobin(LatencyTable(), start=5)
    queues = interleaved(QUEUES)
    chosen = [selector.choose(queues, now_s=0.0) for _ in range(24)]
    assert Counter(chosen) == dict.fromkeys(QUEUES, 2)
    assert all(
        {queue.broker_name for queue in chosen[start : start + 3]} == {"a", "b", "c"}
        for start in range(0, 24, 3)
    )


def test_topics_that_are_sent_to_in_turn_reach_all_their_queues_each() -> None:
    selector = RoundRobin(LatencyTable(), start=3)
    topics = [[MessageQueue(topic, "a", n) for n in range(4)] for topic in ("orders", "bills")]
    chosen = [selector.choose(queues, now_s=0.0) for _ in range(8) for queues in topics]
    assert {chosen.count(queue) for queues in topics for queue in queues} == {2}


def test_a_failed_broker_is_avoided_until_its_time_is_over() -> None:
    latency = LatencyTable()
    selector = RoundRobin(latency)
    latency.failed("b", now_s=100.0)

    def chosen(now_s: float, avoid: str | None = None) -> set[str]:
        return {selector.choose(QUEUES, now_s=now_s, avoid=avoid).broker_name for _ in range(24)}

    assert chosen(100.0) == {"a", "c"}
    assert chosen(109.9, avoid="a") == {"c"}
    assert chosen(110.0) == {"a", "b", "c"}
    latency.failed("a", now_s=200.0)
    latency.failed("b", now_s=200.0)
    latency.failed("c", now_s=200.0)
    assert chosen(200.0) == {"a", "b", "c"}, "all are avoided, so none is"
    assert chosen(200.0, avoid="a") == {"b", "c"}


@pytest.mark.parametrize(
    ("latency_ms", "avoided_ms"),
    [(549, 0), (550, 2_000), (1_800, 5_000), (3_000, 6_000), (5_000, 10_000), (15_000, 30_000)],
)
def test_slow_brokers_are_avoided_as_long_as_the_table_says(
    latency_ms: int, avoided_ms: int
) -> None:
    table = LatencyTable()
    table.sent("a", latency_ms=latency_ms, now_s=50.0)
    end_s = 50.0 + avoided_ms / 1_000
    assert table.is_available("a", end_s)
    if avoided_ms:
        assert not table.is_available("a", end_s - 0.001)
        table.sent("a", latency_ms=1, now_s=51.0)
        assert table.is_available("a", 51.0), "one quick send ends the avoidance"


@given(st.text(min_size=1))
def test_a_sharding_key_has_one_queue_whoever_asks(key: str) -> None:
    assert by_sharding_key(QUEUES, key) == by_sharding_key(list(QUEUES), key)
    assert by_sharding_key(QUEUES, key) in QUEUES


def test_sharding_keys_spread() -> None:
    counts = Counter(by_sharding_key(QUEUES, f"order-{n}") for n in range(1_200))
    assert set(counts) == set(QUEUES)
    assert max(counts.values()) < 200


def test_every_error_is_final_or_retried_for_a_reason() -> None:
    retried = {
        name
        for name, error in vars(errors).items()
        if isinstance(error, type)
        and issubclass(error, errors.AerobeeError)
        and retry_of(error("x")) is not None
    }
    assert retried == {
        "Busy",
        "DeadlineExceeded",
        "AerobeeError",
        "NoBrokerAvailable",
        "NotEnoughReplicas",
        "NotMaster",
        "NotWritable",
        "QueueNotFound",
        "QuotaExceeded",
        "RegistryUnavailable",
        "ShuttingDown",
        "StaleEpoch",
        "StoreFailed",
        "TopicNotFound",
        "Unreachable",
    }


def test_waits_grow_and_busy_brokers_name_their_own() -> None:
    chance = random.Random(1)
    error = errors.Unreachable("gone")
    assert 0.010 <= delay_s(error, 1, chance) <= 0.020
    assert 0.250 <= delay_s(error, 50, chance) <= 0.500
    assert delay_s(errors.Busy("behind", retry_after_ms=70), 9, chance) == 0.070
    assert delay_s(errors.Busy("behind", retry_after_ms=0), 9, chance) > 0


@given(st.lists(st.integers(1, 300), min_size=1), st.integers(1, 400))
def test_pieces_are_about_equal_and_none_is_too_large(sizes: list[int], bytes_max: int) -> None:
    ends = split_sizes(sizes, bytes_max=bytes_max)
    assert ends[-1] == len(sizes)
    start = 0
    for end in ends:
        assert end > start
        assert end == start + 1 or sum(sizes[start:end]) <= bytes_max
        left = sum(sizes[start:])
        share = left / -(-left // bytes_max)
        assert sum(sizes[start:end]) >= share or sum(sizes[start : end + 1]) > bytes_max
        start = end


@given(st.lists(st.integers(1, 5), min_size=1), st.randoms(use_true_random=False))
def test_receipts_find_their_message(counts: list[int], chance: random.Random) -> None:
    parts = []
    expected = []
    for number, count in enumerate(counts):
        queue = MessageQueue("t", "a", number)
        ids = [f"{number:016X}{index:016X}" for index in range(count)]
        parts.append(
            StoredBatch(
                queue=queue,
                status=SendStatus.OK,
                durability=Durability.FSYNCED,
                base_queue_offset=100 * number,
                base_physical_offset=1_000 * number,
                store_timestamp_ms=7,
                store_host=HostAddress.parse("127.0.0.1:10911"),
                properties=[f"UNIQ_KEY\x01{each}\x02".encode() for each in ids],
                sizes=[10] * count,
            )
        )
        expected += [(queue, 100 * number + index, ids[index]) for index in range(count)]
    order = list(range(len(expected)))
    chance.shuffle(order)
    receipts = Receipts(parts, order)
    assert len(receipts) == len(expected)
    for receipt, place in zip(receipts, order, strict=True):
        assert (receipt.queue, receipt.queue_offset, receipt.message_id) == expected[place]
    assert receipts[-1].message_id == expected[order[-1]][2]
    assert [each.message_id for each in receipts[:2]] == [expected[n][2] for n in order[:2]]
    last = Receipts(parts)[len(expected) - 1]
    offset = 1_000 * (len(counts) - 1) + 10 * (counts[-1] - 1)
    assert last.offset_message_id.endswith(f"{offset:016X}")
    with pytest.raises(IndexError):
        _ = receipts[len(expected)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"send_timeout_ms": 0},
        {"batch_bytes_max": 5 * 1024 * 1024},
        {"buffered_bytes_max": 0},
        {"compression": "gzip"},
        {"compression": None},
        {"compression": 7},
        {"linger_ms": "5"},
        {"retries_max": True},
        {"batch_bytes_max": 0.5},
    ],
)
def test_settings_that_cannot_work_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match=next(iter(arguments))):
        ProducerConfig(**arguments)


async def test_room_is_given_in_order_and_survives_cancellation() -> None:
    budget = ByteBudget(10)
    assert budget.take_nowait(100), "one message may cross the bound"
    assert not budget.take_nowait(1)
    order: list[int] = []

    async def take(number: int) -> None:
        await budget.take(6)
        order.append(number)

    tasks = [asyncio.ensure_future(take(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    budget.release(100)
    tasks[2].cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == [0, 3]
    assert budget.bytes_used == 12
    assert not budget.take_nowait(1)
    budget.release(12)
    assert budget.bytes_used == 0
    assert budget.take_nowait(1)
    await asyncio.gather(*tasks, return_exceptions=True)


@settings(max_examples=examples(25))
@example([(0, 0), (-1, 1)])
@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 70_000)), max_size=6))
def test_ids_made_together_are_those_made_one_by_one(steps: list[tuple[int, int]]) -> None:
    together, single = (
        UniqueIdGenerator(random.Random(1), ip=b"\x0a\x00\x00\x05", process_id=7) for _ in range(2)
    )
    now_ms = 1_700_000_000_000
    seen: set[str] = set()
    for elapsed_ms, count in steps:
        now_ms += elapsed_ms
        ids = together.next_ids(now_ms, count)
        assert len(ids) == count
        for index in {0, count // 2, count - 1} & set(range(count)):
            assert len(ids[index]) == 32
        assert seen.isdisjoint(ids)
        seen.update(ids)
        if count < 300:
            assert ids == [single.next_id(now_ms) for _ in range(count)]
        else:
            single.next_ids(now_ms, count)
    assert together.next_id(now_ms) == single.next_id(now_ms)
