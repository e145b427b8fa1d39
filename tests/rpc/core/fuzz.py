"""Mutated byte streams against a server: whatever comes, nothing escapes, and all is given back.

    python -m tests.rpc.core.fuzz --streams 1000000 --seed 1

A stream is a valid conversation that was cut, repeated, flipped or filled with noise.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Sequence

from aerobee.rpc.core import frames, hpack
from aerobee.rpc.core.limits import ConnectionLimits, Limit
from aerobee.rpc.core.server import Server
from aerobee.rpc.core.server_connection import ServerConnection
from tests.rpc.core.fuzzing import Fuzz, MemoryTransport, changed, run
from tests.support.grpc_core_server import SERVICE, Told, echo_methods
from tests.support.raw_http2 import call, data, headers, message, request_block

METHODS = ("Echo", "Later", "Task", "Fail", "Metadata", "Never", "Count", "Sum", "Chat", "Large",
           "Squeezed", "Nothing")  # fmt: skip


PATHS = tuple(SERVICE + method for method in METHODS)


def conversation(chance: random.Random, paths: Sequence[str] = PATHS) -> list[bytes]:
    """Whole frames of an honest, lively client."""
    parts = [
        frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, chance.choice([0, 100, 1 << 20]))])
    ]
    stream = 1
    for _ in range(chance.randrange(1, 8)):
        path = chance.choice(paths)
        content = b"%d" % chance.randrange(100) + b"," * chance.randrange(2)
        kind = chance.randrange(5)
        if kind < 2:
            parts.append(call(stream, path, content, (b"grpc-timeout", b"5S")))
        elif kind == 2:
            parts.append(headers(stream, request_block(path, (b"grpc-encoding", b"gzip"))))
            parts += [
                data(stream, message(content, chance.randrange(2)))
                for _ in range(chance.randrange(4))
            ]
            parts.append(data(stream, b"", end=True))
        elif kind == 3:
            block = request_block(path, (b"x-some-bin", b"AAEC"))
            half = chance.randrange(len(block))
            parts.append(headers(stream, block[:half], flags=0))
            parts.append(
                frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream, block[half:])
            )
            parts.append(frames.rst_stream(stream, chance.randrange(16)))
        else:
            table = b"\x40\x01a" + hpack.encode_field(b"te", b"trailers") + b"\xbe"
            parts.append(headers(stream, request_block(path) + table))
        parts.append(
            chance.choice(
                [
                    frames.window_update(chance.choice([0, stream]), 1 << chance.randrange(31)),
                    frames.frame(frames.PING, chance.randrange(2), 0, b"draining"),
                    frames.settings_frame([(chance.randrange(8), 1 << chance.randrange(32))]),
                    frames.frame(frames.PRIORITY, 0, stream, b"\0\0\0\0\1"),
                    frames.goaway(0, 0, "bye"),
                    b"",
                ]
            )
        )
        stream += 2
    return parts


NUMBERS = (b"0", b"5", b"9" * 19, b"9" * 20, b"9" * 5_000, b"-1", b"+1", b" 1", b"1_0", b"1e9",
           b"\xb2", b"\xd9\xa1", b"")  # fmt: skip
VALUES = (b"", b"x", b"gzip", b"gzip,", b",,", b"trailers", b"application/grpc", b"\xff\xfe",
          b"\xc3", b"a" * 9_000, b"=" * 40, b"5S", b"99999999n", b"123456789S", b"S")  # fmt: skip
NAMES = (b":method", b":scheme", b":path", b":authority", b":status", b":x", b"content-type", b"te",
         b"content-length", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding", b"x-a-bin",
         b"x-a", b"X-A", b"", b"\xff", b"connection", b"grpc-status", b"host")  # fmt: skip


def odd_block(chance: random.Random) -> bytes:
    """Fields that are well encoded, with any names and values, some twice, in any order."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", chance.choice(PATHS).encode()),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]
    for _ in range(chance.randrange(1, 5)):
        name = chance.choice(NAMES)
        value = chance.choice((*NUMBERS, *VALUES, chance.randbytes(chance.randrange(20))))
        fields.insert(chance.randrange(len(fields) + 1), (name, value))
    for _ in range(chance.randrange(3)):
        del fields[chance.randrange(len(fields))]
    form = chance.choice((0x00, 0x10, 0x40))
    return b"".join(
        bytes((form,)) + hpack.encoded_integer(len(name), 0x7F, 0) + name
        + hpack.encoded_integer(len(value), 0x7F, 0) + value
        for name, value in fields
    )  # fmt: skip


def heads(chance: random.Random) -> list[bytes]:
    """Calls whose header blocks nobody honest sends."""
    parts = [frames.settings_frame([])]
    for stream in range(1, 1 + 2 * chance.randrange(1, 6), 2):
        is_end = chance.random() < 0.3
        flags = frames.END_HEADERS | (frames.END_STREAM if is_end else 0)
        parts.append(headers(stream, odd_block(chance), flags))
        if not is_end:
            parts.append(data(stream, message(b"7"), end=chance.random() < 0.8))
            if chance.random() < 0.2:  # trailers
                end = frames.END_HEADERS | frames.END_STREAM
                parts.append(headers(stream, odd_block(chance), end))
    return parts


def mutated(parts: list[bytes], chance: random.Random) -> bytes:
    """A client's bytes."""
    preface = frames.PREFACE if chance.random() < 0.98 else frames.PREFACE[: chance.randrange(24)]
    return preface + changed(parts, chance)


class ServerFuzz(Fuzz):
    """Connections of one server."""

    def __init__(self) -> None:
        super().__init__()
        self._told = Told()
        limits = ConnectionLimits(
            message_bytes_max=50_000, stream_backlog_bytes=1_000, send_turn_bytes=20_000,
            send_chunk_bytes=16_384, streams_per_turn=3,
        )  # fmt: skip
        self._server = Server(
            now=time.monotonic,
            random=random.Random(0),
            observer=self._told,
            on_bug=self._told.bug,
            limits=limits,
        )
        self._server.add(*echo_methods([]))

    async def stream(self, seed: int) -> None:
        chance = random.Random(seed)
        if seed % 3:
            received = mutated(conversation(chance), chance)
        else:
            received = frames.PREFACE + b"".join(heads(chance))
        server = self._server
        connection = ServerConnection(server, server.loop)
        transport = MemoryTransport(chance)
        transport.protocol = connection
        connection.connection_made(transport)
        await self.feed(connection, transport, received, chance)
        self.call(connection.connection_lost, None)
        self.written = transport.written
        for _ in range(3):
            await asyncio.sleep(0)
        if server.memory.used or connection.streams or server.tasks:
            self.escaped.append(f"{server.memory.used} bytes or a task are held for nothing")
        # Handlers may only raise what `int(request)` raises for nonsense.
        bugs = self._told.bugs
        self.escaped.extend(repr(bug) for bug in bugs if not isinstance(bug, ValueError))
        bugs.clear()
        self.escaped.extend(why for limit, why in self._told.met if limit is Limit.BUG)
        self._told.met.clear()

    async def close(self) -> None:
        await self._server.stop(0)


if __name__ == "__main__":
    sys.exit(run(ServerFuzz, __doc__))
