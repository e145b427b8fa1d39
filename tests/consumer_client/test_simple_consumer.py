"""Messages one by one: received, acknowledged, given back, renewed, by any number of members."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message
from aerobee.consumer_client import (
    BlockingSimpleConsumer,
    PoppedMessage,
    Reject,
    SimpleConsumer,
    sql,
)
from aerobee.producer_client import Producer
from aerobee.runtime.errors import (
    DeadlineExceeded,
    InvalidArgument,
    LeaseHeld,
    ShuttingDown,
    StaleHandle,
    Unreachable,
)
from aerobee.store.format.dead_letter_fields import read_dead_letter
from aerobee.testing import VirtualCluster, faults
from tests.support.own_topic import OwnTopic
from tests.support.waiting import until

PROGRAM = Path(__file__).with_name("simple_member.py")


def simple(own: OwnTopic, **options: object) -> SimpleConsumer:
    consumer = SimpleConsumer(own.group_name, nameservers=own.nameservers, **options)  # type: ignore[arg-type]
    return consumer.subscribe(own.topic)


async def all_of(consumer: SimpleConsumer, count: int) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    while len(found) < count:
        found += await consumer.receive(count - len(found), timeout=5.0)
    return found


async def until_committed(own: OwnTopic, offsets: dict[int, int]) -> None:
    """A broker commits what POP has finished a little later."""

    async def is_committed() -> bool:
        committed = await own.offsets()
        return all(committed.get(queue_id) == offset for queue_id, offset in offsets.items())

    await until(is_committed)


async def test_each_message_is_acknowledged_for_itself(own: OwnTopic) -> None:
    for queue_id in range(4):
        await own.store([b"%d %d" % (queue_id, number) for number in range(20)], queue_id)
    async with simple(own) as first, simple(own) as second:
        got = [*await all_of(first, 50), *await all_of(second, 30)]
        assert len({message.body for message in got}) == 80
        assert {message.reconsume_times for message in got} == {0}
        assert {message.queue.queue_id for message in got} == set(range(4))
        await first.ack(got)  # of the other member's, too
        await first.ack(got[0])  # again
        assert await second.receive(timeout=0) == []
    await until_committed(own, dict.fromkeys(range(4), 20))


async def test_what_failed_comes_again_and_counts(own: OwnTopic) -> None:
    await own.store([b"0", b"1"])
    async with simple(own) as consumer:
        first, second = await all_of(consumer, 2)
        await consumer.nack(first)
        (again,) = await all_of(consumer, 1)
        assert (again.body, again.reconsume_times) == (first.body, 1)
        with pytest.raises(StaleHandle):
            await consumer.ack([first, second])
        await consumer.ack(again)
        assert await consumer.receive(timeout=0) == []


async def test_a_rejected_message_is_a_dead_letter_with_its_reason(own: OwnTopic) -> None:
    await own.store([b"bad"])
    async with simple(own) as consumer:
        (message,) = await all_of(consumer, 1)
        await consumer.reject(message, "no number")
        assert await consumer.receive(timeout=0) == []
        with pytest.raises(InvalidArgument):
            await consumer.nack([object()])  # type: ignore[list-item]
    async with SimpleConsumer("reader", nameservers=own.nameservers).subscribe(
        f"%DLQ%{own.group_name}"
    ) as reader:
        (letter,) = await all_of(reader, 1)
        death = read_dead_letter(letter.record).death
        assert (death.reason_class, death.reason, death.attempts) == ("Reject", "no number", 1)
        assert death.member == consumer.client_id
        await reader.ack(letter)
    assert Reject("r").reason == "r"


async def test_members_are_listed_and_get_resent_letters_also_after_they_stopped(
    own: OwnTopic,
) -> None:
    await own.store([b"bad"])
    async with AdminClient(own.nameservers) as admin:
        consumer = simple(own, client_id="one")
        async with consumer:
            (message,) = await all_of(consumer, 1)
            (member,) = (await admin.groups.describe(own.group_name)).members
            assert (member.client_id, member.official) == ("one", "simple consumer")
            assert member.subscriptions == {own.topic: "*"}
            (client,) = (await admin.clients.list(own.group_name)).clients
            assert (client.kind, client.protocol, client.topics) == (
                "simple consumer",
                "aerobee",
                (own.topic,),
            )
            await consumer.reject(message, "no number")
        letters = [letter async for letter in admin.dead_letters.find(own.group_name)]
        assert await admin.dead_letters.resend(own.group_name, letters) == [None]
    async with simple(own) as consumer:
        (again,) = await all_of(consumer, 1)
        assert (again.body, again.reconsume_times) == (b"bad", 0)
        await consumer.ack(again)


async def test_filters_are_exact(own: OwnTopic) -> None:
    await own.store([b"0", b"1"], tag="a")
    await own.store([b"2"], tag="b")
    consumer = SimpleConsumer(own.group_name, nameservers=own.nameservers)
    async with consumer.subscribe(own.topic, sql("TAGS = 'b'")):
        (message,) = await all_of(consumer, 1)
        assert message.body == b"2"
        await consumer.ack(message)


async def test_members_under_leases_keep_their_queues(own: OwnTopic) -> None:
    async with own.push(lambda messages: None) as member:
        await until(lambda: len(member.statistics().queues) == 4)
        async with simple(own) as consumer:
            with pytest.raises(LeaseHeld):
                await consumer.receive(timeout=0)


async def test_a_blocking_consumer_does_the_same(own: OwnTopic) -> None:
    await own.store([b"0", b"1", b"2", b"3"])

    def work() -> list[bytes]:
        consumer = BlockingSimpleConsumer(own.group_name, nameservers=own.nameservers)
        with consumer.subscribe(own.topic):
            found: list[PoppedMessage] = []
            while len(found) < 4:
                found += consumer.receive(timeout=5.0)
            with consumer.keeping(found, at_most=60):
                consumer.ack(found[0])
            consumer.nack(found[1])
            consumer.change_invisible(found[2], 3_600)
            consumer.reject(found[3], "never")
            (again,) = consumer.receive(timeout=5.0)
            consumer.ack(again)
            return [found[1].body, again.body]

    first, again = await asyncio.to_thread(work)
    assert first == again


async def test_mistakes_are_told_at_once(own: OwnTopic) -> None:
    for wrong in ({"invisible": -1}, {"invisible": "30"}):
        with pytest.raises(InvalidArgument):
            simple(own, **wrong)
    consumer = SimpleConsumer("g", nameservers=own.nameservers)
    with pytest.raises(InvalidArgument, match="subscribe"):
        await consumer.start()
    consumer.subscribe(own.topic)
    with pytest.raises(InvalidArgument, match="not running"):
        await consumer.receive()
    async with consumer:
        with pytest.raises(InvalidArgument, match="10"):
            await consumer.receive(invisible=1)
    with pytest.raises(ShuttingDown):
        await consumer.receive()


# --------------------------------------------------------------------------------- virtual time


async def in_virtual_time(
    work: Callable[[VirtualCluster, SimpleConsumer, Producer], Awaitable[None]],
    *,
    groups: int = 1,
    replicas: int = 1,
) -> None:
    async with (
        VirtualCluster(groups=groups, replicas=replicas) as cluster,
        Producer(cluster.nameservers) as producer,
    ):
        await cluster.create_topic("films", queues=2)
        consumer = SimpleConsumer("g", nameservers=cluster.nameservers, invisible=30)
        async with consumer.subscribe("films"):
            await work(cluster, consumer, producer)


async def test_a_message_is_kept_while_its_block_runs_and_not_longer_than_it_may() -> None:
    async def work(cluster: VirtualCluster, consumer: SimpleConsumer, producer: Producer) -> None:
        await producer.send(Message("films", b"0"))
        (message,) = await all_of(consumer, 1)
        async with consumer.keeping(message, at_most=600):
            await cluster.advance(minutes=8)
            assert await consumer.receive(timeout=0) == []
            await cluster.advance(minutes=3)  # beyond the limit
        (again,) = await all_of(consumer, 1)
        assert again.reconsume_times == 1
        async with consumer.keeping(again):
            await cluster.advance(minutes=5)
        await consumer.ack(again)
        await cluster.advance(minutes=5)
        assert await consumer.receive(timeout=0) == []

    await in_virtual_time(work)


async def test_a_message_is_kept_by_the_time_it_was_received_with() -> None:
    async def work(cluster: VirtualCluster, consumer: SimpleConsumer, producer: Producer) -> None:
        await producer.send(Message("films", b"short"))
        (short,) = await consumer.receive(timeout=5, invisible=10)  # the consumer says 30 s
        await producer.send(Message("films", b"long"))
        (long,) = await all_of(consumer, 1)
        await cluster.advance(seconds=9)  # it is nearly over
        async with consumer.keeping([short, long]):
            await cluster.advance(minutes=2)
            assert await consumer.receive(timeout=0) == []
            await consumer.change_invisible(short, 6)
            await cluster.advance(seconds=8)
            assert await consumer.receive(timeout=0) == []
            await cluster.advance(minutes=2)
            assert await consumer.receive(timeout=0) == []
        await consumer.ack([short, long])

    await in_virtual_time(work)


async def test_a_message_whose_time_is_over_is_kept_no_longer_and_the_others_are() -> None:
    async def work(cluster: VirtualCluster, consumer: SimpleConsumer, producer: Producer) -> None:
        await producer.send(Message("films", b"0"))
        (old,) = await all_of(consumer, 1)
        await cluster.advance(seconds=31)
        (again,) = await all_of(consumer, 1)
        async with consumer.keeping([old, again]):
            await cluster.advance(minutes=3)
            assert old.is_settled
            assert await consumer.receive(timeout=0) == []
        await consumer.ack(again)

    await in_virtual_time(work)


async def test_calls_about_the_same_messages_in_any_order_all_end() -> None:
    async def work(cluster: VirtualCluster, consumer: SimpleConsumer, producer: Producer) -> None:
        for number in range(2):
            await producer.send(Message("films", b"%d" % number))
        first, second = await all_of(consumer, 2)
        async with consumer.keeping([first, second]), asyncio.timeout(60):
            await asyncio.gather(
                *(
                    consumer.change_invisible(messages, 60)
                    for messages in ([first, second], [second, first], [first, first])
                    for _ in range(3)
                )
            )
            await consumer.ack([second, first, second])

    await in_virtual_time(work)


async def test_messages_come_again_when_they_are_told_to() -> None:
    async def work(cluster: VirtualCluster, consumer: SimpleConsumer, producer: Producer) -> None:
        await producer.send(Message("films", b"0"))
        (message,) = await all_of(consumer, 1)
        await cluster.advance(seconds=31)
        (message,) = await all_of(consumer, 1)
        assert message.reconsume_times == 1
        await consumer.nack(message, after=300)
        await cluster.advance(seconds=298)
        assert await consumer.receive(timeout=0) == []
        (message,) = await consumer.receive(timeout=5)
        assert message.reconsume_times == 2
        await consumer.change_invisible(message, 3_600)
        await cluster.advance(minutes=59)
        assert await consumer.receive(timeout=0) == []
        await consumer.ack(message)

    await in_virtual_time(work)


async def test_all_brokers_are_polled_and_the_first_one_with_a_message_ends_the_wait() -> None:
    async def work(cluster: VirtualCluster, consumer: SimpleConsumer, producer: Producer) -> None:
        seen: Counter[bytes] = Counter()
        brokers: set[str] = set()
        for number in range(12):
            waiting = asyncio.create_task(consumer.receive(timeout=15))
            await cluster.advance(seconds=2)
            began = cluster.now
            await producer.send(Message("films", b"%d" % number))
            messages = await waiting
            assert (cluster.now - began).total_seconds() < 1
            await consumer.ack(messages)
            seen.update(message.body for message in messages)
            brokers.update(message.queue.broker_name for message in messages)
        assert set(seen.values()) == {1}
        assert len(seen) == 12
        assert brokers == {"broker-a", "broker-b"}
        began = cluster.now
        assert await consumer.receive(timeout=30) == []
        assert (cluster.now - began).total_seconds() == pytest.approx(30, abs=0.5)

    await in_virtual_time(work, groups=2)


async def test_acknowledged_is_acknowledged_after_a_crash() -> None:
    async def work(cluster: VirtualCluster, consumer: SimpleConsumer, producer: Producer) -> None:
        for number in range(20):
            await producer.send(Message("films", b"%d" % number))
        done: set[bytes] = set()
        for round_ in range(4):
            messages = await all_of(consumer, 5)
            bodies = {message.body for message in messages[:4]}
            assert not bodies & done
            await consumer.ack(messages[:4])
            done |= bodies
            faults.kill(cluster)
            await cluster.advance(seconds=5)
            await cluster.start_broker()
            await cluster.advance(seconds=31 + round_)
        while len(done) < 20:
            messages = await all_of(consumer, 1)
            bodies = {message.body for message in messages}
            assert not bodies & done
            await consumer.ack(messages)
            done |= bodies
        async with AdminClient(cluster.nameservers) as admin:

            async def has_no_lag() -> bool:
                return (await admin.groups.describe("g")).lag == 0

            await until(has_no_lag)

    await in_virtual_time(work)


async def test_an_ordered_group_has_one_message_of_a_key_out_at_a_time() -> None:
    async def work(cluster: VirtualCluster, consumer: SimpleConsumer, producer: Producer) -> None:
        async with AdminClient(cluster.nameservers) as admin:
            await admin.groups.configure("g", ordered=True)
        for number in range(3):
            for key in ("a", "b"):
                await producer.send(Message("films", b"%d" % number, sharding_key=key))
        seen: dict[str, list[int]] = {"a": [], "b": []}
        while sum(map(len, seen.values())) < 6:
            messages = await consumer.receive(timeout=5)
            keys = [message.sharding_key or "" for message in messages]
            assert len(keys) == len(set(keys))
            for message in messages:
                seen[message.sharding_key or ""].append(int(message.body))
            await consumer.ack(messages)
        assert seen == {"a": [0, 1, 2], "b": [0, 1, 2]}

    await in_virtual_time(work)


@pytest.mark.slow
async def test_members_that_are_killed_lose_nothing(own: OwnTopic) -> None:
    await own.store([b"%d" % number for number in range(200)])
    said: list[bytes] = []
    unsure: set[bytes] = set()
    """Those that a member was acknowledging when it was killed: the broker may have heard of it."""
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            *(own.nameservers, own.group_name, own.topic),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        lines = process.stdout
        told = [await asyncio.wait_for(lines.readline(), 40) for _ in range(80)]
        process.kill()
        told += [line async for line in lines if line.endswith(b"\n")]
        await process.wait()
        done = [line.strip() for line in told if not line.startswith(b"?")]
        begun = {line.strip().removeprefix(b"?") for line in told if line.startswith(b"?")}
        said += done
        unsure |= begun - set(done)
        assert len(begun - set(done)) <= 1
    assert max(Counter(said).values()) == 1, "what was acknowledged came again"
    everything = {b"%d" % number for number in range(200)}
    async with simple(own) as consumer:

        async def all_is_finished() -> bool:
            messages = await consumer.receive(timeout=1)
            await consumer.ack(messages)
            said.extend(message.body for message in messages)
            return set(said) | unsure == everything and (await own.offsets()).get(0) == 200

        await until(all_is_finished)
    assert max(Counter(said).values()) == 1, "what was acknowledged came again"


async def test_it_says_what_it_has_done_whether_it_can_work_and_what_is_in_the_way() -> None:
    async with VirtualCluster() as cluster, Producer(cluster.nameservers) as producer:
        await cluster.create_topic("films", queues=1)
        consumer = SimpleConsumer("g", nameservers=cluster.nameservers).subscribe("films")
        with pytest.raises(InvalidArgument, match="not running"):
            await consumer.ready()
        async with consumer:
            await consumer.ready()
            await producer.send_batch([Message("films", b"%d" % each) for each in range(4)])
            messages: list[PoppedMessage] = []
            while len(messages) < 4:
                messages += await consumer.receive()
            await consumer.ack(messages[0])
            await consumer.reject(messages[2], "no number")
            await consumer.change_invisible(messages[3], 60)
            await consumer.nack(messages[1])
            assert len(await consumer.receive()) == 1
            with pytest.raises(StaleHandle):
                await consumer.ack(messages[1])
            done = consumer.statistics()
            assert (done.received, done.acknowledged, done.given_back) == (5, 1, 1)
            assert (done.rejected, done.refused, done.running_calls) == (1, 1, 0)
            assert consumer.obstacles() == []
            faults.kill(cluster)
            with pytest.raises(Unreachable):
                await consumer.receive(timeout=1)
            (obstacle,) = consumer.obstacles()
            assert "films cannot be polled at broker broker-a: " in obstacle
            with pytest.raises(DeadlineExceeded, match="broker-a"):
                await consumer.ready(timeout=2)
            await cluster.start_broker()
            await consumer.ready(timeout=60)
            await consumer.receive(timeout=1)
            assert consumer.obstacles() == []
        assert consumer.statistics().acknowledged == 1


async def test_a_blocking_one_says_the_same(own: OwnTopic) -> None:
    await own.store([b"0"])

    def work() -> None:
        consumer = BlockingSimpleConsumer(own.group_name, nameservers=own.nameservers)
        with consumer.subscribe(own.topic):
            consumer.ready()
            consumer.ack(consumer.receive(timeout=5.0))
            assert consumer.obstacles() == []
        done = consumer.statistics()
        assert (done.client_id, done.received, done.acknowledged) == (consumer.client_id, 1, 1)

    await asyncio.to_thread(work)
