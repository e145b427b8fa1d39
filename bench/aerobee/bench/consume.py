"""How fast stored messages are read: pulled in batches, and through a push listener."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aerobee.bench.cluster import broker_stats
from aerobee.bench.measure import Stopwatch, Throughput
from aerobee.client_core import ReceivedMessage
from aerobee.consumer_client import PullConsumer, PushConsumer, StartFrom

IDLE_TIMEOUT_S = 30.0


async def pull_from_start(
    nameserver: str, broker: str, *, topic: str, group: str, messages: int
) -> Throughput:
    """Read `messages` messages of a topic from its start; every body is decoded and measured."""
    consumer = PullConsumer(
        group, nameservers=nameserver, start_from=StartFrom.FIRST, auto_commit=False
    )
    seen = 0
    body_bytes = 0
    async with consumer:
        queues = await consumer.queues_of(topic)
        before = await broker_stats(broker)
        watch = Stopwatch()
        await consumer.assign(queues)
        while seen < messages:
            batches = await consumer.poll_batches(timeout=IDLE_TIMEOUT_S)
            if not batches:
                raise RuntimeError(f"only {seen} of {messages} messages came")
            for batch in batches:
                bodies = batch.bodies()
                seen += len(bodies)
                body_bytes += sum(map(len, bodies))
        elapsed_s = watch.elapsed_s()
        after = await broker_stats(broker)
    return Throughput(
        messages=seen,
        bytes=body_bytes,
        elapsed_s=elapsed_s,
        broker_cpu_s=after.cpu_seconds - before.cpu_seconds,
    )


async def push_from_start(
    nameserver: str, broker: str, *, topic: str, group: str, messages: int
) -> Throughput:
    """The same through the listener of a single-member group, called for single messages."""
    finished = asyncio.Event()
    seen = 0
    body_bytes = 0

    def on_messages(received: Sequence[ReceivedMessage]) -> None:
        nonlocal seen, body_bytes
        for message in received:
            seen += 1
            body_bytes += len(message.body)
        if seen >= messages:
            finished.set()

    consumer = PushConsumer(
        group, on_messages, run_in_thread=False, nameservers=nameserver, start_from=StartFrom.FIRST
    )
    consumer.subscribe(topic)
    before = await broker_stats(broker)
    async with consumer:
        while not seen:
            await asyncio.sleep(0.001)
        # From the first message on: joining the group is not part of the measurement.
        first, watch = seen, Stopwatch()
        async with asyncio.timeout(IDLE_TIMEOUT_S * 10):
            await finished.wait()
        elapsed_s = watch.elapsed_s()
        after = await broker_stats(broker)
    return Throughput(
        messages=seen - first,
        bytes=body_bytes,
        elapsed_s=elapsed_s,
        broker_cpu_s=after.cpu_seconds - before.cpu_seconds,
    )
