"""A process that sends and receives among the attackers, and measures what it feels of them.

    python -m tests.port_fuzz.watchman NAMESERVER TOPIC GROUP FILE

It sends 50 messages a second, signed as the environment says. Each line on standard input begins
another watch, which has the line as its name; `end` ends it: it waits for what is on its way, and
writes FILE, the JSON of a `Log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from aerobee.client_core import AerobeeError, Message
from aerobee.consumer_client import ConsumerConfig, PullConsumer, StartFrom
from aerobee.producer_client import Producer, ProducerConfig

PER_S: Final = 50
PATIENCE_S: Final = 60.0
PATIENCE_MS: Final = 60_000
"""It measures how long all takes, so it gives nothing up."""


@dataclass
class Seen:
    """What became of one message. Times are of the monotonic clock; 0: not yet."""

    watch: str
    sent_s: float
    stored_s: float = 0.0
    received_s: float = 0.0
    times: int = 0
    broker: str = ""
    """Where it is stored."""


@dataclass
class Log:
    messages: list[Seen] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Sends that failed; whether their messages are stored is not known."""


class Watchman:
    def __init__(self, topic: str) -> None:
        self.log = Log()
        self._topic = topic
        self._watch = ""
        self._unstored: set[int] = set()

    async def run(self, producer: Producer, consumer: PullConsumer) -> None:
        receiving = asyncio.create_task(self._receive(consumer))
        sending = asyncio.create_task(self._send(producer))
        while (line := await asyncio.to_thread(sys.stdin.readline)).strip() not in ("", "end"):
            self._watch = line.strip()
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not all(seen.times for seen in self._stored()):
                    await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)  # for what comes twice
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiving

    def _stored(self) -> list[Seen]:
        return [seen for seen in self.log.messages if seen.stored_s]

    async def _send(self, producer: Producer) -> None:
        """On time, however long the sends before it take."""
        due_s = time.monotonic()
        async with asyncio.TaskGroup() as sends:
            while True:
                due_s += 1 / PER_S
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                if self._watch:
                    seen = Seen(self._watch, time.monotonic())
                    number = len(self.log.messages)
                    self.log.messages.append(seen)
                    sends.create_task(self._send_one(producer, seen, number))

    async def _send_one(self, producer: Producer, seen: Seen, number: int) -> None:
        try:
            receipt = await producer.send(Message(self._topic, b"%d" % number))
        except AerobeeError as error:
            self.log.errors.append(f"{number}: {type(error).__name__}: {error}")
        else:
            seen.stored_s = time.monotonic()
            seen.broker = receipt.queue.broker_name

    async def _receive(self, consumer: PullConsumer) -> None:
        while True:
            for message in await consumer.poll(500, timeout=1.0):
                seen = self.log.messages[int(message.body)]
                seen.received_s = seen.received_s or time.monotonic()
                seen.times += 1


async def _watch(nameserver: str, topic: str, group: str) -> Log:
    options = ConsumerConfig(session_timeout_ms=PATIENCE_MS, request_timeout_ms=PATIENCE_MS)
    consumer = PullConsumer(
        group, nameservers=nameserver, start_from=StartFrom.FIRST, config=options
    )
    consumer.subscribe(topic)
    watchman = Watchman(topic)
    config = ProducerConfig(send_timeout_ms=PATIENCE_MS)
    async with Producer(nameserver, config=config) as producer, consumer:
        print("ready", flush=True)
        await watchman.run(producer, consumer)
    return watchman.log


def main() -> None:
    nameserver, topic, group, file = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        log = runner.run(_watch(nameserver, topic, group))
    Path(file).write_text(json.dumps(asdict(log)))


if __name__ == "__main__":
    main()
