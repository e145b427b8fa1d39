"""Producers and consumers of two versions: `aerobee produce` and `aerobee consume`, which run
through an upgrade without a restart.

A producer has several sharding keys, whose messages are in order, and messages that arrive later.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import until
from tests.upgrade.cluster import Cluster
from tests.upgrade.versions import Version

TOPIC = "orders"
KEYS = 4
PACE_S = 0.04
LATER_EVERY = 10
LATER = "later"
"""In place of a key."""
DELAY = "3s"
SEND_TIMEOUT_MS = 60_000


class Body(NamedTuple):
    """Which message it is."""

    producer: str
    key: str
    number: int

    @classmethod
    def of(cls, text: str) -> Body:
        producer, key, number = text.split()
        return cls(producer, key, int(number))

    def __str__(self) -> str:
        return f"{self.producer} {self.key} {self.number}"


class Place(NamedTuple):
    """Where a message is stored."""

    broker: str
    queue: int
    offset: int


class Client:
    """A program that runs as long as the traffic does."""

    def __init__(self, version: Version, folder: Path, role: str) -> None:
        self.name = version.name
        self._version = version
        self.output = folder / f"{role}-{version.name}.json"
        self.complaints = folder / f"{role}-{version.name}.log"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *words: str) -> None:
        with self.output.open("wb") as output, self.complaints.open("wb") as complaints:
            self.process = await asyncio.create_subprocess_exec(
                *self._version.command(*words),
                env=os.environ | self._version.environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=complaints,
            )

    def check_runs(self) -> None:
        assert self.process is not None
        assert self.process.returncode is None, f"{self.name}: {self.complaints.read_text()}"
        self._version.check(self.process.pid)


class Producer(Client):
    def __init__(self, version: Version, folder: Path) -> None:
        super().__init__(version, folder, "producer")
        self.sent: list[Body] = []
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._is_over = False
        self._writing: asyncio.Task[None] | None = None

    async def open(self, target: Sequence[str]) -> None:
        timeout = "--timeout-ms", str(SEND_TIMEOUT_MS)
        await self.start("produce", TOPIC, "--format", "json", "--json", *timeout, *target)

    def begin(self) -> None:
        self._writing = asyncio.create_task(self._write(), name=f"lines of {self.name}")

    def stop(self) -> None:
        """No more lines."""
        self._is_over = True

    def say(self, key: str) -> None:
        """One line."""
        assert self.process is not None
        assert self.process.stdin is not None
        body = Body(self.name, key, self._numbers[key])
        self._numbers[key] += 1
        line = {"body": str(body)}
        line |= {"delay": DELAY} if key == LATER else {"shardingKey": f"{self.name} {key}"}
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.sent.append(body)

    async def _write(self) -> None:
        while not self._is_over:
            count = len(self.sent)
            self.say(f"key-{count % KEYS}" if count % LATER_EVERY else LATER)
            await asyncio.sleep(PACE_S)

    async def end(self) -> None:
        """AssertionError unless every line was acknowledged."""
        assert self.process is not None
        assert self._writing is not None
        self.stop()
        await self._writing
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await self.process.wait() == 0, self.complaints.read_text()
        assert json.loads(self.output.read_text())["messages"] == len(self.sent)


class Consumer(Client):
    """The only member of its group."""

    def __init__(self, version: Version, folder: Path) -> None:
        super().__init__(version, folder, "consumer")
        self.received: list[tuple[Place, Body]] = []
        self.bodies: set[Body] = set()
        self._read_bytes = 0

    async def open(self, target: Sequence[str]) -> None:
        group = f"readers-{self.name}"
        await self.start("consume", TOPIC, "--group", group, "--format", "json", *target)

    def read(self) -> None:
        """What it has printed meanwhile."""
        with self.output.open("rb") as output:
            output.seek(self._read_bytes)
            *lines, begun = output.read().split(b"\n")
            self._read_bytes = output.tell() - len(begun)
        for line in lines:
            told = json.loads(line)
            place = Place(told["broker"], told["queue"], told["offset"])
            self.received.append((place, Body.of(told["body"])))
            self.bodies.add(self.received[-1][1])

    async def end(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        await self.process.wait()
        self.read()


class Traffic:
    """Use `open_traffic`."""

    def __init__(self, versions: Sequence[Version], folder: Path) -> None:
        self.producers = [Producer(version, folder) for version in versions]
        self.consumers = [Consumer(version, folder) for version in versions]

    def clients(self) -> list[Client]:
        return [*self.producers, *self.consumers]

    async def begin(self) -> None:
        """The first message of each producer is alone: a release may confuse the order of those
        that wait together for the topic's route."""
        for producer in self.producers:
            producer.say("key-0")
        await self._arrived({body for producer in self.producers for body in producer.sent})
        for producer in self.producers:
            producer.check_runs()
            producer.begin()

    async def flows(self) -> None:
        """Until each producer has sent something more, and each consumer has all that was sent
        before that moment, but for what arrives later."""
        counts = [len(producer.sent) + 1 for producer in self.producers]

        def is_sent() -> bool:
            return all(
                len(producer.sent) > count
                for producer, count in zip(self.producers, counts, strict=True)
            )

        await until(is_sent, "the producers write")
        await self._arrived(
            {body for producer in self.producers for body in producer.sent if body.key != LATER}
        )

    async def end(self) -> None:
        """Everything sent is acknowledged, and each consumer has all of it."""
        for producer in self.producers:
            await producer.end()
        await self._arrived({body for producer in self.producers for body in producer.sent})
        for consumer in self.consumers:
            await consumer.end()

    async def _arrived(self, expected: set[Body]) -> None:
        def is_there() -> bool:
            for consumer in self.consumers:
                consumer.check_runs()
                consumer.read()
            return all(expected <= consumer.bodies for consumer in self.consumers)

        await until(is_there, "what was sent arrives", account=lambda: self._account(expected))

    def _account(self, expected: set[Body]) -> str:
        lines = [
            f"consumer {one.name} lacks {len(expected - one.bodies)} of {len(expected)}: "
            f"{sorted(expected - one.bodies)[:5]}"
            for one in self.consumers
        ]
        return "\n".join(
            lines + [client.complaints.read_text()[-500:] for client in self.clients()]
        )

    def violations(self) -> Iterator[str]:
        """What was promised and is not so, once it has ended."""
        sent = {body for producer in self.producers for body in producer.sent}
        for consumer in self.consumers:
            if consumer.bodies != sent:
                yield f"{consumer.name}: {sorted(consumer.bodies ^ sent)[:5]} lost or invented"
            stored: dict[Place, Body] = {}
            places: defaultdict[Body, set[Place]] = defaultdict(set)
            newest: defaultdict[tuple[str, str], int] = defaultdict(lambda: -1)
            for place, body in consumer.received:
                if stored.setdefault(place, body) != body:
                    yield f"{consumer.name}: {place} is {stored[place]}, and then {body}"
                if body.key == LATER or place in places[body]:
                    places[body].add(place)
                    continue
                places[body].add(place)
                name = body.producer, body.key
                if body.number != newest[name] + 1:
                    yield f"{consumer.name}: {body} follows {newest[name]}"
                newest[name] = max(body.number, newest[name])
            doubled = [body for body, found in places.items() if len(found) > 1]
            if doubled:
                yield f"{consumer.name}: stored more than once: {sorted(doubled)[:5]}"

    def repeated(self) -> int:
        """Deliveries beyond the first one of each place, as at-least-once allows them."""
        return sum(
            len(one.received) - len({place for place, _ in one.received}) for one in self.consumers
        )


@asynccontextmanager
async def open_traffic(
    cluster: Cluster, versions: Sequence[Version], folder: Path
) -> AsyncIterator[Traffic]:
    """A producer and a consumer of each version."""
    folder.mkdir()
    traffic = Traffic(versions, folder)
    try:
        for consumer in traffic.consumers:
            await consumer.open(cluster.target)
        for producer in traffic.producers:
            await producer.open(cluster.target)
        await traffic.begin()
        yield traffic
    finally:
        for producer in traffic.producers:
            producer.stop()
        for client in traffic.clients():
            if client.process is not None and client.process.returncode is None:
                client.process.kill()
                await client.process.wait()
