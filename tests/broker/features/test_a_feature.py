"""A feature of sixty lines is part of a broker by one entry in the list of features."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from aerobee.broker.features import Edge, Feature
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.runtime.metrics.config import MetricsConfig
from aerobee.runtime.metrics.families import AnyFamily, one_gauge
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.ports import free_port
from tests.support.scrapes import Scrape

GUESTS = "AEROBEE_SYS_GUESTS"


# -------------------------------------------------------------------------------- the feature


class Parts(Protocol):
    """What a guest book needs of the broker."""

    writes: OwnWrites


class GuestBook(Feature):
    """Guests sign at the door, at a master only; each name is a record of the book's own topic."""

    @classmethod
    def own_topics(cls, config: StoreConfig) -> Mapping[str, int]:
        return {GUESTS: 1}

    @classmethod
    def open(cls, disk: Disk, store: MessageStore, config: StoreConfig) -> int:
        """How many have signed it."""
        return store.queues.bounds(GUESTS, 0).max_offset

    def __init__(self, parts: Parts, opened: int) -> None:
        self._writes = parts.writes
        self._signed = opened
        self._is_open = False
        self.edges: Sequence[Edge] = (Door(self),)
        self.port = 0

    def begin(self, term: MasterTerm) -> None:
        self._is_open = True

    def end(self) -> None:
        self._is_open = False

    async def figures(self) -> Sequence[AnyFamily]:
        return (one_gauge("guests", "Who has signed.", self._signed),)

    def sign(self, name: bytes) -> bytes:
        if not self._is_open:
            return b"closed\n"
        self._writes.append(GUESTS, 0, name)
        self._signed += 1
        return b"guest %d\n" % self._signed


class Door(Edge):
    """Takes lines, one for each guest."""

    def __init__(self, book: GuestBook) -> None:
        self._book = book
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self._book.port = self._server.sockets[0].getsockname()[1]
        return self._book.port

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._book.sign((await reader.readline()).strip()))
        writer.close()

    async def stop(self, grace_s: float) -> None:
        if self._server is not None:
            self._server.close()

    async def set_serving(self, serving: bool) -> None: ...

    def end_pulls(self) -> None: ...


# -------------------------------------------------------------------------------- the proof


async def signed(broker: RunningBroker, name: str) -> str:
    """What the door answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.feature(GuestBook).port)
    writer.write(name.encode() + b"\n")
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer.decode().strip()


async def names(broker: RunningBroker) -> list[bytes]:
    """What a client reads in the book's topic."""
    request = broker_pb2.PullRequest(topic=GUESTS, queue_id=0, offset=0)
    return [bytes(each.body) for each in iterate_records((await broker.pull.Pull(request)).records)]


async def test_a_feature_of_one_class_has_a_topic_a_duty_figures_and_an_edge(
    start_broker: StartBroker,
) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    broker = await start_broker(
        metrics=MetricsConfig(listen=metrics),
        features=(GuestBook,),
    )
    assert await signed(broker, "Ada") == "guest 1", "the duty has begun with the term"
    assert await names(broker) == [b"Ada"]
    refused = await broker.send_bodies(GUESTS, 0, b"Eve")
    assert refused.code == common_pb2.NOT_WRITABLE_TOPIC, "it is the broker's own topic"
    assert (await asyncio.to_thread(Scrape.of, metrics)).get("guests") == 1
    broker.feature(GuestBook).end()
    assert await signed(broker, "Eve") == "closed"
    await broker.stop()
    again = await start_broker(features=(GuestBook,))
    assert await signed(again, "Bob") == "guest 2", "it was opened with the folder"
    assert await names(again) == [b"Ada", b"Bob"]
