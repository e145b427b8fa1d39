"""What members of a group get that subscribe with an SQL filter, of real brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee.consumer_client import (
    ConsumerConfig,
    ConsumeResult,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
    sql,
)
from aerobee.runtime.errors import FilterIllegal
from aerobee.store.format.dead_letter_fields import dead_letter_topic
from tests.support.broker_hand import BrokerHand
from tests.support.own_topic import OwnTopic
from tests.support.real_brokers import RealBroker, RealCluster, RouteServer
from tests.support.waiting import until

WANTED = sql("a > 5 AND b IN ('x', 'y')")


def properties_of(number: int) -> dict[str, str]:
    """Two of 15 numbers match `WANTED`; some have no b, and some an a that is no number."""
    found = {"a": str(number % 10) if number % 7 else "seven", "other": "a"}
    return found if number % 5 == 0 else {**found, "b": "xyzw"[number % 4]}


async def fill(cluster: BrokerHand, topic: str, queue_id: int, numbers: range) -> None:
    await cluster.send(
        topic,
        queue_id,
        [f"{queue_id}:{number}".encode() for number in numbers],
        properties=[properties_of(number) for number in numbers],
    )


def matching(queues: int, numbers: range) -> Counter[bytes]:
    return Counter(
        f"{queue_id}:{number}".encode()
        for queue_id in range(queues)
        for number in numbers
        if WANTED.matches(properties_of(number))
    )


async def test_members_get_exactly_what_matches_while_others_come_go_and_restart(
    own: OwnTopic,
) -> None:
    numbers = range(2_500)
    seen: Counter[bytes] = Counter()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        await asyncio.sleep(0.001)
        seen.update(message.body for message in messages)

    def member() -> PushConsumer:
        return own.push(listener, WANTED)

    for queue_id in range(4):
        await fill(own, own.topic, queue_id, numbers[:500])
    first, second = member(), member()
    async with first:
        await until(lambda: seen)
        async with second:
            await until(lambda: len(second.statistics().queues) == 2)
            for queue_id in range(4):
                await fill(own, own.topic, queue_id, numbers[500:1_500])
            await until(lambda: len(seen) > 300)
        # It has left the group, with queues half read.
        await until(lambda: len(first.statistics().queues) == 4)
    for queue_id in range(4):
        await fill(own, own.topic, queue_id, numbers[1_500:])
    expected = matching(4, numbers)
    async with member():
        await until(lambda: seen.keys() == expected.keys())

        async def is_read() -> bool:
            return await own.offsets() == dict.fromkeys(range(4), 2_500)

        await until(is_read)
    assert seen == expected  # everybody left in order: nothing came twice


async def test_a_broker_that_starts_again_goes_on_filtering(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    broker = cluster.brokers["broker-a"]
    seen: Counter[bytes] = Counter()
    consumer = PushConsumer(
        "g",
        lambda messages: seen.update(message.body for message in messages),
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("orders", WANTED)
    await fill(cluster, "orders", 1, range(600))
    async with consumer:
        await until(lambda: seen)
        await broker.stop()
        await broker.start()
        await fill(cluster, "orders", 1, range(600, 900))
        expected = {
            f"1:{number}".encode() for number in range(900) if WANTED.matches(properties_of(number))
        }
        await until(lambda: seen.keys() >= expected)
    assert seen.keys() == expected


async def test_a_long_stretch_without_a_match_is_passed_and_holds_nobody_up(
    own: OwnTopic,
) -> None:
    await own.store([b"no"] * 20_000, properties=[{"a": "1"}] * 20_000)
    queue = own.queue()
    async with own.unsubscribed() as consumer:
        await consumer.assign([queue], sql("a > 5"))
        assert await consumer.poll(timeout=0.1) == []
        async with PullConsumer(f"{own.group_name}-others", **own.options()) as others:
            await others.assign([queue])
            assert len(await others.poll(10, timeout=5)) == 10
        await until(lambda: consumer.position(queue) == 20_000)
        await own.store([b"yes"], properties=[{"a": "6"}])
        (message,) = await consumer.poll(timeout=10)
        assert (message.body, message.queue_offset) == (b"yes", 20_000)


async def test_a_batch_may_be_smaller_than_what_a_read_judges(own: OwnTopic) -> None:
    """What matched beyond the batch comes with the next one."""
    await fill(own, own.topic, 0, range(600))
    options = ConsumerConfig(fetch_bytes_max=2_000, session_timeout_ms=1_000)
    async with own.unsubscribed(config=options) as consumer:
        await consumer.assign([own.queue()], WANTED)
        bodies: list[bytes] = []
        while len(bodies) < matching(1, range(600)).total():
            bodies += [message.body for message in await consumer.poll(3, timeout=10)]
    assert bodies == list(matching(1, range(600)))


async def test_what_failed_comes_again_by_the_filter_of_its_topic_or_is_a_dead_letter(
    tmp_path: Path, quick: ConsumerConfig
) -> None:
    broker = await RealBroker(
        "broker-a",
        tmp_path / "broker-a",
        {"orders": 1},
        store_options={"delay_levels_ms": (20,) * 18},  # type: ignore[dict-item]
    ).start()
    nameserver = await RouteServer([broker]).start()
    nameserver.has_retry_topics = True
    cluster = RealCluster({"broker-a": broker}, nameserver)
    try:
        numbers = range(40)
        await fill(cluster, "orders", 0, numbers)
        wanted = list(matching(1, numbers))
        seen: Counter[bytes] = Counter()
        heal = False

        def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            seen.update(message.body for message in messages)
            return ConsumeResult.SUCCESS if heal else ConsumeResult.RETRY_LATER

        def member(text: str) -> PushConsumer:
            consumer = PushConsumer(
                "g", listener, nameservers=cluster.address, start_from=StartFrom.FIRST, config=quick
            )
            return consumer.subscribe("orders", sql(text))

        async with member(WANTED.text):
            await until(lambda: seen == Counter(dict.fromkeys(wanted, 17)))
        async with PullConsumer(
            "reader", nameservers=cluster.address, start_from=StartFrom.FIRST, config=quick
        ) as reader:
            await reader.assign(await reader.queues_of(dead_letter_topic("g")), WANTED)
            dead: list[bytes] = []
            while len(dead) < len(wanted):
                dead += [message.body for message in await reader.poll(timeout=10)]
        assert sorted(dead) == sorted(wanted)
        # What was sent back before the filter changed comes only if it passes the new one.
        await fill(cluster, "orders", 0, numbers)
        seen.clear()
        async with member("b IN ('x', 'y')"):
            await until(lambda: len(seen) > len(wanted))
        heal = True
        seen.clear()
        async with member("a = 8 AND b IN ('x', 'y')") as last:
            await until(lambda: last.statistics().lag == 0 and seen.total() > 0)
        assert {int(body[2:]) % 10 for body in seen} == {8}
    finally:
        await cluster.stop()


@pytest.mark.parametrize("text", ["", "a LIKE 'x'", "a = 1 nonsense", "'x'"])
def test_what_is_no_expression_is_refused_where_it_is_written(text: str) -> None:
    with pytest.raises(FilterIllegal, match="illegal at"):
        sql(text)
