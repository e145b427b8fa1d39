"""A topic leaves a broker group under load, which is killed meanwhile: each key's order holds."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.consumer_client import Ordering, PushConsumer, StartFrom
from aerobee.producer_client import Producer
from aerobee.runtime.errors import AerobeeError
from aerobee.testing import VirtualCluster, faults

TOPIC, GROUP = "orders", "billing"
KEYS = [f"key-{number}" for number in range(24)]
HANDLING_S = 0.08


class Scene:
    """Producers that number each key's messages, and members that note in which order they came."""

    def __init__(self, cluster: VirtualCluster, admin: AdminClient) -> None:
        self.cluster, self.admin = cluster, admin
        self.sent: dict[str, int] = {}
        self.handled: dict[str, list[int]] = defaultdict(list)
        self.at_brokers: set[str] = set()
        self.is_sending = True

    async def send(self, key: str, producer: Producer) -> None:
        number = 0
        while self.is_sending:
            # A message whose outcome is unknown may come twice; none is left out.
            with contextlib.suppress(AerobeeError):
                await producer.send(Message(TOPIC, f"{key}:{number}".encode(), sharding_key=key))
                self.sent[key] = number
                number += 1
            await asyncio.sleep(0.4)

    async def handle(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            await asyncio.sleep(HANDLING_S)
            key, number = message.body.decode().split(":")
            self.handled[key].append(int(number))
            self.at_brokers.add(message.queue.broker_name)

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Messages are sent within the block, and then read to the end."""
        async with (
            Producer(self.cluster.nameservers) as producer,
            contextlib.AsyncExitStack() as self.members,
            asyncio.TaskGroup() as tasks,
        ):
            sending = [tasks.create_task(self.send(key, producer)) for key in KEYS]
            yield
            self.is_sending = False
            await asyncio.wait(sending)
            await self.cluster.advance(minutes=5)

    async def read(self) -> None:
        """With two members from now on."""
        for member in "ab":
            consumer = PushConsumer(
                GROUP,
                self.handle,
                nameservers=self.cluster.nameservers,
                client_id=f"{member}@1",
                start_from=StartFrom.FIRST,
                ordering=Ordering.ORDERLY,
            )
            await self.members.enter_async_context(consumer.subscribe(TOPIC))

    def check(self) -> None:
        """Each key's numbers came in order and none is missing; some may have come again."""
        for key in KEYS:
            newest = -1
            for number in self.handled[key]:
                assert number <= newest + 1, (key, self.handled[key])
                newest = max(newest, number)
            assert newest >= self.sent[key]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Topic `orders` with two queues on each of two broker groups."""
    async with (
        VirtualCluster(groups=2) as cluster,
        AdminClient(cluster.nameservers, clock=cluster.clock) as admin,
    ):
        await admin.topics.create(TOPIC, queues=4, ordered=True)
        yield Scene(cluster, admin)


async def retire(scene: Scene, broker: str) -> None:
    done = await scene.admin.topics.spread(TOPIC, retire=[broker])
    assert done.after.retired == (broker,)


async def test_each_keys_order_holds_when_its_queue_is_retired_and_the_broker_killed(
    scene: Scene,
) -> None:
    cluster, admin = scene.cluster, scene.admin
    async with scene.load():
        await cluster.advance(seconds=20)
        await retire(scene, "broker-a")
        await scene.read()
        await cluster.advance(seconds=10)
        faults.kill(cluster, "broker-a")
        await cluster.advance(seconds=5)
        await cluster.start_broker("broker-a")
        await cluster.advance(minutes=3)
        remaining = await admin.broker_groups.remaining("broker-a", topic=TOPIC)
        assert remaining.refuses
        assert remaining.is_empty
        await admin.topics.remove_retired(TOPIC, "broker-a")
        scene.at_brokers.clear()
        await cluster.advance(seconds=30)
        assert scene.at_brokers == {"broker-b"}
    scene.check()


async def test_what_an_old_queue_holds_is_counted_until_it_is_read(scene: Scene) -> None:
    cluster, admin = scene.cluster, scene.admin
    async with scene.load():
        await scene.read()
        await cluster.advance(seconds=20)
        await retire(scene, "broker-a")
        remaining = await admin.broker_groups.remaining("broker-a", topic=TOPIC)
        assert not remaining.refuses
        assert remaining.refuses_in_s > 50
        assert [each.group for each in remaining.readers] == [GROUP]
        assert remaining.unread
    scene.check()
