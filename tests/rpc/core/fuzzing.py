"""What fuzzing a server and fuzzing a client have in common: mutated bytes, fed to a connection
directly, in pieces of any size, without sockets, so that a seed says all of it."""

from __future__ import annotations

import argparse
import asyncio
import random
import traceback
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from aerobee.rpc.core.connection import Connection

R = TypeVar("R")

FAILURES_MAX = 5
"""How many failures end a campaign."""


class MemoryTransport(asyncio.Transport):
    """Takes everything, or says sometimes that it takes no more."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__({"peername": ("127.0.0.1", 4711)})
        self._chance = chance
        self.protocol: Connection[Any] | None = None
        self.is_closed = False
        self.written = 0
        """A checksum of all that was."""
        self._is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 100_000 if self._is_paused else 0

    def write(self, data: Any) -> None:
        self.written = zlib.crc32(data, self.written)
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


def into_buffer(connection: Connection[Any], data: bytes) -> int:
    """Give a connection what arrived, as far as it has room now; returns how much that was."""
    room = connection.get_buffer(-1)
    size = min(len(room), len(data))
    room[:size] = data[:size]
    del room
    connection.buffer_updated(size)
    return size


class Fuzz(ABC):
    """Feeds one mutated stream after the other, each to a connection of its own."""

    def __init__(self) -> None:
        self.escaped: list[str] = []
        self.written = 0
        """A checksum of what the last connection wrote."""
        asyncio.get_running_loop().set_exception_handler(self._on_escape)

    def _on_escape(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        lines = traceback.format_exception(error) if error else [str(context)]
        self.escaped.append("".join(lines))

    @abstractmethod
    async def stream(self, seed: int) -> None:
        """One stream, and the end of its connection; `escaped` gets what it should not do."""

    async def close(self) -> None:  # noqa: B027  (a client has nothing to close)
        """After the last stream."""

    async def campaign(self, streams: int, first_seed: int) -> list[str]:
        """What escaped, by seed; ends with the first few."""
        found: list[str] = []
        for seed in range(first_seed, first_seed + streams):
            await self.stream(seed)
            found.extend(f"seed {seed}: {what}" for what in self.escaped)
            self.escaped.clear()
            if len(found) >= FAILURES_MAX:
                break
        await self.close()
        return found

    async def feed(
        self,
        connection: Connection[Any],
        transport: MemoryTransport,
        received: bytes,
        chance: random.Random,
    ) -> None:
        position = 0
        piece = chance.choice([1, 10, 100, 1 << 20])
        while position < len(received) and not transport.is_closed:
            size = chance.randrange(1, piece + 1)
            part = received[position : position + size]
            if piece == 1:  # quicker, and nearly the same
                self.call(connection.data_received, part)
                position += 1
            else:
                position += self.call(partial(into_buffer, connection), part) or size
            if chance.random() < 0.3:
                await asyncio.sleep(0)
            if chance.random() < 0.2:
                transport.go_on()
        for _ in range(4):
            await asyncio.sleep(0)
            transport.go_on()

    def call(self, callback: Callable[[Any], R], argument: Any) -> R | None:
        """As the transport would."""
        try:
            return callback(argument)
        except Exception:
            self.escaped.append(traceback.format_exc())
            return None


def run(make: Callable[[], Fuzz], what: str | None) -> int:
    """A campaign from the command line; `what` it is, for its help."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    async def campaign() -> list[str]:
        return await make().campaign(arguments.streams, arguments.seed)

    found = asyncio.run(campaign())
    print("\n".join(found) or f"{arguments.streams} streams, nothing escaped")
    return 1 if found else 0
