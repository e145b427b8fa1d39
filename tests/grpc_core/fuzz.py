"""Mutated byte streams against a server: whatever comes, nothing escapes, and all is given back.

    python -m tests.grpc_core.fuzz --streams 1000000 --seed 1

A stream is a valid conversation that was cut, repeated, flipped or filled with noise, and comes in
pieces of any size. It is fed to a connection directly, without sockets, so a seed says all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from aerobee.grpc_core import frames, hpack
from aerobee.grpc_core.connection import Connection
from aerobee.grpc_core.limits import ConnectionLimits
from aerobee.grpc_core.server import Server
from aerobee.grpc_core.server_connection import ServerConnection
from tests.support.grpc_core_server import SERVICE, Told, echo_methods
from tests.support.raw_http2 import call, data, headers, message, request_block

METHODS = ("Echo", "Later", "Task", "Fail", "Metadata", "Never", "Count", "Sum", "Chat", "Large",
           "Squeezed", "Nothing")  # fmt: skip


class MemoryTransport(asyncio.Transport):
    """Takes everything, or says sometimes that it takes no more."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__({"peername": ("127.0.0.1", 4711)})
        self._chance = chance
        self.protocol: Connection[Any] | None = None
        self.is_closed = False
        self.written = 0
        self._is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 100_000 if self._is_paused else 0

    def write(self, data: Any) -> None:
        self.written += len(data)
        if not self._is_paused and self.protocol is not None and self._chance.random() < 0.02:
            self._is_paused = True
            self.protocol.pause_writing()

    def go_on(self) -> None:
        if self._is_paused and self.protocol is not None:
            self._is_paused = False
            self.protocol.resume_writing()

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    abort = close


def conversation(chance: random.Random) -> list[bytes]:
    """Whole frames of an honest, lively client."""
    parts = [
        frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, chance.choice([0, 100, 1 << 20]))])
    ]
    stream = 1
    for _ in range(chance.randrange(1, 8)):
        path = SERVICE + chance.choice(METHODS)
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


def mutated(parts: list[bytes], chance: random.Random) -> bytes:
    """A client's bytes."""
    preface = frames.PREFACE if chance.random() < 0.98 else frames.PREFACE[: chance.randrange(24)]
    return preface + changed(parts, chance)


def changed(parts: list[bytes], chance: random.Random) -> bytes:
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(parts))
        change = chance.randrange(6)
        if change == 0:
            del parts[place : place + 1]
            parts = parts or [b""]
        elif change == 1:
            parts.insert(place, parts[chance.randrange(len(parts))])
        elif change == 2:
            parts[place] = parts[place][: chance.randrange(len(parts[place]) + 1)]
        elif change == 3:
            parts.insert(place, chance.randbytes(chance.randrange(40)))
        elif parts[place]:
            part = bytearray(parts[place])
            for _ in range(chance.randrange(1, 4)):
                where = chance.randrange(min(len(part), 12 if change == 4 else len(part)))
                part[where] = chance.choice([0, 1, 0xFF, part[where] ^ 1 << chance.randrange(8)])
            parts[place] = bytes(part)
    return b"".join(parts)


class Fuzz:
    """Feeds one stream after the other to connections of one server."""

    def __init__(self) -> None:
        self.told = Told()
        limits = ConnectionLimits(
            message_bytes_max=50_000, stream_backlog_bytes=1_000, send_turn_bytes=20_000,
            streams_per_turn=3,
        )  # fmt: skip
        self.server = Server(
            now=time.monotonic,
            random=random.Random(0),
            observer=self.told,
            on_bug=self.told.bug,
            limits=limits,
        )
        self.server.add(*echo_methods([]))
        self.escaped: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_escape)

    def _on_escape(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        lines = traceback.format_exception(error) if error else [str(context)]
        self.escaped.append("".join(lines))

    async def stream(self, seed: int) -> None:
        """One mutated stream, and the end of its connection."""
        chance = random.Random(seed)
        stream = mutated(conversation(chance), chance)
        connection = ServerConnection(self.server, self.server.loop)
        transport = MemoryTransport(chance)
        transport.protocol = connection
        connection.connection_made(transport)
        position = 0
        piece = chance.choice([1, 10, 100, 1 << 20])
        while position < len(stream) and not transport.is_closed:
            size = chance.randrange(1, piece + 1)
            self._fed(connection.data_received, stream[position : position + size])
            position += size
            if chance.random() < 0.3:
                await asyncio.sleep(0)
            if chance.random() < 0.2:
                transport.go_on()
        for _ in range(4):
            await asyncio.sleep(0)
            transport.go_on()
        self._fed(connection.connection_lost, None)
        for _ in range(3):
            await asyncio.sleep(0)
        if self.server.memory.used or connection.streams or self.server.tasks:
            self.escaped.append(f"{self.server.memory.used} bytes or a task are held for nobody")

    def _fed(self, call: Callable[[Any], None], argument: Any) -> None:
        try:
            call(argument)
        except Exception:
            self.escaped.append(traceback.format_exc())


async def campaign(streams: int, first_seed: int) -> list[str]:
    """What escaped, by seed; ends with the first few."""
    fuzz = Fuzz()
    found: list[str] = []
    for seed in range(first_seed, first_seed + streams):
        await fuzz.stream(seed)
        # Handlers may only raise what `int(request)` raises for nonsense.
        wrong = [repr(bug) for bug in fuzz.told.bugs if not isinstance(bug, ValueError)]
        found.extend(f"seed {seed}: {what}" for what in fuzz.escaped + wrong)
        fuzz.escaped.clear()
        fuzz.told.bugs.clear()
        fuzz.told.met.clear()
        if len(found) >= 5:
            break
    await fuzz.server.stop(0)
    return found


def run(campaign: Callable[[int, int], Coroutine[Any, Any, list[str]]], what: str | None) -> int:
    """A campaign from the command line; `what` it is, for its help."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = asyncio.run(campaign(arguments.streams, arguments.seed))
    print("\n".join(found) or f"{arguments.streams} streams, nothing escaped")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(run(campaign, __doc__))
