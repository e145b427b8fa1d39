"""A long DATA frame is handled as it arrives, and a long message is read into its own memory."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from aerobee.rpc.core import frames
from aerobee.rpc.core.limits import ConnectionLimits
from aerobee.rpc.core.method import coroutine
from aerobee.rpc.core.server import Server
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.server_connection import ServerConnection
from tests.rpc.core.fuzzing import MemoryTransport, into_buffer
from tests.support.grpc_core_server import Told
from tests.support.raw_http2 import headers, message, request_block

KIB = 1_024
SEND = "/test.Batches/Send"
LONG = 256 * KIB


class Batches:
    """A server whose one method keeps what it reads, and one connection to it."""

    def __init__(self, *, takes_views: bool = False, **limits: Any) -> None:
        self.told = Told()
        self.server = Server(
            now=time.monotonic,
            random=random.Random(0),
            observer=self.told,
            on_bug=self.told.bug,
            limits=ConnectionLimits(**{"frame_bytes_max": LONG, **limits}),
        )
        method = coroutine(SEND, self._read, streams_requests=True, streams_answers=True)
        object.__setattr__(method, "takes_views", takes_views)
        self.server.add(method)
        self.read: list[Any] = []
        self.transport = MemoryTransport(random.Random(1))
        self.connection = ServerConnection(self.server, asyncio.get_running_loop())
        self.connection.connection_made(self.transport)
        self.feed(
            frames.PREFACE
            + frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 1 << 20)])
            + headers(1, request_block(SEND))
        )

    async def _read(self, requests: ServerCall, call: ServerCall) -> None:
        async for request in requests:
            self.read.append(request)

    def feed(self, data: bytes, size: Callable[[], int] = lambda: 1 << 20) -> None:
        at = 0
        while at < len(data) and not self.connection.is_closing:
            at += into_buffer(self.connection, data[at : at + size()])

    async def come(self, count: int) -> list[Any]:
        for _ in range(100):
            if len(self.read) < count:
                await asyncio.sleep(0)
        return self.read

    async def end(self) -> None:
        self.connection.connection_lost(None)
        await self.server.stop(0)
        assert self.server.memory.used == 0, "what a connection held was given back"
        assert self.told.bugs == []


def data_frame(content: bytes, *, padding: int | None = None) -> bytes:
    if padding is None:
        return frames.frame(frames.DATA, 0, 1, content)
    padded = bytes((padding,)) + content + bytes(padding)
    return frames.frame(frames.DATA, frames.PADDED, 1, padded)


@pytest.mark.parametrize("takes_views", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_messages_come_whole_wherever_frames_and_reads_are_cut(
    seed: int, takes_views: bool
) -> None:
    chance = random.Random(seed)
    batches = Batches(takes_views=takes_views, streaming_window_bytes=16 << 20)
    sizes = [chance.choice((0, 40, 20_000, 66_000, 200_000, 500_000)) for _ in range(12)]
    sent = [chance.randbytes(size) for size in sizes]
    stream = b"".join(map(message, sent))
    read_max = chance.choice((900, 5_000, 64 * KIB, 1 << 20))
    at = 0
    while at < len(stream):
        size = chance.choice((30, 16 * KIB, 100_000, LONG - 256))
        padding = chance.choice((None, None, 0, 200))
        frame = data_frame(stream[at : at + size], padding=padding)
        batches.feed(frame, lambda: chance.randrange(1, read_max))
        at += size
        await asyncio.sleep(0)
    assert batches.told.met == []
    assert list(map(bytes, await batches.come(len(sent)))) == sent
    await batches.end()


async def test_the_rest_of_a_batch_is_read_where_it_is_checked() -> None:
    batches = Batches(takes_views=True)
    body = random.Random(1).randbytes(LONG - 5)
    frame = data_frame(message(body))
    batches.feed(frame[: 16 * KIB])
    room = batches.connection.get_buffer(-1)
    rest = frame[16 * KIB :]
    assert len(room) == len(rest), "just this message"
    room[:] = rest
    batches.connection.buffer_updated(len(rest))
    (batch,) = await batches.come(1)
    assert batch == body
    room[-1] ^= 1
    assert batch[-1] != body[-1], "the same memory"
    assert not batch.readonly
    # What follows is read in a small piece, to see whether it is long, too.
    assert len(batches.connection.get_buffer(-1)) == 16 * KIB
    await batches.end()


async def test_whoever_takes_no_views_gets_the_same_memory_as_bytes() -> None:
    batches = Batches()
    batches.feed(data_frame(message(bytes(LONG - 5))))
    (batch,) = await batches.come(1)
    assert batch == bytes(LONG - 5)
    assert type(batch) is bytes
    await batches.end()


async def test_nobody_gets_memory_for_the_length_of_a_message() -> None:
    batches = Batches(streaming_window_bytes=4 << 20)
    stream = message(bytes(2 << 20))
    batches.feed(data_frame(stream[: 30 * KIB]))
    await asyncio.sleep(0)
    assert batches.server.memory.used < 64 * KIB
    batches.feed(data_frame(stream[30 * KIB : 60 * KIB]))
    held = batches.server.memory.used
    assert 2 << 20 <= held < (2 << 20) + 64 * KIB, "its place counts as soon as it has one"
    batches.feed(data_frame(stream[60 * KIB : 90 * KIB]))
    assert batches.server.memory.used == held, "and no more as it fills"
    await batches.end()


async def test_idle_connections_share_the_memory_into_which_they_read() -> None:
    batches = Batches()
    other = ServerConnection(batches.server, asyncio.get_running_loop())
    assert other.get_buffer(-1).obj is batches.connection.get_buffer(-1).obj
    await batches.end()


async def test_small_parts_of_a_long_frame_do_not_wait_for_its_end() -> None:
    """Or each byte would cost as much as all before it."""
    batches = Batches()
    frame = data_frame(message(bytes(LONG - 5)))
    for at in range(0, 60_000):
        batches.feed(frame[at : at + 1])
        assert len(batches.connection.rest) < 1_100
    assert batches.told.met == []
    await batches.end()


async def test_a_long_frame_ends_its_stream_where_the_window_ends() -> None:
    batches = Batches(streaming_window_bytes=100_000, stream_window_bytes=100_000)
    frame = data_frame(message(bytes(10_000)) * 26)
    batches.feed(frame[:90_000])
    assert batches.connection.streams
    batches.feed(frame[90_000:120_000])
    assert not batches.connection.streams
    batches.feed(frame[120_000:])
    assert not batches.connection.is_closing, "the others go on"
    assert not batches.connection.is_mid_frame
    await batches.end()


async def test_frames_other_than_data_may_not_be_long() -> None:
    for kind in (frames.HEADERS, frames.SETTINGS, 200):
        batches = Batches()
        batches.feed(frames.frame(kind, 0, 3, bytes(30_000))[:100])
        assert batches.connection.is_closing
        await batches.end()
