"""The load of Apache RocketMQ 5's gRPC API, without a client library: `v2_load ADDRESS BODY_BYTES`.

Reads one part per line from standard input, as JSON, and answers each with one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import uvloop

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel import Channel
from aerobee.runtime.freed_memory import keep_freed_memory
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from peers.meter import Meter
from peers.parts import Answer, Part, Way

TOPIC = "bench"
STEADY_TOPIC = "steady"
IDLE_TOPIC = "idle"
POLLERS = 8
BATCH = 32
TIMEOUT_S = 30.0
POLL_MS = 10_000
INVISIBLE_MS = 300_000
BACKLOG_PER_S = 50_000
"""How many messages wait per second of reading."""
_SERVICE = "/apache.rocketmq.v2.MessagingService/"
_SENT_AT = struct.Struct(">d")


class Observer:
    """Ignores what is observed about limits."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values, **named: None


class V2Load:
    """One client that sends, and one for each group that reads."""

    def __init__(self, channel: Channel, body_bytes: int, *, first_id: int = 1) -> None:
        """`first_id`: loads of one cluster that must not share groups begin apart."""
        self._channel = channel
        self._body = bytes(range(256)) * (body_bytes // 256) + bytes(body_bytes % 256)
        self._ids = itertools.count(first_id)
        self._sent = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.subprocess.Process | None = None

    async def run(self, part: Part) -> Answer:
        """Measure one part."""
        match part.way:
            case Way.SINGLE | Way.BATCHED:
                return await self._send_all(part)
            case Way.STEADY:
                return await self._steady(part)
            case Way.FILL:
                return await self._fill(part)
            case Way.READ:
                return await self._read(part)
            case Way.PACED:
                answer = await self._paced(part)
                self._check_waiting()
                return answer
            case Way.GATHER:
                return await self._gather(part)
            case Way.IDLE:
                await asyncio.sleep(part.seconds)
                self._check_waiting()
                return Answer(0, part.seconds, 1, 0.0, 0.0)
            case Way.PUSHED:
                raise ValueError("no client library calls a listener here")

    # ------------------------------------------------------------------------------ calls

    async def start(self) -> None:
        """The producer announces itself."""
        publishing = v2.Publishing(
            topics=[v2.Resource(name=each) for each in (TOPIC, STEADY_TOPIC)]
        )
        await self._settle("producer", v2.Settings(client_type=v2.PRODUCER, publishing=publishing))

    async def _settle(self, client_id: str, settings: v2.Settings) -> None:
        """Its stream stays open, like a live client's."""
        call = self._channel.stream(_SERVICE + "Telemetry", metadata=_metadata(client_id))
        await call.write(service_pb2.TelemetryCommand(settings=settings).SerializeToString())
        await call.read()

        async def read() -> None:
            with contextlib.suppress(CallError):
                while await call.read() is not None:
                    pass

        self._tasks.add(asyncio.create_task(read(), name="telemetry"))

    async def _send(self, topic: str, *bodies: bytes) -> None:
        messages = []
        for body in bodies:
            system = v2.SystemProperties(
                message_id=f"01{next(self._ids):032X}", body_encoding=v2.IDENTITY, queue_id=0
            )
            system.born_timestamp.GetCurrentTime()
            messages.append(
                v2.Message(topic=v2.Resource(name=topic), body=body, system_properties=system)
            )
        request = service_pb2.SendMessageRequest(messages=messages)
        answer = service_pb2.SendMessageResponse.FromString(
            await self._call("SendMessage", request, "producer")
        )
        if answer.status.code != v2.OK:
            raise RuntimeError(f"a send is refused: {answer.status}")

    async def _call(self, name: str, request: Any, client_id: str) -> bytes:
        return await self._channel.call(
            _SERVICE + name,
            request.SerializeToString(),
            timeout_s=TIMEOUT_S,
            metadata=_metadata(client_id),
        )

    async def _receive(self, queue: v2.MessageQueue, group: str) -> list[v2.Message]:
        request = service_pb2.ReceiveMessageRequest(
            group=v2.Resource(name=group),
            message_queue=queue,
            filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
            batch_size=BATCH,
            invisible_duration=timedelta(milliseconds=INVISIBLE_MS),
            long_polling_timeout=timedelta(milliseconds=POLL_MS),
        )
        call = self._channel.stream(
            _SERVICE + "ReceiveMessage",
            request.SerializeToString(),
            timeout_s=TIMEOUT_S,
            metadata=_metadata(group),
        )
        found = []
        while (part := await call.read()) is not None:
            answer = service_pb2.ReceiveMessageResponse.FromString(part)
            if answer.HasField("message"):
                found.append(answer.message)
            elif answer.HasField("status") and answer.status.code not in (
                v2.OK,
                v2.MESSAGE_NOT_FOUND,
            ):
                raise RuntimeError(f"a poll is refused: {answer.status}")
        return found

    async def _acknowledge(self, messages: list[v2.Message], group: str) -> None:
        request = service_pb2.AckMessageRequest(
            group=v2.Resource(name=group),
            topic=messages[0].topic,
            entries=[
                service_pb2.AckMessageEntry(
                    message_id=each.system_properties.message_id,
                    receipt_handle=each.system_properties.receipt_handle,
                )
                for each in messages
            ],
        )
        answer = service_pb2.AckMessageResponse.FromString(
            await self._call("AckMessage", request, group)
        )
        if answer.status.code != v2.OK:
            raise RuntimeError(f"an acknowledgement is refused: {answer.status}")

    async def queues(self, topic: str) -> list[v2.MessageQueue]:
        request = service_pb2.QueryRouteRequest(topic=v2.Resource(name=topic))
        request.endpoints.scheme = v2.IPv4
        host, port = self._channel.address.rsplit(":", 1)
        request.endpoints.addresses.add(host=host, port=int(port))
        answer = service_pb2.QueryRouteResponse.FromString(
            await self._call("QueryRoute", request, "producer")
        )
        return list(answer.message_queues)

    # ------------------------------------------------------------------------------ parts

    async def _send_all(self, part: Part) -> Answer:
        meter = Meter.of(part)
        bodies = [self._body] * part.batch

        async def sender() -> None:
            began = time.perf_counter()
            while began < meter.end:
                await self._send(TOPIC, *bodies)
                now = time.perf_counter()
                meter.acknowledged(began, now, part.batch)
                began = now

        await _side_by_side(part.in_flight, sender)
        self._sent += meter.sent
        return meter.answer()

    async def consume(
        self, topic: str, got: Callable[[list[v2.Message]], None], is_over: Callable[[], bool]
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        """A member of a new group; the returned task polls and acknowledges until the end."""
        group = f"group-{next(self._ids)}"
        subscription = v2.Subscription(group=v2.Resource(name=group))
        entry = subscription.subscriptions.add(topic=v2.Resource(name=topic))
        entry.expression.type, entry.expression.expression = v2.TAG, "*"
        settings = v2.Settings(client_type=v2.SIMPLE_CONSUMER, subscription=subscription)
        await self._settle(group, settings)
        queues = itertools.cycle(await self.queues(topic))

        async def poller() -> None:
            while not is_over():
                messages = await self._receive(next(queues), group)
                if messages:
                    await self._acknowledge(messages, group)
                    got(messages)

        return poller

    async def _fill(self, part: Part) -> Answer:
        """As much as a part of this many seconds can read."""
        meter = Meter.of(part)
        bodies = [self._body] * BATCH

        async def fill() -> None:
            while self._sent < wanted:
                self._sent += BATCH
                await self._send(TOPIC, *bodies)

        wanted = self._sent + int(BACKLOG_PER_S * part.seconds * 4 / 3)
        await _side_by_side(POLLERS, fill)
        return meter.answer()

    async def _read(self, part: Part) -> Answer:
        """Received and acknowledged."""
        meter: Meter | None = None

        def got(messages: list[v2.Message]) -> None:
            nonlocal meter
            now = time.perf_counter()
            meter = meter or Meter.of(part)
            meter.acknowledged(now, now, len(messages))

        poller = await self.consume(
            TOPIC, got, lambda: meter is not None and time.perf_counter() > meter.end
        )
        async with asyncio.timeout(TIMEOUT_S + 2 * part.seconds):
            await _side_by_side(POLLERS, poller)
        assert meter is not None
        return meter.answer()

    async def _paced(self, part: Part) -> Answer:
        meter = Meter.of(part)
        began = time.perf_counter()

        async def send(planned: float) -> None:
            await self._send(TOPIC, self._body)
            meter.acknowledged(planned, time.perf_counter(), 1)

        async with asyncio.TaskGroup() as sends:
            number = 0
            while (planned := began + number / part.rate) < meter.end:
                if (pause := planned - time.perf_counter()) > 0:
                    await asyncio.sleep(pause)
                sends.create_task(send(planned), name="send")
                number += 1
        return meter.answer()

    async def _gather(self, part: Part) -> Answer:
        """They wait in a separate process, which ends with this one."""
        began = time.perf_counter()
        program = ("-m", "peers.idle_clients", self._channel.address)
        self._waiting = await asyncio.create_subprocess_exec(
            sys.executable,
            *program,
            str(part.clients),
            IDLE_TOPIC,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._waiting.stdout is not None, "it was asked for"
        if not (line := await self._waiting.stdout.readline()):
            raise RuntimeError(f"{part.clients} clients could not come to wait")
        return Answer(0, time.perf_counter() - began, int(line), 0.0, 0.0)

    def _check_waiting(self) -> None:
        if self._waiting is not None and self._waiting.returncode is not None:
            raise RuntimeError("the waiting clients have gone")

    async def _steady(self, part: Part) -> Answer:
        padding = bytes(len(self._body) - _SENT_AT.size)
        arrivals: list[tuple[float, float]] = []

        def got(messages: list[v2.Message]) -> None:
            now = time.perf_counter()
            arrivals.extend((_SENT_AT.unpack_from(each.body)[0], now) for each in messages)

        poller = await self.consume(STEADY_TOPIC, got, lambda: False)
        pollers = [asyncio.create_task(poller(), name="poller") for _ in range(POLLERS)]
        while not arrivals:
            await self._send(STEADY_TOPIC, _SENT_AT.pack(0.0) + padding)
            await asyncio.sleep(0.5)
        meter, early = Meter.of(part), len(arrivals)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as sends:
            # The planned time: a sender that falls behind cannot hide it.
            while (planned := began + meter.sent / part.rate) < meter.end:
                if (pause := planned - time.perf_counter()) > 0:
                    await asyncio.sleep(pause)
                body = _SENT_AT.pack(planned) + padding
                sends.create_task(self._send(STEADY_TOPIC, body), name="send")
                meter.sent += 1
        async with asyncio.timeout(TIMEOUT_S):
            while len(arrivals) < meter.sent + early:
                await asyncio.sleep(0.01)
        for each in pollers:
            each.cancel()
        await asyncio.wait(pollers)
        meter.took = [came - sent for sent, came in arrivals if sent > meter.start]
        meter.messages = len(meter.took)
        return meter.answer()


def _metadata(client_id: str) -> tuple[tuple[str, str], ...]:
    return (
        ("x-mq-client-id", client_id),
        ("x-mq-language", "JAVA"),
        ("x-mq-client-version", "5.0.8"),
        ("x-mq-protocol", "v2"),
    )


async def _side_by_side(count: int, user: Callable[[], Awaitable[None]]) -> None:
    await asyncio.gather(*(user() for _ in range(count)))


def new_channel(address: str) -> Channel:
    return Channel(address, now=time.monotonic, random=random.Random(), observer=Observer())


async def until_routed(address: str) -> None:
    """A listening server may not have reported any topic to its nameserver yet.

    Raises:
        TimeoutError: it did not in time.
    """
    channel = new_channel(address)
    load = V2Load(channel, body_bytes=0)
    async with asyncio.timeout(TIMEOUT_S):
        while not await load.queues(TOPIC):
            await asyncio.sleep(0.1)
    await channel.close()


async def serve(address: str, body_bytes: int) -> None:
    """Until standard input ends."""
    load = V2Load(new_channel(address), body_bytes)
    await load.start()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        answer = await load.run(Part.from_json(line))
        print(json.dumps(asdict(answer)), flush=True)


if __name__ == "__main__":
    keep_freed_memory()
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
