"""Hours of a real cluster in moments: what comes later, comes when it should, and not before."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from contextvars import copy_context
from datetime import UTC, datetime, timedelta

import pytest
import uvloop

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.dead_letters import DeadLetters
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client import (
    ConsumeResult,
    Ordering,
    PullConsumer,
    PushConsumer,
    StartFrom,
)
from aerobee.producer_client import CheckAnswer, Producer, TransactionCheck
from aerobee.runtime.errors import AerobeeError
from aerobee.testing import NotVirtual, VirtualCluster, faults
from aerobee.testing.memory_network import PLACE

START = datetime(2030, 1, 1, tzinfo=UTC)
SESSION_S = 120
"""The shortest that brokers of a virtual cluster grant."""


class Seen:
    """A listener that notes what comes, when, and fails for the first attempts."""

    def __init__(self, cluster: VirtualCluster, *, failures: int = 0) -> None:
        self._cluster = cluster
        self._failures = failures
        self.times: list[timedelta] = []
        self.bodies: list[bytes] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        for message in messages:
            self.bodies.append(message.body)
            self.times.append(self._cluster.now - START)
        fails = messages[0].reconsume_times < self._failures
        return ConsumeResult.RETRY_LATER if fails else ConsumeResult.SUCCESS

    def consumer(self, topic: str, ordering: Ordering = Ordering.CONCURRENT) -> PushConsumer:
        group = "billing"
        nameservers = self._cluster.nameservers
        consumer = PushConsumer(
            group, self, nameservers=nameservers, start_from=StartFrom.FIRST, ordering=ordering
        )
        return consumer.subscribe(topic)


async def test_a_message_that_always_fails_is_a_dead_letter_after_hours() -> None:
    began_s = time.thread_time()
    async with (
        VirtualCluster(starts_at=START) as cluster,
        Producer(cluster.nameservers) as producer,
    ):
        await producer.send(Message("orders", b"broken"))
        seen = Seen(cluster, failures=1_000)
        async with seen.consumer("orders"):
            await cluster.advance(hours=1)
            after_an_hour = len(seen.bodies)
            await cluster.advance(hours=5)
        async with ClusterConnection(cluster.nameservers) as connection:
            letters = [letter async for letter in DeadLetters(connection).find("billing")]
    # Delay levels 3 to 18: 10 s, 30 s, 1 min, ... 2 h; the first delivery and 16 repetitions.
    assert len(seen.bodies) == 17
    assert 12 <= after_an_hour <= 15
    assert timedelta(seconds=10) <= seen.times[1] - seen.times[0] <= timedelta(seconds=40)
    assert timedelta(hours=2) <= seen.times[-1] - seen.times[-2] <= timedelta(hours=2, minutes=1)
    assert [letter.message.body for letter in letters] == [b"broken"]
    assert time.thread_time() - began_s < 30


async def test_a_delayed_message_arrives_at_its_time_and_not_before() -> None:
    async with (
        VirtualCluster(starts_at=START) as cluster,
        Producer(cluster.nameservers) as producer,
    ):
        await cluster.create_topic("orders")
        seen = Seen(cluster)
        async with seen.consumer("orders"):
            await producer.send(Message("orders", b"later", delay=timedelta(hours=2)))
            await cluster.advance(hours=1, minutes=59)
            assert seen.bodies == []
            await cluster.advance(minutes=1)
            assert seen.bodies == [b"later"]
    assert timedelta(hours=2) <= seen.times[0] < timedelta(hours=2, seconds=2)


async def test_in_order_a_message_that_fails_holds_up_those_after_it() -> None:
    async with VirtualCluster() as cluster, Producer(cluster.nameservers) as producer:
        await cluster.create_topic("orders", queues=1)
        for number in range(3):
            await producer.send(Message("orders", b"%d" % number, sharding_key="order-7"))
        seen = Seen(cluster, failures=2)
        async with seen.consumer("orders", Ordering.ORDERLY):
            await cluster.advance(minutes=1)
    assert seen.bodies == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3


async def test_in_order_an_outage_of_hours_costs_no_message_and_no_order_and_fills_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = timedelta(hours=3)
    async with (
        VirtualCluster(starts_at=START) as cluster,
        Producer(cluster.nameservers) as producer,
    ):
        await cluster.create_topic("orders", queues=1)
        for number in range(3):
            await producer.send(Message("orders", b"%d" % number, sharding_key="order-7"))
        done: list[tuple[timedelta, bytes]] = []

        def pay(messages: Sequence[ReceivedMessage]) -> None:
            if cluster.now - START < outage:
                raise ConnectionError("the bank does not answer")
            done.append((cluster.now - START, messages[0].body))

        consumer = PushConsumer(
            "billing",
            pay,
            nameservers=cluster.nameservers,
            start_from=StartFrom.FIRST,
            ordering=Ordering.ORDERLY,
        ).subscribe("orders")
        async with consumer, ClusterConnection(cluster.nameservers) as connection:
            for _ in range(outage // timedelta(minutes=1) + 2):
                await cluster.advance(minutes=1)
            letters = [letter async for letter in DeadLetters(connection).find("billing")]
            failed = consumer.statistics().failed_calls
    assert letters == []
    assert [body for _, body in done] == [b"0", b"1", b"2"]
    assert done[-1][0] <= outage + timedelta(minutes=1, seconds=2)
    assert 180 <= failed <= 190, "1 s, 2 s, 4 s ... 1 min, 1 min"
    lines = [line for line in caplog.messages if line.startswith("listener failed")]
    assert len(lines) <= failed


async def test_a_transaction_that_its_producer_forgets_is_decided_by_a_check() -> None:
    asked: list[timedelta] = []

    async with VirtualCluster(starts_at=START) as cluster:

        async def check(question: TransactionCheck) -> CheckAnswer:
            asked.append(cluster.now - START)
            return CheckAnswer.COMMIT if len(asked) == 2 else CheckAnswer.UNKNOWN

        producer = Producer(
            cluster.nameservers, check_transaction=check, transaction_topics=["orders"]
        )
        seen = Seen(cluster)
        await cluster.create_topic("orders")
        async with producer, seen.consumer("orders"):
            await producer.begin(Message("orders", b"paid"))
            await cluster.advance(seconds=5)
            assert asked == []
            await cluster.advance(minutes=5)
    assert len(asked) == 2
    assert seen.bodies == [b"paid"]


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_consumer_to_which_nothing_happens_warns_of_nothing_for_hours(
    replicas: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        VirtualCluster(starts_at=START, replicas=replicas) as cluster,
        Producer(cluster.nameservers) as producer,
    ):
        await cluster.create_topic("orders")
        seen = Seen(cluster)
        async with seen.consumer("orders"):
            await cluster.advance(hours=2 if replicas == 1 else 0.25)
            await producer.send(Message("orders", b"late"))
            await cluster.settle()
        assert seen.bodies == [b"late"]
    # The cluster that other tests share has a thread of its own, and is late while this one works.
    own = [one for one in caplog.records if one.thread == threading.get_ident()]
    assert [one.getMessage() for one in own if one.levelno >= logging.WARNING] == []


@pytest.mark.thorough
@pytest.mark.parametrize("ends", ["kill", "power"])
async def test_nothing_acknowledged_is_lost_when_a_master_ends(ends: str) -> None:
    async with (
        VirtualCluster(replicas=2) as cluster,
        Producer(cluster.nameservers) as producer,
    ):
        sent = [b"%d" % number for number in range(20)]
        for body in sent:
            await producer.send(Message("orders", body))
        first = await cluster.master()
        if ends == "kill":
            faults.kill(cluster, first)
        else:
            faults.cut_power(cluster, first, seed=3)
        await cluster.advance(minutes=5)
        assert await cluster.master() not in ("", first)
        await producer.send(Message("orders", b"after"))
        await cluster.start_broker(first)
        seen = Seen(cluster)
        async with seen.consumer("orders"):
            await cluster.advance(seconds=10)
    assert sorted(seen.bodies) == sorted([*sent, b"after"])


async def test_what_a_cut_network_and_a_full_disk_hold_up_goes_on_when_they_are_well() -> None:
    async with VirtualCluster() as cluster, Producer(cluster.nameservers) as producer:
        await producer.send(Message("orders", b"0"))
        with faults.cut_network(cluster, "broker-a"):
            sending = asyncio.ensure_future(producer.send(Message("orders", b"1")))
            await cluster.advance(seconds=2)
            assert not sending.done()
        await sending
        with faults.full_disk(cluster):
            await cluster.advance(minutes=1)
            tried = producer.statistics().batches_retried
            with pytest.raises(AerobeeError):
                await producer.send(Message("orders", b"refused"))
            # For 10 s, about every half a second: what is full is not asked without a pause.
            assert producer.statistics().batches_retried - tried < 100
        await cluster.advance(minutes=1)
        await producer.send(Message("orders", b"2"))
        faults.kill(cluster)
        await cluster.start_broker()
        seen = Seen(cluster)
        async with seen.consumer("orders"):
            await cluster.advance(seconds=30)
    assert sorted(seen.bodies) == [b"0", b"1", b"2"]


async def test_a_master_whose_disk_hangs_leaves_its_group_to_another() -> None:
    async with (
        VirtualCluster(replicas=2) as cluster,
        Producer(cluster.nameservers) as producer,
    ):
        await producer.send(Message("orders", b"0"))
        first = await cluster.master()
        with faults.hung_disk(cluster, first):
            await producer.send(Message("orders", b"1"))
            await cluster.advance(minutes=3)
            assert await cluster.master() not in ("", first)
            await producer.send(Message("orders", b"2"))
        seen = Seen(cluster)
        async with seen.consumer("orders"):
            await cluster.advance(seconds=10)
    assert sorted(seen.bodies) == [b"0", b"1", b"2"]


async def test_hand_overs_in_a_row_hold_up_no_queue_of_a_dead_consumer() -> None:
    """Its queues go on after its session, and no later for each new master."""
    async with (
        VirtualCluster(replicas=2) as cluster,
        Producer(cluster.nameservers) as producer,
        AdminClient(cluster.nameservers) as admin,
    ):
        await cluster.create_topic("orders", queues=2)
        arrived: dict[int, datetime] = {}

        async def read(client_id: str) -> None:
            consumer = PullConsumer(
                "report",
                nameservers=cluster.nameservers,
                client_id=client_id,
                start_from=StartFrom.FIRST,
            )
            async with consumer.subscribe("orders"):
                async for message in consumer:
                    arrived[message.queue.queue_id] = cluster.now

        async def load() -> None:
            queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
            while True:
                for queue in queues:
                    await producer.send(Message("orders", b"x"), queue=queue)
                await asyncio.sleep(2)

        there = copy_context()
        there.run(PLACE.set, "doomed")
        loop = asyncio.get_running_loop()
        doomed = loop.create_task(read("doomed"), context=there)
        others = [loop.create_task(read("other")), loop.create_task(load())]
        await cluster.advance(minutes=1)
        assert len(arrived) == 2
        for place in ("nameserver", "broker-a", "broker-a-1"):
            cluster.network.cut("doomed", place)
        died = cluster.now
        longest = timedelta()
        for _ in range(3):
            await cluster.advance(seconds=SESSION_S * 0.8)
            await admin.brokers.hand_over("broker-a")
            longest = max(longest, cluster.now - min(arrived.values()))
        gone_for = cluster.now - died
        for task in (doomed, *others):
            task.cancel()
        await asyncio.wait((doomed, *others))
    assert gone_for >= timedelta(seconds=2 * SESSION_S)
    assert longest <= timedelta(seconds=SESSION_S + 4), "a message is sent every 2 s"


async def test_the_same_seed_gives_the_same_run() -> None:
    async def run() -> list[tuple[bytes, timedelta]]:
        async with (
            VirtualCluster(starts_at=START, seed=7) as cluster,
            Producer(cluster.nameservers) as producer,
        ):
            await cluster.create_topic("orders", queues=1)
            seen = Seen(cluster, failures=3)
            for number in range(10):
                await producer.send(Message("orders", b"%d" % number))
            async with seen.consumer("orders"):
                await cluster.advance(minutes=10)
        return list(zip(seen.bodies, seen.times, strict=True))

    first = await run()
    assert len(first) == 40
    assert await run() == first


async def test_tasks_that_wait_for_the_last_nanosecond_do_not_stop_time() -> None:
    """A loop calls timers a nanosecond early: each of them then waits for the rest, in turn."""
    async with VirtualCluster() as cluster:
        clock = cluster.clock
        end_s = clock.monotonic_s() + 1

        async def wait(rest_s: float, turns: int) -> None:
            await asyncio.sleep(1)
            for _ in range(turns):
                await asyncio.sleep(0)
            while clock.monotonic_s() < end_s + rest_s:
                await asyncio.sleep(end_s + rest_s - clock.monotonic_s())

        waiting = asyncio.gather(*(wait(5e-10, turns) for turns in range(4)))
        await asyncio.sleep(1)
        for _ in range(100_000):
            if waiting.done():
                break
            await asyncio.sleep(0)
        is_done = waiting.done()
        waiting.cancel()
    assert is_done


def test_a_loop_that_cannot_have_virtual_time_is_refused() -> None:
    async def main() -> None:
        async with VirtualCluster():
            pass

    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(NotVirtual, match="asyncio's own event loop"),
    ):
        runner.run(main())
