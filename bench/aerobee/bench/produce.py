"""How fast messages are sent: batches, many awaited sends at once, one at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aerobee.bench.cluster import broker_stats
from aerobee.bench.measure import Latencies, Stopwatch, Throughput
from aerobee.client_core import Message
from aerobee.producer_client import Producer


@dataclass(frozen=True, slots=True)
class Produced:
    """One way of sending: its rate, the latency of single acknowledgements, the broker's time."""

    way: str
    throughput: Throughput
    latencies: Latencies
    broker_resident_bytes: int


async def produce_batches(
    nameserver: str,
    broker: str,
    *,
    topic: str,
    body_bytes: int,
    messages: int,
    batch_messages: int = 500,
    batches_in_flight: int = 6,
    delay: float | None = None,
) -> Produced:
    """`send_batch` with several batches in flight; latencies are per batch. The messages are
    delivered after `delay` seconds."""
    body = bytes(range(256)) * (body_bytes // 256) + bytes(body_bytes % 256)
    batch = [Message(topic, body, delay=delay) for _ in range(batch_messages)]
    latencies: list[float] = []
    async with Producer(nameserver) as producer:

        async def sender(batches: int) -> None:
            for _ in range(batches):
                watch = Stopwatch()
                await producer.send_batch(batch)
                latencies.append(watch.elapsed_s())

        async def run(total: int) -> float:
            per_sender = max(1, total // batch_messages // batches_in_flight)
            watch = Stopwatch()
            async with asyncio.TaskGroup() as senders:
                for number in range(batches_in_flight):
                    senders.create_task(sender(per_sender), name=f"sender-{number}")
            return watch.elapsed_s()

        await run(messages // 10)
        latencies.clear()
        before = await broker_stats(broker)
        elapsed_s = await run(messages)
        after = await broker_stats(broker)
    sent = len(latencies) * batch_messages
    return Produced(
        way=f"batches of {batch_messages}, {batches_in_flight} in flight",
        throughput=Throughput(
            messages=sent,
            bytes=sent * body_bytes,
            elapsed_s=elapsed_s,
            broker_cpu_s=after.cpu_seconds - before.cpu_seconds,
        ),
        latencies=Latencies.of(latencies),
        broker_resident_bytes=after.resident_bytes,
    )


async def produce_single(
    nameserver: str,
    broker: str,
    *,
    topic: str,
    body_bytes: int,
    messages: int,
    in_flight: int,
    in_transactions: bool = False,
) -> Produced:
    """Single sends awaited by `in_flight` coroutines, or transactions begun and committed."""
    body = bytes(body_bytes)
    latencies: list[float] = []
    async with Producer(nameserver) as producer:

        async def sender(count: int) -> None:
            for _ in range(count):
                watch = Stopwatch()
                if in_transactions:
                    await (await producer.begin(Message(topic, body))).commit()
                else:
                    await producer.send(Message(topic, body))
                latencies.append(watch.elapsed_s())

        async def run(total: int) -> float:
            watch = Stopwatch()
            async with asyncio.TaskGroup() as senders:
                for number in range(in_flight):
                    senders.create_task(sender(total // in_flight), name=f"sender-{number}")
            return watch.elapsed_s()

        await run(max(in_flight, messages // 10))
        latencies.clear()
        before = await broker_stats(broker)
        elapsed_s = await run(messages)
        after = await broker_stats(broker)
    return Produced(
        way=f"{'transactions' if in_transactions else 'single'}, {in_flight} in flight",
        throughput=Throughput(
            messages=len(latencies),
            bytes=len(latencies) * body_bytes,
            elapsed_s=elapsed_s,
            broker_cpu_s=after.cpu_seconds - before.cpu_seconds,
        ),
        latencies=Latencies.of(latencies),
        broker_resident_bytes=after.resident_bytes,
    )
