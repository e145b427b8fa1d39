"""One consumer that reads a topic once, and what that took: the load of `listeners.py`.

    listener_load.py NAMESERVERS BROKER TOPIC GROUP KIND MESSAGES

It uses only what is public, so that an earlier version of the clients runs the same program.
Prints a JSON object: messages, seconds and processor seconds of this process, and processor seconds
of the broker, all from the first message on.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvloop

from aerobee.bench.cluster import broker_stats
from aerobee.client_core import ReceivedMessage
from aerobee.consumer_client import Ordering, PushConsumer, StartFrom

KINDS: dict[str, dict[str, Any]] = {
    "single": {},
    "batch": {"consume_batch_max": 32},
    "orderly": {"ordering": Ordering.ORDERLY},
    "by key": {"order_by": "key"},
}
"""Options of a push consumer."""
SIMPLE, V2 = "simple", "v2"
POLLERS = 8
BATCH = 32
IDLE_S = 120.0


class Meter:
    """Counts from the first message on."""

    def __init__(self, broker: str, wanted: int) -> None:
        self._broker, self._wanted = broker, wanted
        self.seen = self._first = 0
        self._began = self._used = 0.0
        self._ended: tuple[float, float] | None = None
        self.finished = asyncio.Event()

    def saw(self, count: int) -> None:
        """So many are done."""
        if not self.seen:
            self._first, self._began, self._used = count, time.perf_counter(), time.process_time()
        self.seen += count
        if self.seen >= self._wanted and self._ended is None:
            self._ended = time.perf_counter(), time.process_time()
            self.finished.set()

    async def result(self, consume: Callable[[], Awaitable[None]]) -> dict[str, float]:
        """Raises TimeoutError: too few came."""
        before = await broker_stats(self._broker)
        async with asyncio.timeout(IDLE_S):
            await consume()
        after = await broker_stats(self._broker)
        assert self._ended is not None
        ended, used = self._ended
        return {
            "messages": self.seen - self._first,
            "s": ended - self._began,
            "cpu_s": used - self._used,
            "broker_cpu_s": after.cpu_seconds - before.cpu_seconds,
        }


async def push(nameservers: str, topic: str, group: str, kind: str, meter: Meter) -> None:
    def on_messages(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            assert message.body
        meter.saw(len(messages))

    consumer = PushConsumer(
        group,
        on_messages,
        nameservers=nameservers,
        run_in_thread=False,
        start_from=StartFrom.FIRST,
        **KINDS[kind],
    )
    async with consumer.subscribe(topic):
        await meter.finished.wait()


async def simple(nameservers: str, topic: str, group: str, meter: Meter) -> None:
    from aerobee.consumer_client import SimpleConsumer

    async def poll() -> None:
        while not meter.finished.is_set():
            messages = await consumer.receive(BATCH, invisible=300)
            for message in messages:
                assert message.body
            await consumer.ack(messages)
            meter.saw(len(messages))

    async with SimpleConsumer(group, nameservers=nameservers).subscribe(topic) as consumer:
        await asyncio.gather(*(poll() for _ in range(POLLERS)))


async def by_v2(broker: str, topic: str, meter: Meter) -> None:
    """The same calls of Apache's protocol, without a client library."""
    from peers.v2_load import V2Load, new_channel

    load = V2Load(new_channel(broker), 0, first_id=time.time_ns())
    await load.start()
    poller = await load.consume(
        topic, lambda messages: meter.saw(len(messages)), meter.finished.is_set
    )
    await asyncio.gather(*(poller() for _ in range(POLLERS)))


async def main(
    nameservers: str, broker: str, topic: str, group: str, kind: str, messages: str
) -> None:
    meter = Meter(broker, int(messages))

    async def consume() -> None:
        if kind == SIMPLE:
            await simple(nameservers, topic, group, meter)
        elif kind == V2:
            await by_v2(broker, topic, meter)
        else:
            await push(nameservers, topic, group, kind, meter)

    print(json.dumps(await meter.result(consume)))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
