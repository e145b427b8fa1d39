"""Two protocols on one port, told apart by their first bytes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from aerobee.rpc.core.limits import ConnectionLimits, Limit
from tests.support.grpc_core_channel import channel_to
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.waiting import until


class Shouts(asyncio.Protocol):
    """The other protocol: it answers in capitals."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside

    def connection_made(self, transport: Any) -> None:
        self._beside.open.add(self)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data.upper())

    def connection_lost(self, error: Exception | None) -> None:
        self._beside.open.discard(self)


class Beside:
    def __init__(self) -> None:
        self.open: set[Shouts] = set()
        self.listeners: list[str] = []

    def connect(self, listener: str) -> Shouts:
        self.listeners.append(listener)
        return Shouts(self)

    def __len__(self) -> int:
        return len(self.open)

    async def stop(self, grace_s: float) -> None: ...


async def answer_of(port: int, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)  # so that they arrive apart
    answer = await reader.readexactly(sum(map(len, pieces)))
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize("pieces", [(b"shout",), (b"s", b"hout"), (b"PR", b"x"), (b"PRI", b"me")])
async def test_what_does_not_begin_as_http_2_reaches_the_other_protocol_whole(
    pieces: tuple[bytes, ...],
) -> None:
    beside = Beside()
    async with serving(beside=beside) as running:
        assert await answer_of(running.port, *pieces) == b"".join(pieces).upper()
        await until(lambda: not beside.open)
    assert beside.listeners == [""]


async def test_grpc_is_served_as_without_the_other() -> None:
    beside = Beside()
    async with (
        serving(beside=beside) as running,
        channel_to(f"127.0.0.1:{running.port}") as channel,
    ):
        assert await channel.call(SERVICE + "Echo", b"hello") == b"hello"
    assert beside.listeners == []


async def test_connections_of_both_kinds_count_together() -> None:
    beside = Beside()
    async with serving(beside=beside, connections_max=1) as running:
        _, first = await asyncio.open_connection("127.0.0.1", running.port)
        first.write(b"shout")
        await until(lambda: len(beside) == 1)
        reader, second = await asyncio.open_connection("127.0.0.1", running.port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert running.limits_met == [Limit.CONNECTIONS]
        first.close()
        second.close()
        await until(lambda: not beside.open)


async def test_a_connection_that_says_nothing_is_ended() -> None:
    limits = ConnectionLimits(preface_s=0.05)
    async with serving(beside=Beside(), limits=limits) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"PR")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert running.limits_met == [Limit.PREFACE]
        writer.close()


async def test_one_that_goes_before_it_says_anything_leaves_nothing() -> None:
    async with serving(beside=Beside()) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        await until(lambda: running.server.memory.used > 0)
        writer.close()
        await until(lambda: running.server.memory.used == 0)
