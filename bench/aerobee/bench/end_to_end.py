"""From `send` to the listener at a steady rate: a message's latency without queueing."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence

from aerobee.bench.measure import Latencies
from aerobee.client_core import Message, ReceivedMessage
from aerobee.consumer_client import PushConsumer, StartFrom
from aerobee.producer_client import Producer

SENT_AT = struct.Struct(">d")
WARM_UP = 500
TIMEOUT_S = 60.0


async def end_to_end_latency(
    nameserver: str, *, topic: str, group: str, body_bytes: int, rate_per_s: int, messages: int
) -> Latencies:
    """Send at a fixed rate from one process and measure in its own listener, with one clock.

    The send time is the *planned* one: a sender that falls behind shows as latency instead of
    hiding it.
    """
    samples: list[float] = []
    finished = asyncio.Event()
    padding = bytes(body_bytes - SENT_AT.size)
    total = messages + WARM_UP

    def on_messages(received: Sequence[ReceivedMessage]) -> None:
        now = time.perf_counter()
        samples.extend(now - SENT_AT.unpack_from(message.body)[0] for message in received)
        if len(samples) >= total:
            finished.set()

    consumer = PushConsumer(
        group, on_messages, run_in_thread=False, nameservers=nameserver, start_from=StartFrom.FIRST
    )
    consumer.subscribe(topic)
    async with Producer(nameserver) as producer:
        # The first message creates the topic; once the listener has it, the path is open.
        await producer.send(Message(topic, SENT_AT.pack(time.perf_counter()) + padding))
        async with consumer:
            while not samples:
                await asyncio.sleep(0.01)
            await _send_steadily(producer, topic, padding, rate_per_s, total - 1)
            async with asyncio.timeout(TIMEOUT_S):
                await finished.wait()
    return Latencies.of(samples[WARM_UP:])


async def _send_steadily(
    producer: Producer, topic: str, padding: bytes, rate_per_s: int, count: int
) -> None:
    start = time.perf_counter()
    async with asyncio.TaskGroup() as sends:
        for number in range(count):
            planned = start + number / rate_per_s
            pause = planned - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            message = Message(topic, SENT_AT.pack(planned) + padding)
            sends.create_task(_send(producer, message), name="send")


async def _send(producer: Producer, message: Message) -> None:
    await producer.send(message)
