"""Virtual time skips nothing: the same scenario has the same history, however its time passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.consumer_client import ConsumeResult, Ordering, PushConsumer, StartFrom
from aerobee.producer_client import Producer
from aerobee.testing import VirtualCluster

START = datetime(2030, 1, 1, tzinfo=UTC)
SPAN_S = 300
PIECES = 60

Passes = Callable[[VirtualCluster], Awaitable[None]]
History = list[tuple[float, str]]


async def at_once(cluster: VirtualCluster) -> None:
    await cluster.advance(seconds=SPAN_S)


async def in_pieces(cluster: VirtualCluster) -> None:
    for _ in range(PIECES):
        await cluster.advance(seconds=SPAN_S / PIECES)


async def asleep(cluster: VirtualCluster) -> None:
    await asyncio.sleep(SPAN_S)
    await cluster.settle()


async def history(passes: Passes) -> History:
    """What an ordered worker that waits for its bank, one that is retried, and a clock see."""
    seen: History = []

    async with (
        VirtualCluster(starts_at=START, seed=5) as cluster,
        Producer(cluster.nameservers) as producer,
    ):

        def note(what: str) -> None:
            seen.append(((cluster.now - START).total_seconds(), what))

        def ordered(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            note(f"order {messages[0].body.decode()}, attempt {messages[0].reconsume_times}")
            is_down = cluster.now - START < timedelta(minutes=1)
            return ConsumeResult.RETRY_LATER if is_down else ConsumeResult.SUCCESS

        async def retried(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            note(f"job {messages[0].body.decode()}, attempt {messages[0].reconsume_times}")
            await asyncio.sleep(0.4)
            fails = messages[0].reconsume_times < 3
            return ConsumeResult.RETRY_LATER if fails else ConsumeResult.SUCCESS

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                note("tick")

        def consumer(group: str, listener: object, ordering: Ordering) -> PushConsumer:
            return PushConsumer(
                group,
                listener,  # type: ignore[arg-type]
                nameservers=cluster.nameservers,
                start_from=StartFrom.FIRST,
                ordering=ordering,
                suspend_ms=700,
            ).subscribe("orders" if ordering is Ordering.ORDERLY else "jobs")

        async with AdminClient(cluster.nameservers) as admin:
            await admin.groups.configure("bank", retries_max=2_000)
        for topic in ("orders", "jobs"):
            await cluster.create_topic(topic, queues=1)
        for number in range(3):
            await producer.send(Message("orders", b"%d" % number))
        await producer.send(Message("jobs", b"now"))
        await producer.send(Message("jobs", b"later", delay=timedelta(minutes=1, seconds=47)))
        async with (
            consumer("bank", ordered, Ordering.ORDERLY),
            consumer("work", retried, Ordering.CONCURRENT),
        ):
            ticking = asyncio.ensure_future(tick())
            await passes(cluster)
            ticking.cancel()
    return seen


async def test_one_advance_sixty_and_a_sleep_of_the_same_length_give_the_same_history() -> None:
    first = await history(at_once)
    kinds = {what.split(",")[0] for _, what in first}
    assert kinds == {"tick", "order 0", "order 1", "order 2", "job now", "job later"}
    arrival_s = next(when for when, what in first if what == "job later, attempt 0")
    assert arrival_s == pytest.approx(107, abs=0.5)
    assert await history(in_pieces) == first
    assert await history(asleep) == first


async def test_an_hour_has_3600_ticks_of_a_second_and_costs_moments() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(1)
            ticks += 1

    async with VirtualCluster() as cluster:
        ticking = asyncio.ensure_future(tick())
        began_s = time.thread_time()
        await cluster.advance(hours=1)
        cost_s = time.thread_time() - began_s
        ticking.cancel()
    assert ticks == pytest.approx(3_600, abs=1)
    assert cost_s < 10
