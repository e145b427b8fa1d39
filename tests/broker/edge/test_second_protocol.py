"""The domain serves a second protocol beside the own one: same log, same offsets, same promises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aerobee.broker.edge.server import BrokerServer
from aerobee.broker.store.config import StoreConfig
from aerobee.store_format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.edge.lines_protocol import LinesEdge


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
def lines_ports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Brokers started from now on serve lines, too; where."""
    ports: list[int] = []

    class BothServers(BrokerServer):
        def __init__(self, parts: Any, identity: Any) -> None:
            super().__init__(parts, identity)
            self._lines = LinesEdge(parts)

        async def start(self, listen: str) -> int:
            ports.append(await self._lines.start())
            return await super().start(listen)

        async def stop(self, grace_s: float) -> None:
            await self._lines.stop()
            await super().stop(grace_s)

    monkeypatch.setattr("aerobee.broker.broker.BrokerServer", BothServers)
    return ports


async def test_messages_and_offsets_of_one_protocol_are_those_of_the_other(
    lines_ports: list[int], start_broker: Any
) -> None:
    broker = await start_broker()
    async with connected(lines_ports[0]) as client:
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
    lines_ports: list[int], start_broker: Any
) -> None:
    broker = await start_broker()
    async with connected(lines_ports[0]) as client:
        refused = await client.ask("send", topic="unknown", queue=0, body="x")
        assert refused["error"] == "no such topic"
        assert (await broker.send_bodies("unknown", 0, b"x")).code == common_pb2.TOPIC_NOT_FOUND
        assert (await client.ask("pull", topic="t", queue=9, offset=0))["error"] == "no such queue"
        late = await client.ask("commit", group="g", topic="t", queue=0, offset=5)
        assert late["error"] == "nonsense"
        assert (await client.ask("pull", topic="t", queue=0, offset=0))["end"] == "nothing new"


async def test_an_answer_waits_for_the_disk_where_that_is_promised(
    lines_ports: list[int], start_broker: Any, sync_flush: StoreConfig
) -> None:
    await start_broker(store=sync_flush)
    async with connected(lines_ports[0]) as client:
        sent = await client.ask("send", topic="t", queue=0, body="x")
        assert sent["safe"] == "promised"
