"""In order, no attempt comes twice because a queue moved before its broker had counted the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.dead_letters import DeadLetters
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client import ConsumeResult, Ordering, PushConsumer, StartFrom
from aerobee.consumer_client.filters import ALL_TAGS
from aerobee.consumer_client.flow_control import FlowLimits
from aerobee.consumer_client.owned_queue import Assignment, Unleased
from aerobee.consumer_client.push_queue import PushQueue
from aerobee.producer_client import Producer
from aerobee.testing import VirtualCluster, faults

RETRIES = 8


class Calls:
    """Listeners that always fail, and what they were called with."""

    def __init__(self, cluster: VirtualCluster, takes_s: float = 0.0) -> None:
        self._cluster = cluster
        self._takes_s = takes_s
        self.attempts: list[int] = []

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        self.attempts.append(messages[0].reconsume_times)
        await asyncio.sleep(self._takes_s)
        return ConsumeResult.RETRY_LATER

    def member(self, client_id: str) -> PushConsumer:
        return PushConsumer(
            "bank",
            self,
            nameservers=self._cluster.nameservers,
            start_from=StartFrom.FIRST,
            ordering=Ordering.ORDERLY,
            suspend_ms=1_000,
            client_id=client_id,
        ).subscribe("orders")

    async def reach(self, count: int) -> None:
        while len(self.attempts) < count:
            await asyncio.sleep(0.01)

    async def check(self) -> None:
        """Each attempt was made once, and the dead letter says how many there were."""
        await self._cluster.advance(minutes=5)
        assert self.attempts == list(range(RETRIES + 1))
        async with ClusterConnection(self._cluster.nameservers) as connection:
            [letter] = [each async for each in DeadLetters(connection).find("bank")]
        assert letter.told.death.attempts == RETRIES + 1


@asynccontextmanager
async def cluster_with_an_order() -> AsyncIterator[VirtualCluster]:
    async with VirtualCluster() as cluster, Producer(cluster.nameservers) as producer:
        await cluster.create_topic("orders", queues=1)
        async with AdminClient(cluster.nameservers) as admin:
            await admin.groups.configure("bank", retries_max=RETRIES)
        await producer.send(Message("orders", b"1"))
        yield cluster


@pytest.mark.parametrize("takes_s", [0.0, 5.0])
async def test_a_member_whose_lease_ran_out_at_a_frozen_broker_reports_the_failure_first(
    takes_s: float,
) -> None:
    async with cluster_with_an_order() as cluster:
        calls = Calls(cluster, takes_s)
        async with calls.member("a"):
            await calls.reach(3)
            with faults.cut_network(cluster, "broker-a"):
                # Longer than its lease.
                await cluster.advance(minutes=5)
            await calls.check()


async def test_a_queue_moves_to_another_member_once_its_failure_is_counted() -> None:
    async with cluster_with_an_order() as cluster:
        calls = Calls(cluster, takes_s=3.0)
        async with calls.member("b"):
            await calls.reach(3)
            # The first of the members by name is to have the only queue. What `b` has in hand fails
            # while it gives the queue up, and the broker's answer about that waits for the disk.
            async with calls.member("a") as first:
                with faults.hung_disk(cluster):
                    await cluster.advance(seconds=10)
                await calls.check()
                assert "orders" in {each.queue.topic for each in first.statistics().queues}


async def test_a_queue_is_given_up_once_its_broker_has_counted_the_failure() -> None:
    def ignore(queue: PushQueue) -> None:
        pass

    async def drained_s(*, in_order: bool) -> float:
        queue = PushQueue(
            Assignment(MessageQueue("t", "b", 0), ALL_TAGS, 1, Unleased()),
            0,
            FlowLimits(),
            on_ready=ignore,
            on_room=ignore,
            on_dropped=ignore,
            in_order=in_order,
        )
        queue.is_sending_back(True)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        loop.call_later(20, queue.is_sending_back, False)
        await queue.drain(5, 30)
        return loop.time() - began_s

    async with VirtualCluster():
        assert await drained_s(in_order=True) == pytest.approx(20)
        assert await drained_s(in_order=False) == pytest.approx(5)
