"""`aerobee topic spread --retire` under load while brokers are killed by SIGKILL: the messages of a
key are handled in the order in which they were sent, and none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.consumer_client import Ordering, PushConsumer, StartFrom
from aerobee.producer_client import Producer
from aerobee.runtime.errors import AerobeeError
from tests.support.local_up import Up, running
from tests.support.waiting import until

pytestmark = pytest.mark.slow

TOPIC, GROUP = "orders", "billing"
KEYS = [f"key-{number}" for number in range(16)]
GRACE_MS = 1_500


class Load:
    """A producer that numbers each key's messages, and members that note how they come."""

    def __init__(self, nameserver: str) -> None:
        self.nameserver = nameserver
        self.sent: dict[str, int] = {}
        self.handled: dict[str, list[int]] = defaultdict(list)
        self.at_brokers: set[str] = set()
        self.is_sending = True

    async def send(self, key: str, producer: Producer) -> None:
        number = 0
        while self.is_sending:
            # A message whose outcome is unknown is sent again: it may come twice, none is left out.
            with contextlib.suppress(AerobeeError):
                await producer.send(Message(TOPIC, f"{key}:{number}".encode(), sharding_key=key))
                self.sent[key] = number
                number += 1
            await asyncio.sleep(0.05)

    async def handle(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            key, number = message.body.decode().split(":")
            self.handled[key].append(int(number))
            self.at_brokers.add(message.queue.broker_name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Messages are sent within the block, and then read to the end."""
        async with (
            Producer(self.nameserver) as producer,
            contextlib.AsyncExitStack() as members,
            asyncio.TaskGroup() as tasks,
        ):
            for member in "ab":
                consumer = PushConsumer(
                    GROUP,
                    self.handle,
                    nameservers=self.nameserver,
                    client_id=f"{member}@1",
                    start_from=StartFrom.FIRST,
                    ordering=Ordering.ORDERLY,
                )
                await members.enter_async_context(consumer.subscribe(TOPIC))
            sending = [tasks.create_task(self.send(key, producer)) for key in KEYS]
            yield
            self.is_sending = False
            await asyncio.wait(sending)
            await until(self.has_all)

    def has_all(self) -> bool:
        return all(max(self.handled[key], default=-1) >= self.sent[key] for key in KEYS)

    async def progress(self) -> None:
        """Every key goes on."""
        before = dict(self.sent)
        await until(lambda: all(self.sent.get(key, -1) > before.get(key, -1) for key in KEYS))

    def check(self) -> None:
        for key in KEYS:
            newest = -1
            for number in self.handled[key]:
                assert number <= newest + 1, (key, self.handled[key])
                newest = max(newest, number)
            assert newest >= self.sent[key]


def kill(cluster: Up, name: str) -> None:
    (pid,) = (each["pid"] for each in cluster.document()["brokers"] if each["name"] == name)
    os.kill(pid, signal.SIGKILL)


async def test_order_within_a_key_survives_kills_while_a_topic_leaves_a_broker_group(
    tmp_path: Path,
) -> None:
    flags = ("--brokers", "2", "--broker-set", f"closing_grace_ms={GRACE_MS}")
    with running(tmp_path, *flags) as cluster:
        run = asyncio.to_thread
        await run(cluster.run, "topic", "create", TOPIC, "--queues", "4", "--ordered")
        load = Load(cluster.document()["nameserver"])
        async with load.running():
            await load.progress()
            spread = asyncio.create_task(
                run(
                    cluster.run,
                    *("topic", "spread", TOPIC, "--retire", "broker-a", "--yes"),
                    expect=(0, 1),
                )
            )
            await asyncio.sleep(GRACE_MS / 2_000)
            kill(cluster, "broker-a")
            await load.progress()
            kill(cluster, "broker-b")
            await load.progress()
            await spread
            kill(cluster, "broker-a")
            await load.progress()
            assert load.at_brokers == {"broker-a", "broker-b"}

            async def has_left() -> bool:
                load.at_brokers.clear()
                await load.progress()
                await load.progress()
                return load.at_brokers == {"broker-b"}

            await until(has_left)
        load.check()
        shown = await run(cluster.run, "topic", "show", TOPIC)
        assert "retired from broker-a" in shown.stderr
