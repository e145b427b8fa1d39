"""Members that come, go, die and are cut off: who owns which queue, and when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from aerobee.client_core import ClusterConnection
from aerobee.consumer_client import (
    ConsumerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.consumer_client.broker_offsets import BrokerOffsetStore
from aerobee.consumer_client.committing import Commit
from aerobee.runtime import errors
from tests.support.own_topic import OwnTopic
from tests.support.real_brokers import BrokerProcess, Link, RealCluster, RouteServer
from tests.support.waiting import until

ONE_QUEUE = pytest.mark.aerobee_topic(queues=1)


@dataclass(frozen=True)
class Call:
    """One listener call."""

    member: str
    queue_id: int
    offset: int
    began_s: float


class Journal:
    """What all members of a group did, in one list."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def listener(self, member: str, *, pause_s: float = 0.0) -> Callable[..., Awaitable[None]]:
        async def listen(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                self.calls.append(
                    Call(member, message.queue.queue_id, message.queue_offset, time.monotonic())
                )
            if pause_s:
                await asyncio.sleep(pause_s)

        return listen

    def offsets(self, queue_id: int) -> list[int]:
        return [call.offset for call in self.calls if call.queue_id == queue_id]

    def members(self) -> set[str]:
        return {call.member for call in self.calls}


def owned_ids(consumer: PushConsumer | PullConsumer) -> list[tuple[str, int]]:
    return [
        (queue.queue.broker_name, queue.queue.queue_id) for queue in consumer.statistics().queues
    ]


@pytest_asyncio.fixture
async def link(cluster: RealCluster) -> AsyncIterator[Link]:
    """A way to broker-a that can be frozen."""
    link = await Link(cluster.brokers["broker-a"]).start()
    yield link
    await link.stop()


@pytest_asyncio.fixture
async def far_address(link: Link) -> AsyncIterator[str]:
    """A nameserver that shows broker-a behind the link."""
    nameserver = await RouteServer([link]).start()
    yield nameserver.address
    await nameserver.stop()


async def test_members_share_all_queues_of_all_brokers_and_take_over_from_one_that_leaves(
    two_brokers: RealCluster, quick: ConsumerConfig
) -> None:
    journal = Journal()

    def member(name: str) -> PushConsumer:
        return PushConsumer(
            "g",
            journal.listener(name),
            run_in_thread=False,
            nameservers=two_brokers.address,
            client_id=name,
            start_from=StartFrom.FIRST,
            config=quick,
        ).subscribe("orders")

    every = [("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)]
    async with member("m1") as first:
        await until(lambda: owned_ids(first) == every)
        async with member("m2") as second:
            await until(lambda: owned_ids(second) == every[2:])
            await until(lambda: owned_ids(first) == every[:2])
            assert first.statistics().members == ("m1", "m2")
            for broker in ("broker-a", "broker-b"):
                await two_brokers.send("orders", 1, [b"x"] * 10, broker=broker)
            await until(lambda: len(journal.calls) == 20)
            assert journal.members() == {"m1", "m2"}
        await until(lambda: owned_ids(first) == every)
        await two_brokers.send("orders", 1, [b"y"] * 10, broker="broker-b")
        await until(lambda: len(journal.calls) == 30)
    assert sorted(journal.offsets(1)) == sorted([*range(10), *range(20)])


async def test_the_members_that_a_lost_broker_named_last_are_not_believed(
    two_brokers: RealCluster, quick: ConsumerConfig
) -> None:
    """A member that has left meanwhile would keep its share of what other brokers have."""
    journal = Journal()

    def member(name: str) -> PushConsumer:
        return PushConsumer(
            "g",
            journal.listener(name),
            run_in_thread=False,
            nameservers=two_brokers.address,
            client_id=name,
            config=quick,
        ).subscribe("orders")

    of_b = [("broker-b", 0), ("broker-b", 1)]
    async with member("m1") as first:
        async with member("m2") as second:
            await until(lambda: owned_ids(second) == of_b)
            await two_brokers.brokers["broker-a"].stop()
        await until(lambda: set(owned_ids(first)) >= set(of_b))


async def test_a_queue_moves_only_after_its_listeners_ended_and_its_offset_was_committed(
    own: OwnTopic,
) -> None:
    for queue_id in range(4):
        await own.store([b"x"] * 200, queue_id)
    journal = Journal()

    def member(name: str) -> PushConsumer:
        return own.push(journal.listener(name, pause_s=0.004), client_id=name, max_concurrency=4)

    async with member("m1"):
        await until(lambda: len(journal.calls) > 100)
        async with member("m2"):
            await until(lambda: len(journal.calls) > 400)
            async with member("m3"):
                await until(lambda: len(journal.calls) >= 800)
    # Given back in order, nothing is handled twice.
    for queue_id in range(4):
        assert sorted(journal.offsets(queue_id)) == list(range(200))


async def test_a_member_that_is_cut_off_stops_by_itself_before_another_takes_its_queue(
    cluster: RealCluster,
    link: Link,
    far_address: str,
    quick: ConsumerConfig,
) -> None:
    await cluster.send("single", 0, [b"x"] * 900)
    journal = Journal()
    lost = PushConsumer(
        "g",
        journal.listener("zombie", pause_s=0.005),
        run_in_thread=False,
        nameservers=far_address,
        client_id="a-zombie",
        max_concurrency=2,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single")
    heir = PushConsumer(
        "g",
        journal.listener("heir"),
        run_in_thread=False,
        nameservers=cluster.address,
        client_id="b-heir",
        config=quick,
    ).subscribe("single")
    async with lost:
        await until(lambda: len(journal.calls) > 40)
        async with heir:
            link.freeze()
            await until(lambda: "heir" in journal.members())
            # It had hundreds of messages in memory and a listener to call.
            zombie_calls = [call for call in journal.calls if call.member == "zombie"]
            assert len(zombie_calls) < 900
            first_of_heir = next(call for call in journal.calls if call.member == "heir")
            assert zombie_calls[-1].began_s < first_of_heir.began_s
            assert lost.statistics().queues == ()
            assert lost.statistics().queues_lost == 1
            await until(lambda: journal.calls[-1].offset == 899)
            count = len([call for call in journal.calls if call.member == "zombie"])
            assert count == len(zombie_calls)
            link.thaw()
    assert set(journal.offsets(0)) == set(range(900))
    assert await cluster.committed("g") == {("single", 0): 900}


async def test_a_cut_shorter_than_the_session_loses_nothing(
    cluster: RealCluster, link: Link, far_address: str
) -> None:
    journal = Journal()
    options = ConsumerConfig(session_timeout_ms=4_000, commit_interval_ms=100)
    consumer = PushConsumer(
        "g",
        journal.listener("m"),
        run_in_thread=False,
        nameservers=far_address,
        start_from=StartFrom.FIRST,
        config=options,
    ).subscribe("single")
    async with consumer:
        await until(lambda: consumer.statistics().queues)
        epoch = consumer.statistics().queues[0].lease_epoch
        link.freeze()
        await cluster.send("single", 0, [b"x"] * 5)
        await asyncio.sleep(0.5)
        assert journal.calls == []
        link.thaw()
        await until(lambda: journal.offsets(0) == [0, 1, 2, 3, 4])
        assert consumer.statistics().queues[0].lease_epoch == epoch


async def test_leases_survive_a_clean_restart_of_the_broker(cluster: RealCluster) -> None:
    journal = Journal()
    options = ConsumerConfig(session_timeout_ms=6_000, commit_interval_ms=100)
    consumer = PushConsumer(
        "g",
        journal.listener("m"),
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=options,
    ).subscribe("single")
    async with consumer:
        await until(lambda: consumer.statistics().queues)
        epoch = consumer.statistics().queues[0].lease_epoch
        await cluster.send("single", 0, [b"x"] * 3)
        await until(lambda: len(journal.calls) == 3)
        broker = cluster.brokers["broker-a"]
        await broker.stop()
        await asyncio.sleep(0.3)
        await broker.start()
        await cluster.send("single", 0, [b"y"] * 3)
        await until(lambda: len(journal.calls) >= 6)
        assert consumer.statistics().queues[0].lease_epoch == epoch
    assert journal.offsets(0) == [0, 1, 2, 3, 4, 5]


@ONE_QUEUE
async def test_a_commit_under_an_old_lease_is_refused(own: OwnTopic) -> None:
    await own.store([b"x"] * 5)
    queue = own.queue()
    journal = Journal()
    consumer = own.push(journal.listener("m"))
    async with consumer, ClusterConnection(own.nameservers) as connection:
        await until(lambda: len(journal.calls) == 5)
        epoch = consumer.statistics().queues[0].lease_epoch
        store = BrokerOffsetStore(
            connection, group=own.group_name, client_id="zombie", timeout_ms=1_000
        )
        old = await store.commit([Commit(queue, 1, epoch - 1)])
        assert isinstance(old[queue], errors.LeaseExpired)
        without = await store.commit([Commit(queue, 1, 0)])
        assert isinstance(without[queue], errors.LeaseHeld)
        assert await store.commit([Commit(queue, 5, epoch)]) == {}
        assert await store.read([queue]) == {queue: 5}


async def test_a_push_and_a_pull_member_share_a_group(own: OwnTopic) -> None:
    journal = Journal()
    pushed = own.push(journal.listener("push"), client_id="m1")
    pulled = own.pull(client_id="m2")
    async with pushed, pulled:
        await until(lambda: len(owned_ids(pushed)) == len(owned_ids(pulled)) == 2)
        for queue_id in range(4):
            await own.store([b"x"] * 5, queue_id)
        await until(lambda: len(journal.calls) == 10)
        taken: list[ReceivedMessage] = []
        while len(taken) < 10:
            taken += await pulled.poll(100, timeout=2)
        assert {message.queue.queue_id for message in taken} == {2, 3}


@ONE_QUEUE
async def test_more_members_than_queues_leave_some_idle_and_ready(own: OwnTopic) -> None:
    journal = Journal()

    def member(name: str) -> PushConsumer:
        return own.push(journal.listener(name), client_id=name)

    async with member("m2") as idle:
        async with member("m1") as busy:
            await until(lambda: owned_ids(busy) == [("broker-a", 0)])
            await until(lambda: owned_ids(idle) == [])
        await until(lambda: owned_ids(idle) == [("broker-a", 0)])


async def test_a_consumer_waits_for_a_broker_that_is_down(
    two_brokers: RealCluster, quick: ConsumerConfig
) -> None:
    await two_brokers.send("orders", 0, [b"b"] * 3, broker="broker-b")
    await two_brokers.brokers["broker-b"].stop()
    await two_brokers.nameserver.publish()
    await two_brokers.send("orders", 0, [b"a"] * 3, broker="broker-a")
    journal = Journal()
    consumer = PushConsumer(
        "g",
        journal.listener("m"),
        run_in_thread=False,
        nameservers=two_brokers.address,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("orders")
    async with consumer:
        await until(lambda: len(journal.calls) == 3)
        await two_brokers.brokers["broker-b"].start()
        await two_brokers.nameserver.publish()
        await until(lambda: len(journal.calls) == 6)


@pytest.mark.slow
async def test_members_keep_their_queues_when_a_broker_is_killed_and_comes_back_at_once(
    tmp_path: Path,
) -> None:
    broker = await BrokerProcess("broker-a", tmp_path, {"orders": 4}).start()
    nameserver = await RouteServer([broker]).start()
    cluster = RealCluster({"broker-a": broker}, nameserver)
    journal = Journal()
    # A broker that is back at once is back within the session, however busy the machine is.
    options = ConsumerConfig(session_timeout_ms=60_000, commit_interval_ms=100)

    def member(name: str) -> PushConsumer:
        return PushConsumer(
            "g",
            journal.listener(name),
            run_in_thread=False,
            nameservers=nameserver.address,
            client_id=name,
            start_from=StartFrom.FIRST,
            config=options,
        ).subscribe("orders")

    def epochs(consumer: PushConsumer) -> list[int]:
        return [queue.lease_epoch for queue in consumer.statistics().queues]

    first, second = member("m1"), member("m2")
    try:
        async with first, second:
            await until(lambda: len(epochs(first)) == len(epochs(second)) == 2)
            before = epochs(first) + epochs(second)
            for turn in (1, 2):
                await broker.stop()
                await broker.start()
                await nameserver.publish()
                for queue_id in range(4):
                    await cluster.send("orders", queue_id, [b"x"] * 50)
                await until(lambda turn=turn: len(journal.calls) >= turn * 200)
            assert epochs(first) + epochs(second) == before
        assert len(journal.calls) == 400
        assert (await cluster.committed("g"))["orders", 3] == 100
    finally:
        await cluster.stop()


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_storm_of_joins_and_leaves_never_gives_one_message_to_two_members_at_once(
    own: OwnTopic,
) -> None:
    at_work: dict[int, str] = {}
    overlaps: list[tuple[int, str, str]] = []
    done: set[tuple[int, int]] = set()

    def listener(name: str) -> Callable[..., Awaitable[None]]:
        async def listen(messages: Sequence[ReceivedMessage]) -> None:
            queue_id = messages[0].queue.queue_id
            other = at_work.get(queue_id)
            if other is not None and other != name:
                overlaps.append((queue_id, other, name))
            at_work[queue_id] = name
            try:
                await asyncio.sleep(0.002)
            finally:  # A member that lost its session in between is at work no more.
                if at_work.get(queue_id) == name:
                    del at_work[queue_id]
            done.update((queue_id, message.queue_offset) for message in messages)

        return listen

    async def member(name: str, life: Awaitable[object]) -> None:
        consumer = own.push(listener(name), client_id=name, max_concurrency=1)
        async with consumer:
            await life

    for queue_id in range(4):
        await own.store([b"x"] * 600, queue_id)
    async with asyncio.TaskGroup() as members:
        for turn in range(12):
            members.create_task(member(f"m{turn:02}", asyncio.sleep(0.5 + turn % 3 * 0.3)))
            await asyncio.sleep(0.15)
    await member("last", until(lambda: len(done) == 2_400, timeout_s=60))
    assert overlaps == []
    assert len(done) == 2_400


@pytest.mark.slow
async def test_a_commit_that_a_killed_broker_forgot_is_made_again(tmp_path: Path) -> None:
    """The broker saves later commits of a queue every few seconds; the member knows better."""
    broker = await BrokerProcess("broker-a", tmp_path, {"orders": 1}).start()
    nameserver = await RouteServer([broker]).start()
    cluster = RealCluster({"broker-a": broker}, nameserver)
    journal = Journal()
    consumer = PushConsumer(
        "g",
        journal.listener("m"),
        run_in_thread=False,
        nameservers=nameserver.address,
        start_from=StartFrom.FIRST,
        config=ConsumerConfig(session_timeout_ms=10_000, commit_interval_ms=100),
    ).subscribe("orders")

    async def is_committed(offset: int) -> bool:
        return (await cluster.committed("g")).get(("orders", 0)) == offset

    try:
        async with consumer:
            for end in (1, 50):
                await cluster.send("orders", 0, [b"x"] * (end - len(journal.calls)))
                await until(lambda end=end: is_committed(end))
            await broker.stop()
            await broker.start()
            await nameserver.publish()
            await until(lambda: is_committed(50))
        assert journal.offsets(0) == list(range(50))
    finally:
        await cluster.stop()
