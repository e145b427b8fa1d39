"""A listener of messages that are received one by one: its answers, its time, its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.consumer_client import (
    Batch,
    BlockingSimpleConsumer,
    ConsumeResult,
    Reject,
    RetryLater,
    RetryPolicy,
    SimpleConsumer,
)
from aerobee.producer_client import Producer
from aerobee.runtime.errors import InvalidArgument, LeaseHeld
from aerobee.testing import VirtualCluster, faults
from tests.integrations.letters import next_letter
from tests.support.own_topic import OwnTopic
from tests.support.waiting import until

Work = Callable[[VirtualCluster, Producer], Awaitable[None]]
QUICK = RetryPolicy(delays_ms=(100,))


def simple(own: OwnTopic) -> SimpleConsumer:
    return SimpleConsumer(own.group_name, nameservers=own.nameservers).subscribe(own.topic)


async def test_each_answer_is_said_for_its_message(own: OwnTopic) -> None:
    await own.store([b"good", b"raise", b"later", b"old", b"reject", b"batch"])
    seen: list[bytes] = []
    consumer = simple(own)

    async def handle(batch: Batch) -> ConsumeResult | RetryLater | None:
        (message,) = batch
        seen.append(message.body)
        if message.body == b"batch":
            batch.reject(0, "in a batch")
        if message.reconsume_times == 0:
            if message.body == b"raise":
                raise ValueError("a bad day")
            if message.body == b"later":
                return RetryLater(after=0.2)
            if message.body == b"old":
                return ConsumeResult.RETRY_LATER
        if message.body == b"reject":
            raise Reject("never")
        if len(seen) == 9:
            asyncio.get_running_loop().call_soon(consumer.stop)
        return None

    async with consumer, asyncio.timeout(60):
        await consumer.listen(handle, retry=QUICK)
        assert await consumer.receive(timeout=0) == []
    assert sorted(seen) == sorted(
        [b"good", b"raise", b"raise", b"later", b"later", b"old", b"old", b"reject", b"batch"]
    )
    letters = [await next_letter(own) for _ in range(2)]
    assert {letter.body for letter in letters} == {b"reject", b"batch"}
    assert any(letter.reason.startswith("never [test_popped_listening.py:") for letter in letters)


async def test_a_plain_function_runs_in_threads_and_a_blocking_consumer_stops(
    own: OwnTopic,
) -> None:
    await own.store([b"%d" % number for number in range(20)])
    seen: set[bytes] = set()
    threads: set[str] = set()

    def work() -> None:
        consumer = BlockingSimpleConsumer(own.group_name, nameservers=own.nameservers)

        def handle(messages: Sequence[ReceivedMessage]) -> None:
            seen.add(messages[0].body)
            threads.add(threading.current_thread().name)
            if len(seen) == 20:
                consumer.stop()

        with consumer.subscribe(own.topic):
            consumer.listen(handle, max_concurrency=4)

    await asyncio.to_thread(work)
    assert len(seen) == 20
    assert all(name.startswith("aerobee-listener") for name in threads)
    async with simple(own) as consumer:
        assert await consumer.receive(timeout=0) == []


async def test_no_more_calls_run_than_asked_for(own: OwnTopic) -> None:
    await own.store([b"%d" % number for number in range(20)])
    running = most = handled = 0
    consumer = simple(own)

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal running, most, handled
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        handled += 1
        if handled == 20:
            consumer.stop()

    async with consumer, asyncio.timeout(60):
        await consumer.listen(handle, max_concurrency=3)
    assert most == 3


async def test_mistakes_are_told_and_what_waiting_does_not_heal_is_raised(own: OwnTopic) -> None:
    async def handle(messages: Sequence[ReceivedMessage]) -> None: ...

    consumer = simple(own)
    with pytest.raises(InvalidArgument, match="not running"):
        await consumer.listen(handle)
    async with own.push(lambda messages: None) as member:
        await until(lambda: len(member.statistics().queues) == 4)
        async with consumer:
            with pytest.raises(InvalidArgument, match="max_concurrency"):
                await consumer.listen(handle, max_concurrency=0)
            with pytest.raises(LeaseHeld):
                await consumer.listen(handle)


# --------------------------------------------------------------------------------- virtual time


async def in_virtual_time(work: Work) -> None:
    async with (
        VirtualCluster() as cluster,
        Producer(cluster.nameservers) as producer,
    ):
        await cluster.create_topic("films", queues=2)
        await work(cluster, producer)


def member_of(cluster: VirtualCluster) -> SimpleConsumer:
    return SimpleConsumer("g", nameservers=cluster.nameservers, invisible=12).subscribe("films")


async def test_a_long_call_keeps_its_message() -> None:
    calls: list[int] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        calls.append(messages[0].reconsume_times)
        await asyncio.sleep(600)

    async def work(cluster: VirtualCluster, producer: Producer) -> None:
        await producer.send(Message("films", b"0"))
        async with member_of(cluster) as one, member_of(cluster) as two:
            async with asyncio.TaskGroup() as group:
                for member in (one, two):
                    group.create_task(member.listen(handle))
                await cluster.advance(minutes=11)
                one.stop()
                two.stop()
            assert await one.receive(timeout=0) == []
        assert calls == [0]

    await in_virtual_time(work)


async def test_a_call_ends_before_another_member_has_its_message() -> None:
    """The member cannot reach its broker any more, and believes in its time, not in an answer."""
    running: set[str] = set()
    begun: list[str] = []

    def listener(name: str) -> Callable[[Sequence[ReceivedMessage]], Awaitable[None]]:
        async def handle(messages: Sequence[ReceivedMessage]) -> None:
            assert not running
            running.add(name)
            begun.append(name)
            try:
                await asyncio.sleep(600 if len(begun) == 1 else 0)
            finally:
                running.discard(name)

        return handle

    async def work(cluster: VirtualCluster, producer: Producer) -> None:
        await producer.send(Message("films", b"0"))
        async with member_of(cluster) as one, asyncio.TaskGroup() as group:
            group.create_task(one.listen(listener("one")))
            await cluster.advance(seconds=5)
            with faults.cut_network(cluster, "broker-a"):
                await cluster.advance(minutes=1)
                assert not running
            async with member_of(cluster) as two:
                group.create_task(two.listen(listener("two")))
                await cluster.advance(minutes=2)
                two.stop()
            one.stop()
        assert len(begun) >= 2
        async with AdminClient(cluster.nameservers) as admin:
            assert (await admin.groups.describe("g")).lag == 0

    await in_virtual_time(work)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_is_not_finished_at_the_end_comes_again_at_once(is_cancelled: bool) -> None:
    calls: list[int] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        calls.append(messages[0].reconsume_times)
        await asyncio.sleep(3_600)

    async def work(cluster: VirtualCluster, producer: Producer) -> None:
        await producer.send(Message("films", b"0"))
        async with member_of(cluster) as consumer:
            listening = asyncio.create_task(consumer.listen(handle))
            await cluster.advance(seconds=1)
            if is_cancelled:
                listening.cancel()
            else:
                consumer.stop()
            await cluster.advance(seconds=7)  # release_timeout_ms is 5 s
            assert listening.done()
            (message,) = await consumer.receive(timeout=1)
            assert message.reconsume_times == 1
            await consumer.ack(message)
        assert calls == [0]

    await in_virtual_time(work)


async def test_it_goes_on_when_its_broker_comes_back() -> None:
    seen: list[bytes] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(messages[0].body)

    async def work(cluster: VirtualCluster, producer: Producer) -> None:
        async with member_of(cluster) as consumer, asyncio.TaskGroup() as group:
            group.create_task(consumer.listen(handle))
            await cluster.advance(seconds=3)
            faults.kill(cluster)
            await cluster.advance(seconds=90)
            await cluster.start_broker()
            await producer.send(Message("films", b"0"))
            await cluster.advance(seconds=60)
            consumer.stop()
        assert seen == [b"0"]

    await in_virtual_time(work)
