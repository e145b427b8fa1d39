"""Who may own a store folder: what a scene asks of either broker, and what both answer alike."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc

from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.support.v2_calls import V2


@dataclass(frozen=True, slots=True)
class Got:
    """A call of a listener."""

    owner: str
    group: str
    topic: str
    body: str
    failures: int
    at_ms: int
    tag: str | None
    properties: dict[str, str] = field(hash=False, default_factory=dict)


class Owner(Protocol):
    """A broker with its clients. One life from `start` to `stop` or `kill`."""

    name: str
    address: str
    """Of the gRPC API of RocketMQ 5."""
    got: list[Got]
    checked: list[str]

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Cleanly; its clients before it."""

    async def kill(self) -> None:
        """The broker by SIGKILL, under its clients."""

    async def consume(
        self, group: str, topic: str, tags: str = "*", fails: frozenset[str] = frozenset()
    ) -> None:
        """A member that owns queues, as clients of RocketMQ 4 do; a new group begins at the first
        message. It fails for the bodies in `fails`."""

    async def leave(self, group: str) -> None:
        """Its offsets are committed."""

    async def send_level(self, topic: str, body: str, level: int) -> None: ...

    async def check_transactions(self, topic: str) -> None:
        """A producer of the topic that can be asked how its transactions ended."""

    async def dead_letters(self, group: str, wanted: set[str]) -> set[str]:
        """Bodies, once those that are wanted are there or it has taken long."""

    async def settled(self) -> None:
        """What was committed is on the disk, as far as this broker ever promises it."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Popper:
    """A simple consumer of a group, by raw calls."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self._channel = grpc.aio.insecure_channel(address)
        self.client = V2(self._channel, {"x-mq-client-id": f"{group}@{now_ms()}"})
        self._telemetry: Any = None

    async def __aenter__(self) -> Popper:
        subscription = v2.Subscription(group=v2.Resource(name=self.group))
        entry = subscription.subscriptions.add(topic=v2.Resource(name=self.topic))
        entry.expression.type, entry.expression.expression = v2.TAG, "*"
        settings = v2.Settings(client_type=v2.SIMPLE_CONSUMER, subscription=subscription)
        self._telemetry = self.client.telemetry()
        await self._telemetry.write(service_pb2.TelemetryCommand(settings=settings))
        await self._telemetry.read()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._telemetry.cancel()
        await self._channel.close()

    async def receive(
        self, count: int, *, invisible_s: float, patience_s: float = 60.0
    ) -> list[v2.Message]:
        """So many, in as many polls as it takes."""
        found: list[v2.Message] = []
        ends_s = time.monotonic() + patience_s
        while len(found) < count and time.monotonic() < ends_s:
            got = await self.client.receive(
                self.topic,
                self.group,
                count=count - len(found),
                invisible_s=invisible_s,
                wait_s=5.0,
            )
            found += got.messages
        return found

    async def acknowledge(self, *messages: v2.Message) -> None:
        for each in messages:
            codes = await self.client.acknowledge(self.group, each)
            assert codes == [v2.OK], codes


class Sender:
    """A producer of RocketMQ 5, by raw calls."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self.client = V2(self._channel, {"x-mq-client-id": f"sender@{now_ms()}"})

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def until_routed(self, topic: str, patience_s: float = 60.0) -> None:
        async with asyncio.timeout(patience_s):
            while not (await self.client.route(topic)).message_queues:
                await asyncio.sleep(0.2)

    async def send(self, message: v2.Message) -> service_pb2.SendResultEntry:
        answer = await self.client.send(message)
        (entry,) = answer.entries
        assert entry.status.code == v2.OK, answer
        return entry

    async def end(self, topic: str, id_: str, transaction: str, how: Any) -> None:
        request = service_pb2.EndTransactionRequest(
            topic=v2.Resource(name=topic),
            message_id=id_,
            transaction_id=transaction,
            resolution=how,
            source=v2.SOURCE_CLIENT,
        )
        answer = await self.client.call("EndTransaction", request)
        assert answer.status.code == v2.OK, answer


def aborted(store: Path) -> bool:
    """Whether the folder's last owner did not close it."""
    return (store / "abort").exists()
