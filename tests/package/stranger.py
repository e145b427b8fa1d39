"""The tests of a shop that uses Aerobee; `test_package.py` gives them a project of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from aerobee import (
    AdminClient,
    BackOff,
    BlockingProducer,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.testing import RealCluster, VirtualCluster, faults
from aerobee.testing.any_loop_clients import BlockingClusterConsumer, ClusterProducer


def test_a_program_without_a_loop(
    aerobee_cluster: RealCluster,
    aerobee_topic: str,
    aerobee_blocking_consumer: BlockingClusterConsumer,
) -> None:
    with BlockingProducer() as producer:
        producer.send(Message(aerobee_topic, b"two plugs", tag="new", keys=["order-17"]))
    [message] = aerobee_blocking_consumer.receive()
    assert message.body == b"two plugs"


async def test_a_program_with_a_loop(aerobee_topic: str, aerobee_producer: ClusterProducer) -> None:
    seen: asyncio.Queue[bytes] = asyncio.Queue(100)

    async def pack(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        for message in messages:
            seen.put_nowait(message.body)
        return ConsumeResult.SUCCESS

    async with PushConsumer("packing", pack, start_from=StartFrom.FIRST).subscribe(aerobee_topic):
        await aerobee_producer.send(Message(aerobee_topic, b"order 17"))
        async with asyncio.timeout(60):
            assert await seen.get() == b"order 17"


async def test_after_three_failures_and_two_hours_a_payment_is_a_dead_letter() -> None:
    async with (
        VirtualCluster() as cluster,
        Producer(cluster.nameservers) as producer,
        AdminClient(cluster.nameservers) as admin,
    ):
        tries: list[datetime] = []

        def pay(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            tries.append(cluster.now)
            raise ValueError("the bank is closed")

        back_off = BackOff(initial_ms=1_800_000, multiplier=3, max_ms=7_200_000)
        await admin.groups.configure("bank", retries_max=2, back_off=back_off)
        await producer.send(Message("payments", b"42"))
        consumer = PushConsumer(
            "bank", pay, nameservers=cluster.nameservers, start_from=StartFrom.FIRST
        )
        async with consumer.subscribe("payments"):
            await cluster.advance(hours=1, minutes=59)
            assert len(tries) == 2
            assert [letter async for letter in admin.dead_letters.find("bank")] == []
            await cluster.advance(minutes=5)
            [letter] = [letter async for letter in admin.dead_letters.find("bank")]
    assert (letter.message.body, letter.told.death.attempts) == (b"42", 3)


async def test_orders_go_on_without_the_master() -> None:
    async with VirtualCluster(replicas=2) as cluster, Producer(cluster.nameservers) as producer:
        await producer.send(Message("orders", b"1"))
        faults.kill(cluster, await cluster.master())
        await cluster.advance(minutes=5)
        await producer.send(Message("orders", b"2"))
