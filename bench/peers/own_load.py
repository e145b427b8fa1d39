"""The load for Aerobee with its Python client: `own_load NAMESERVER BODY_BYTES`.

Reads one part per line from standard input, as JSON, and answers each with one line.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict

import uvloop

from aerobee.client_core import Message, ReceivedMessage
from aerobee.consumer_client import PullConsumer, PushConsumer, StartFrom
from aerobee.producer_client import Producer
from aerobee.runtime.freed_memory import keep_freed_memory
from peers.meter import Meter
from peers.parts import Answer, Part, Way

TOPIC = "bench"
STEADY_TOPIC = "steady"
SENT_AT = struct.Struct(">d")
TIMEOUT_S = 30.0


class OwnLoad:
    """One producer for all parts; each reading part has its own consumer."""

    def __init__(self, nameserver: str, producer: Producer, body_bytes: int) -> None:
        self._nameserver = nameserver
        self._producer = producer
        self._body = bytes(range(256)) * (body_bytes // 256) + bytes(body_bytes % 256)
        self._sent = 0
        self._groups = 0

    async def run(self, part: Part) -> Answer:
        """Measure one part."""
        match part.way:
            case Way.SINGLE:
                return await self._send(part, self._send_single, 1)
            case Way.BATCHED:
                batch = [Message(TOPIC, self._body) for _ in range(part.batch)]

                async def send_batch() -> None:
                    await self._producer.send_batch(batch)

                return await self._send(part, send_batch, part.batch)
            case Way.STEADY:
                return await self._steady(part)
            case Way.READ:
                return await self._read(part)
            case _:
                raise ValueError(f"{part.way} is for other loads")

    async def _send_single(self) -> None:
        await self._producer.send(Message(TOPIC, self._body))

    async def _send(self, part: Part, send: Callable[[], Awaitable[None]], messages: int) -> Answer:
        meter = Meter.of(part)

        async def sender() -> None:
            began = time.perf_counter()
            while began < meter.end:
                await send()
                now = time.perf_counter()
                meter.acknowledged(began, now, messages)
                began = now

        async with asyncio.TaskGroup() as senders:
            for number in range(part.in_flight):
                senders.create_task(sender(), name=f"sender-{number}")
        self._sent += meter.sent
        return meter.answer()

    def _group(self) -> str:
        self._groups += 1
        return f"group-{self._groups}"

    async def _steady(self, part: Part) -> Answer:
        padding = bytes(len(self._body) - SENT_AT.size)
        arrivals: list[tuple[float, float]] = []

        def on_messages(received: Sequence[ReceivedMessage]) -> None:
            now = time.perf_counter()
            arrivals.extend((SENT_AT.unpack_from(each.body)[0], now) for each in received)

        async def send(planned: float) -> None:
            message = Message(STEADY_TOPIC, SENT_AT.pack(planned) + padding)
            await self._producer.send(message)

        consumer = PushConsumer(
            self._group(),
            on_messages,
            run_in_thread=False,
            nameservers=self._nameserver,
            start_from=StartFrom.FIRST,
        )
        consumer.subscribe(STEADY_TOPIC)
        # The first message creates the topic; once the reader has it, all is ready.
        await send(0.0)
        async with consumer:
            await _until(lambda: len(arrivals) == 1)
            meter = Meter.of(part)
            began = time.perf_counter()
            async with asyncio.TaskGroup() as sends:
                # The planned time: a sender that falls behind cannot hide it.
                while (planned := began + meter.sent / part.rate) < meter.end:
                    if (pause := planned - time.perf_counter()) > 0:
                        await asyncio.sleep(pause)
                    sends.create_task(send(planned), name="send")
                    meter.sent += 1
            await _until(lambda: len(arrivals) > meter.sent)
        meter.took = [came - sent for sent, came in arrivals if sent > meter.start]
        meter.messages = len(meter.took)
        return meter.answer()

    async def _read(self, part: Part) -> Answer:
        """Until the time is up or the last message came, counted after the first answer."""
        group = self._group()
        consumer = PullConsumer(
            group, nameservers=self._nameserver, start_from=StartFrom.FIRST, auto_commit=False
        )
        seen, first, began = 0, 0, 0.0
        async with consumer:
            await consumer.assign(await consumer.queues_of(TOPIC))
            while seen < self._sent:
                batches = await consumer.poll_batches(timeout=TIMEOUT_S)
                if not batches:
                    raise RuntimeError(f"only {seen} of {self._sent} messages came")
                seen += sum(len(batch.bodies()) for batch in batches)
                if not began:
                    first, began = seen, time.perf_counter()
                if time.perf_counter() - began > part.seconds:
                    break
            elapsed_s = time.perf_counter() - began
        return Answer(seen - first, elapsed_s, seen, 0.0, 0.0)


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def answer_parts(nameserver: str, body_bytes: int) -> None:
    """Until standard input ends."""
    async with Producer(nameserver) as producer:
        load = OwnLoad(nameserver, producer, body_bytes)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(asdict(await load.run(Part.from_json(line)))), flush=True)


if __name__ == "__main__":
    keep_freed_memory()
    uvloop.run(answer_parts(sys.argv[1], int(sys.argv[2])))
