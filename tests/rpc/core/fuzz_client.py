"""Mutated byte streams against a client: whatever comes, nothing escapes, every call ends, and all
is given back.

    python -m tests.rpc.core.fuzz_client --streams 1000000 --seed 1
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from aerobee.rpc.core import frames, hpack
from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel import Channel, ChannelState
from aerobee.rpc.core.channel_limits import ChannelLimits, client_connection_limits
from aerobee.rpc.core.client_call import ClientCall
from tests.rpc.core.fuzzing import Fuzz, MemoryTransport, changed, run
from tests.support.grpc_core_channel import Observed
from tests.support.raw_http2 import data, headers, message
from tests.support.raw_http2_server import OK_END, OK_HEAD, answer, trailers_only

_END = frames.END_HEADERS | frames.END_STREAM
_GZIP_HEAD = OK_HEAD + hpack.encode([(b"grpc-encoding", b"gzip")])


def conversation(chance: random.Random, calls: int) -> list[bytes]:
    """Whole frames of an honest, lively server."""
    parts = [
        frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, chance.choice([0, 100, 1 << 20]))])
    ]
    for stream in range(1, 2 * calls, 2):
        content = b"x" * chance.choice([0, 1, 1_000, 20_000])
        kind = chance.randrange(6)
        if kind < 2:
            parts.append(answer(stream, content))
        elif kind == 2:
            status = b"%d" % chance.randrange(20)
            parts.append(
                trailers_only(stream, (b"grpc-status", status), (b"grpc-message", b"%c3%"))
            )
        elif kind == 3:
            parts.append(headers(stream, _GZIP_HEAD))
            parts += [
                data(stream, message(content, chance.randrange(2))[: chance.randrange(20_000)])
                for _ in range(chance.randrange(4))
            ]
            parts.append(headers(stream, OK_END, _END))
        elif kind == 4:
            parts.append(headers(stream, OK_HEAD[:3], flags=0))
            parts.append(frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream, OK_HEAD[3:]))
            parts.append(frames.rst_stream(stream, chance.randrange(16)))
        else:
            parts.append(headers(stream, OK_HEAD + b"\x40\x01a\x01b\xbe"))
            parts.append(data(stream, message(content) * 3))
        parts.append(
            chance.choice(
                [
                    frames.window_update(chance.choice([0, stream]), 1 << chance.randrange(31)),
                    frames.frame(frames.PING, chance.randrange(2), 0, b"draining"),
                    frames.settings_frame([(chance.randrange(8), 1 << chance.randrange(32))]),
                    frames.goaway(chance.randrange(2 * calls), chance.randrange(14), "bye"),
                    b"",
                ]
            )
        )
    return parts


class ClientFuzz(Fuzz):
    """Connections of one channel each."""

    def __init__(self) -> None:
        super().__init__()
        connection = replace(
            client_connection_limits(), message_bytes_max=15_000, stream_backlog_bytes=1_000,
            send_turn_bytes=20_000, send_chunk_bytes=16_384, control_burst=50,
        )  # fmt: skip
        self._limits = ChannelLimits(
            connection=connection, backoff_first_s=3_600, backoff_max_s=3_600
        )

    async def stream(self, seed: int) -> None:
        chance = random.Random(seed)
        count = chance.randrange(1, 8)
        received = changed(conversation(chance, count), chance)
        channel = Channel(
            "127.0.0.1:1", now=time.monotonic, random=chance, observer=Observed(),
            limits=self._limits,
        )  # fmt: skip
        transport = MemoryTransport(chance)
        connection = channel._current = channel._make_connection()
        channel.state = ChannelState.READY
        transport.protocol = connection
        connection.connection_made(transport)
        users = [asyncio.ensure_future(self._use(channel, chance)) for _ in range(count)]
        await asyncio.sleep(0)
        await self.feed(connection, transport, received, chance)
        self.call(connection.connection_lost, None)
        self.written = transport.written
        channel.state = ChannelState.BACKOFF  # there is nobody to connect to
        await channel.close()
        done, late = await asyncio.wait(users, timeout=5)
        self.escaped.extend(repr(user.exception()) for user in done if user.exception())
        if late:
            self.escaped.append(f"{len(late)} calls have no end")
        if channel.held_bytes or connection.streams or connection.queued_bytes:
            self.escaped.append(f"{channel.held_bytes} bytes are held for nothing")

    async def _use(self, channel: Channel, chance: random.Random) -> None:
        """One call of any shape; it may end as it likes, and is given up at any time."""
        use = chance.choice([_unary, _read, _chat])
        call, using = use(channel, b"x" * chance.choice([0, 1_000, 50_000]))
        if chance.random() < 0.2:
            asyncio.get_running_loop().call_soon(call.cancel)
        with contextlib.suppress(CallError):
            await using
        assert call.is_over


def _unary(channel: Channel, request: bytes) -> tuple[ClientCall, Any]:
    call = channel.start("/test.Echo/Echo", request)
    return call, call.answer


def _read(channel: Channel, request: bytes) -> tuple[ClientCall, Coroutine[Any, Any, None]]:
    call = channel.stream("/test.Echo/Count", request)

    async def read() -> None:
        async for _ in call:
            pass

    return call, read()


def _chat(channel: Channel, request: bytes) -> tuple[ClientCall, Coroutine[Any, Any, None]]:
    call = channel.stream("/test.Echo/Chat")

    async def chat() -> None:
        answer: bytes | None = b""
        while answer is not None:
            await call.write(request)
            answer = await call.read()

    return call, chat()


if __name__ == "__main__":
    sys.exit(run(ClientFuzz, __doc__))
