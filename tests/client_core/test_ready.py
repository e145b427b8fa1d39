"""`ready` returns when a client can work, and says what is missing when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee import BlockingProducer, BlockingPullConsumer
from aerobee.client_core import MessageQueue
from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.consumer_client import PullConsumer, PushConsumer
from aerobee.producer_client import Producer, ProducerConfig
from aerobee.runtime import errors
from aerobee.testing import RealCluster, VirtualCluster, faults


def ignore(messages: Sequence[ReceivedMessage]) -> None:
    pass


async def test_a_producer_is_ready_when_a_nameserver_and_its_topics_brokers_answer() -> None:
    loop = asyncio.get_running_loop()
    async with VirtualCluster(groups=2) as cluster, Producer(cluster.nameservers) as producer:
        with faults.cut_network(cluster, faults.NAMESERVER):
            began_s = loop.time()
            with pytest.raises(errors.DeadlineExceeded, match="not ready within 3 s: "):
                await producer.ready(timeout=3)
            assert loop.time() - began_s <= 3.02
            waiting = asyncio.ensure_future(producer.ready(timeout=60))
            await cluster.advance(seconds=5)
            assert not waiting.done()
        await waiting
        await cluster.create_topic("orders")
        await producer.ready("orders")
        with (
            faults.cut_network(cluster, "broker-b"),
            pytest.raises(errors.DeadlineExceeded, match="group 'broker-b' does not answer"),
        ):
            await producer.ready("orders", timeout=3)
        faults.kill(cluster, "broker-b")
        await cluster.advance(minutes=5)
        with pytest.raises(errors.DeadlineExceeded, match="'broker-b' of topic 'orders' has no m"):
            await producer.ready("orders", timeout=3)
        # Nothing is asked about topics that were not sent to.
        await producer.ready()
        await producer.send(Message("orders", b"1"))
        with pytest.raises(errors.DeadlineExceeded, match="'broker-b' of topic 'orders' has no m"):
            await producer.ready(timeout=3)
        with pytest.raises(errors.IllegalName):
            await producer.ready("no topic")


async def test_a_check_of_a_missing_topic_creates_none() -> None:
    async with (
        VirtualCluster(groups=2) as cluster,
        Producer(cluster.nameservers) as producer,
        Producer(
            cluster.nameservers, config=ProducerConfig(create_missing_topics=False)
        ) as careful,
        AdminClient(cluster.nameservers) as admin,
    ):
        await producer.ready("ghost")
        with pytest.raises(errors.DeadlineExceeded, match="there is no topic 'ghost'"):
            await careful.ready("ghost", timeout=1)
        with (
            faults.cut_network(cluster, "broker-b"),
            pytest.raises(errors.DeadlineExceeded, match="group 'broker-b' does not answer"),
        ):
            await producer.ready("ghost", timeout=3)
        assert [each.name for each in await admin.topics.list()] == []
        await producer.send(Message("ghost", b"1"))
        await careful.ready("ghost")


async def test_a_producer_without_anything_to_send_knows_that_no_nameserver_answers() -> None:
    async with VirtualCluster() as cluster, Producer(cluster.nameservers) as producer:
        await producer.ready("orders")
        assert producer.obstacles() == []
        with faults.cut_network(cluster, faults.NAMESERVER):
            await cluster.advance(minutes=1)
            [obstacle] = producer.obstacles()
            assert obstacle.startswith("no nameserver has answered for ")
        await cluster.advance(seconds=10)
        assert producer.obstacles() == []


async def test_a_member_is_ready_when_it_has_its_queues_or_knows_that_it_gets_none() -> None:
    async with VirtualCluster() as cluster:
        await cluster.create_topic("orders", queues=1)

        def member(name: str) -> PushConsumer:
            consumer = PushConsumer(
                "bills", ignore, nameservers=cluster.nameservers, client_id=name
            )
            return consumer.subscribe("orders")

        with pytest.raises(errors.InvalidArgument):
            await member("z").ready()
        first = member("a")
        async with first:
            await first.ready()
            assert "orders" in {each.queue.topic for each in first.statistics().queues}
            second = member("b")
            async with second:
                await second.ready()
                assert "orders" not in {each.queue.topic for each in second.statistics().queues}
                with (
                    faults.cut_network(cluster, "broker-a"),
                    pytest.raises(errors.DeadlineExceeded, match="'broker-a' does not answer"),
                ):
                    await second.ready(timeout=2)
        with pytest.raises(errors.ShuttingDown):
            await first.ready()


async def test_a_member_is_ready_once_another_one_has_given_its_queue_up(
    tmp_path: Path,
) -> None:
    async with VirtualCluster() as cluster:
        await cluster.create_topic("orders", queues=1)

        def member(name: str, *, broadcasting: bool = False) -> PullConsumer:
            consumer = PullConsumer(
                "bills",
                nameservers=cluster.nameservers,
                client_id=name,
                broadcasting=broadcasting,
                offsets_folder=tmp_path,
            )
            return consumer.subscribe("orders")

        # The first of the members by name is to have the queue, and gets it when the other one
        # gives it up.
        async with member("b") as holder:
            await holder.ready()
            async with member("a") as next_one:
                await next_one.ready(timeout=30)
                assert next_one.assignment
        async with member("c", broadcasting=True) as alone:
            await alone.ready()
            assert alone.assignment == [MessageQueue("orders", "broker-a", 0)]


def test_blocking_clients_wait_as_well(aerobee_cluster: RealCluster, aerobee_topic: str) -> None:
    with BlockingProducer(aerobee_cluster.nameservers) as producer:
        producer.ready(aerobee_topic)
    readers = BlockingPullConsumer("ready", nameservers=aerobee_cluster.nameservers)
    with readers.subscribe(aerobee_topic) as consumer:
        consumer.ready()
        assert len(consumer.assignment) >= 4
