"""A position belongs to one life of a topic: what is sent to the next one is skipped by nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aerobee.client_core import MessageQueue
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.consumer_client import PullConsumer, PushConsumer, StartFrom
from aerobee.consumer_client.local_offsets import LocalOffsets, encode_offsets
from aerobee.producer_client import Producer
from aerobee.testing import VirtualCluster

QUEUE = MessageQueue("news", "broker-a", 0)
FIRST = [b"%d" % number for number in range(50)]
SECOND = [b"%d" % number for number in range(100, 110)]


class Scene:
    """A topic with one queue, a member that broadcasts, and a producer."""

    def __init__(self, cluster: VirtualCluster, producer: Producer, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self._producer = producer

    async def send(self, bodies: Sequence[bytes]) -> None:
        await self._producer.send_batch([Message("news", body) for body in bodies], queue=QUEUE)

    async def remake(self) -> None:
        await self.cluster.delete_topic("news")
        await self.cluster.create_topic("news", queues=1)
        await self.cluster.advance(seconds=5)

    @asynccontextmanager
    async def member(self, seen: list[bytes]) -> AsyncIterator[None]:
        async def handle(messages: Sequence[ReceivedMessage]) -> None:
            seen.extend(message.body for message in messages)

        consumer = PushConsumer(
            "screens",
            handle,
            nameservers=self.cluster.nameservers,
            broadcasting=True,
            client_id="m@1",
            offsets_folder=self.folder,
            start_from=StartFrom.LAST,
        )
        async with consumer.subscribe("news"):
            yield
            await self.cluster.advance(seconds=30)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with VirtualCluster() as cluster, Producer(cluster.nameservers) as producer:
        await cluster.create_topic("news", queues=1)
        yield Scene(cluster, producer, tmp_path)


async def test_a_broadcasting_member_that_was_away_gets_all_of_the_new_topic(scene: Scene) -> None:
    seen: list[bytes] = []
    async with scene.member(seen):
        await scene.send(FIRST)
    assert seen == FIRST
    await scene.remake()
    await scene.send(SECOND)
    seen.clear()
    async with scene.member(seen):
        pass
    assert seen == SECOND
    # And goes on where it was.
    await scene.send([b"next"])
    seen.clear()
    async with scene.member(seen):
        pass
    assert seen == [b"next"]


async def test_a_new_topic_that_is_already_longer_is_read_from_its_first_message(
    scene: Scene,
) -> None:
    seen: list[bytes] = []
    async with scene.member(seen):
        await scene.send(SECOND)
    await scene.remake()
    await scene.send(FIRST)
    seen.clear()
    async with scene.member(seen):
        pass
    assert seen == FIRST


async def test_a_broadcasting_member_that_runs_gets_all_of_the_new_topic(scene: Scene) -> None:
    seen: list[bytes] = []
    async with scene.member(seen):
        await scene.send(FIRST)
        await scene.cluster.advance(seconds=10)
        await scene.remake()
        await scene.send(SECOND)
    assert sorted(set(seen)) == sorted({*FIRST, *SECOND})
    assert seen[-len(SECOND) :] == SECOND


async def test_a_member_beyond_the_end_of_a_cut_log_misses_nothing_and_says_so(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.send(SECOND)
    path = scene.folder / "m@1" / "screens" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_offsets(LocalOffsets({QUEUE: 50}, {"news": 0})))
    seen: list[bytes] = []
    with caplog.at_level(logging.WARNING):
        async with scene.member(seen):
            pass
    assert seen == SECOND
    assert any("corrected" in one.getMessage() for one in caplog.records)


async def test_a_reader_of_chosen_queues_does_not_skip_what_a_new_topic_has(scene: Scene) -> None:
    await scene.send(FIRST)
    consumer = PullConsumer(
        "reports", nameservers=scene.cluster.nameservers, start_from=StartFrom.FIRST
    )
    async with consumer:
        await consumer.assign([QUEUE])
        read = [message.body for message in await consumer.poll(50, timeout=10)]
        assert read == FIRST
        await scene.remake()
        await scene.send(SECOND)
        later: list[bytes] = []
        while polled := await consumer.poll(50, timeout=10):
            later += [message.body for message in polled]
    assert later == SECOND


async def test_a_group_has_no_offsets_in_the_new_topic(scene: Scene) -> None:
    async def read() -> list[bytes]:
        consumer = PullConsumer(
            "bills", nameservers=scene.cluster.nameservers, start_from=StartFrom.FIRST
        )
        async with consumer.subscribe("news"):
            found = [message.body for message in await consumer.poll(100, timeout=20)]
            await consumer.commit()
        return found

    await scene.send(FIRST)
    assert await read() == FIRST
    await scene.cluster.stop_broker()
    deleting = asyncio.ensure_future(scene.cluster.delete_topic("news"))
    await scene.cluster.advance(seconds=150)
    await scene.cluster.start_broker()
    await deleting
    await scene.cluster.advance(seconds=10)
    await scene.cluster.create_topic("news", queues=1)
    await scene.send(SECOND)
    assert await read() == SECOND
