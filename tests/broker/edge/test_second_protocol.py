"""The domain serves a second protocol beside the own one: same log, same offsets, same promises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aerobee.store.engine.config import StoreConfig
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.edge.lines_protocol import Lines, LinesEdge

StartBoth = Callable[..., Awaitable[tuple[RunningBroker, LinesEdge]]]


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, do: str, **what: Any) -> dict[str, Any]:
        self._writer.write(json.dumps({"do": do, **what}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await self._reader.readline())
        return answer


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def start_both(start_broker: StartBroker) -> StartBoth:
    """Starts a broker that serves lines, too; the lines' edge comes with it."""

    async def start(**changes: Any) -> tuple[RunningBroker, LinesEdge]:
        broker = await start_broker(features=(Lines,), **changes)
        return broker, broker.feature(Lines).edge

    return start


async def test_messages_and_offsets_of_one_protocol_are_those_of_the_other(
    start_both: StartBoth,
) -> None:
    broker, lines = await start_both()
    assert lines.is_serving
    async with connected(lines.port) as client:
        sent = await client.ask("send", topic="t", queue=1, body="by lines")
        assert (sent["offset"], sent["safe"]) == (0, "in memory")
        assert (await broker.send_bodies("t", 1, b"by gRPC")).base_queue_offset == 1
        pulled = await client.ask("pull", topic="t", queue=1, offset=0)
        assert pulled == {"end": "found", "bodies": ["by lines", "by gRPC"], "next": 2}
        request = broker_pb2.PullRequest(topic="t", queue_id=1, offset=0)
        records = (await broker.pull.Pull(request)).records
        assert [record.body for record in iterate_records(records)] == [b"by lines", b"by gRPC"]
        assert await client.ask("commit", group="g", topic="t", queue=1, offset=2) == {
            "committed": 2
        }
        assert (await client.ask("committed", group="g", topic="t", queue=1))["committed"] == 2
        query = broker_pb2.QueryOffsetsRequest(group="g")
        (known,) = (await broker.offsets.QueryOffsets(query)).offsets
        assert (known.queue_id, known.offset, known.code) == (1, 2, common_pb2.OK)


async def test_each_protocol_says_an_error_in_its_own_words(
    start_both: StartBoth,
) -> None:
    broker, lines = await start_both()
    assert lines.is_serving
    async with connected(lines.port) as client:
        refused = await client.ask("send", topic="unknown", queue=0, body="x")
        assert refused["error"] == "no such topic"
        assert (await broker.send_bodies("unknown", 0, b"x")).code == common_pb2.TOPIC_NOT_FOUND
        assert (await client.ask("pull", topic="t", queue=9, offset=0))["error"] == "no such queue"
        late = await client.ask("commit", group="g", topic="t", queue=0, offset=5)
        assert late["error"] == "nonsense"
        assert (await client.ask("pull", topic="t", queue=0, offset=0))["end"] == "nothing new"


async def test_an_answer_waits_for_the_disk_where_that_is_promised(
    start_both: StartBoth, sync_flush: StoreConfig
) -> None:
    _, lines = await start_both(store=sync_flush)
    async with connected(lines.port) as client:
        sent = await client.ask("send", topic="t", queue=0, body="x")
        assert sent["safe"] == "promised"
