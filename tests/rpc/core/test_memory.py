"""What a server holds for its peers is counted at its real size, wherever it waits."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from aerobee.rpc.core import frames
from aerobee.rpc.core.limits import ConnectionLimits, Limit
from aerobee.rpc.core.method import Method, coroutine, synchronous
from tests.support.grpc_core_server import SERVICE, Serving, serving
from tests.support.raw_http2 import call, data, headers, message, raw_peer, request_block
from tests.support.waiting import until

LIMITS = ConnectionLimits()
KIB = 1 << 10
MIB = 1 << 20
GZIP = (b"grpc-encoding", b"gzip")


def packed(content: bytes) -> bytes:
    return message(zlib.compress(content, 9, wbits=31), compressed=1)


class Hold:
    """Methods whose handlers wait, until they are let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.got: list[int] = []

    async def stream(self, requests: AsyncIterator[bytes], call: Any) -> bytes:
        await self.let_go.wait()
        async for request in requests:
            self.got.append(len(request))
        return b""

    async def single(self, request: bytes, call: Any) -> bytes:
        self.got.append(len(request))
        await self.let_go.wait()
        return b""

    def methods(self, plain_bytes_max: int | None = None) -> list[Method]:
        return [
            replace(
                coroutine(SERVICE + "Stream", self.stream, streams_requests=True),
                plain_bytes_max=plain_bytes_max,
            ),
            replace(coroutine(SERVICE + "Single", self.single), plain_bytes_max=plain_bytes_max),
            synchronous(SERVICE + "Echo", lambda request, call: request),
        ]


def used(running: Serving) -> int:
    return running.server.memory.used


async def test_compressed_messages_wait_as_they_came() -> None:
    """4 KiB of zeros and gzip are 4 MiB of zeros."""
    hold = Hold()
    async with serving(*hold.methods()) as running, raw_peer(running.port) as peer:
        sent = packed(bytes(4 * MIB)) * 60
        await peer.send(headers(1, request_block(SERVICE + "Stream", GZIP)))
        assert running.server.memory.scratch, "it stays, whatever arrives"
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for begin in range(0, len(sent), 16_384):
            await peer.send(data(1, sent[begin : begin + 16_384]))
        await until(lambda: used(running) >= len(sent))
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held - before < 3 * len(sent)
        assert peak - before < 4 * MIB
        assert used(running) < 2 * len(sent)
        await peer.send(data(1, b"", end=True))
        hold.let_go.set()
        assert await peer.status(1) == b"0"
        assert hold.got == [4 * MIB] * 60


async def test_what_a_handler_has_inflated_counts_until_it_asks_for_the_next() -> None:
    hold = Hold()
    async with serving(*hold.methods()) as running, raw_peer(running.port) as peer:
        sent = data(1, packed(bytes(3 * MIB)), end=True)
        await peer.send(headers(1, request_block(SERVICE + "Single", GZIP)), sent)
        await until(lambda: hold.got)
        assert used(running) >= 3 * MIB
        hold.let_go.set()
        assert await peer.status(1) == b"0"
        await until(lambda: used(running) == 0)


async def test_inflated_requests_of_all_connections_together_are_bounded() -> None:
    hold = Hold()
    async with serving(*hold.methods(), memory_bytes_max=20 * MIB) as running:
        sent = packed(bytes(4 * MIB))
        async with raw_peer(running.port) as one, raw_peer(running.port) as other:
            for peer in (one, other):
                for stream in (1, 3, 5):
                    block = request_block(SERVICE + "Single", GZIP)
                    await peer.send(headers(stream, block), data(stream, sent, end=True))
            await until(lambda: Limit.PROCESS_MEMORY in running.limits_met)
            assert used(running) <= 20 * MIB


@pytest.mark.parametrize("method", ["Stream", "Single"])
async def test_a_methods_own_limit_holds_before_its_request_is_inflated(method: str) -> None:
    hold = Hold()
    hold.let_go.set()
    async with serving(*hold.methods(8 * KIB)) as running, raw_peer(running.port) as peer:
        small, large = packed(bytes(8 * KIB)), packed(bytes(8 * KIB + 1))
        bomb = packed(bytes(4 * MIB))
        for stream, content in ((1, small), (3, large), (5, bomb)):
            block = request_block(SERVICE + method, GZIP)
            tracemalloc.start()
            await peer.send(headers(stream, block), data(stream, content, end=True))
            assert await peer.status(stream) == (b"0" if stream == 1 else b"8")
            assert tracemalloc.get_traced_memory()[1] < MIB
            tracemalloc.stop()
        assert hold.got == [8 * KIB]
        assert running.limits_met == [Limit.MESSAGE] * 2


async def test_small_messages_that_wait_count_with_what_holds_them() -> None:
    hold = Hold()
    async with serving(*hold.methods()) as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block(SERVICE + "Stream")))
        sent = message(b"ab") * 10_000
        assert running.server.memory.scratch, "it stays, whatever arrives"
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for begin in range(0, len(sent), 16_384):
            await peer.send(data(1, sent[begin : begin + 16_384]))
        await until(lambda: used(running) >= len(sent))
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert used(running) > 0.8 * held


async def test_what_the_transport_holds_for_a_peer_that_does_not_read_is_counted() -> None:
    """Also below the mark at which the transport says that it is full."""
    room = 256 * MIB
    limits = replace(
        LIMITS, send_high_water_bytes=room, queued_bytes_soft=room, queued_bytes_max=room
    )
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        window = frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 1 << 30)])
        await peer.send(window, frames.window_update(0, 1 << 30))
        for stream in range(1, 65, 2):  # the kernel takes some MiB
            await peer.send(call(stream, SERVICE + "Large", b"1000000"))
        (connection,) = running.server.connections
        transport = connection.transport
        assert transport is not None
        await until(lambda: transport.get_write_buffer_size() > MIB)
        running.server.tick(time.monotonic())
        assert used(running) >= transport.get_write_buffer_size() > 0
        transport.abort()


async def test_the_window_is_given_back_as_messages_are_taken_not_as_they_inflate() -> None:
    hold = Hold()
    limits = replace(LIMITS, streaming_window_bytes=64 * KIB, stream_window_bytes=64 * KIB)
    async with serving(*hold.methods(), limits=limits) as running, raw_peer(running.port) as peer:
        one = packed(bytes(2 * MIB))
        count = 64 * KIB // len(one)
        await peer.send(headers(1, request_block(SERVICE + "Stream", GZIP)))
        for begin in range(0, count * len(one), 16_384):
            await peer.send(data(1, (one * count)[begin : begin + 16_384]))
        await peer.send(call(3, SERVICE + "Echo"))
        assert await peer.status(3) == b"0"
        hold.let_go.set()
        given = 0
        while given < count * len(one) // 2:
            update = await peer.expect(frames.WINDOW_UPDATE, 1)
            given += int.from_bytes(update.payload, "big")
        assert given <= count * len(one)
