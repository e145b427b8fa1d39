"""A peer that speaks HTTP/2 frame by frame, even invalidly: for what no honest client sends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aerobee.rpc.core import frames, hpack

PATIENCE_S = 20.0


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of a GOAWAY or RST_STREAM."""
        return int.from_bytes(
            self.payload[4:8] if self.kind == frames.GOAWAY else self.payload[:4], "big"
        )


def request_block(path: str, *further: tuple[bytes, bytes]) -> bytes:
    return hpack.encode(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            *further,
        ]
    )


def headers(stream_id: int, block: bytes, flags: int = frames.END_HEADERS) -> bytes:
    return frames.frame(frames.HEADERS, flags, stream_id, block)


def message(content: bytes, compressed: int = 0) -> bytes:
    return bytes((compressed,)) + struct.pack(">L", len(content)) + content


def data(stream_id: int, payload: bytes, *, end: bool = False) -> bytes:
    return frames.frame(frames.DATA, frames.END_STREAM if end else 0, stream_id, payload)


def call(stream_id: int, path: str, content: bytes = b"", *further: tuple[bytes, bytes]) -> bytes:
    """A complete unary call."""
    block = request_block(path, *further)
    return headers(stream_id, block) + data(stream_id, message(content), end=True)


class RawPeer:
    """One connection. Received frames are kept in `frames`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.frames: list[Frame] = []
        self.is_closed = False
        """The server has closed the connection."""

    async def send(self, *parts: bytes) -> None:
        """The server may have closed meanwhile, which is what many tests wait for."""
        try:
            self._writer.write(b"".join(parts))
            await self._writer.drain()
        except ConnectionError:
            self.is_closed = True

    async def flood(self, part: bytes, times: int, *, at_once: int = 100) -> None:
        for _ in range(0, times, at_once):
            if self.is_closed:
                return
            await self.send(part * at_once)
            await asyncio.sleep(0)

    async def receive(self) -> Frame | None:
        """The next frame; None: the connection was closed."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await self._reader.readexactly(frames.HEADER_BYTES)
                high, low, kind, flags, stream_id = frames.unpack_header(head, 0)
                payload = await self._reader.readexactly(high << 8 | low)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.is_closed = True
            return None
        received = Frame(kind, flags, stream_id, payload)
        self.frames.append(received)
        return received

    async def expect(self, kind: int, stream_id: int | None = None) -> Frame:
        """The next frame of this kind, skipping others."""
        while (received := await self.receive()) is not None:
            if received.kind == kind and stream_id in (None, received.stream_id):
                return received
        raise AssertionError(f"closed before a frame of kind {kind}; received {self.frames}")

    async def goaway(self) -> Frame:
        return await self.expect(frames.GOAWAY)

    async def closed(self) -> None:
        """Read until the server closes."""
        while await self.receive() is not None:
            pass

    async def status(self, stream_id: int) -> bytes | None:
        """The grpc-status of a stream; None: it was reset."""
        while True:
            received = await self.receive()
            assert received is not None, f"closed; received {self.frames}"
            if received.stream_id != stream_id:
                continue
            if received.kind == frames.RST_STREAM:
                return None
            if received.kind == frames.HEADERS and received.flags & frames.END_STREAM:
                return dict(fields(received.payload)).get(b"grpc-status")

    async def ping(self) -> None:
        """Returns once everything sent before has been read."""
        await self.send(frames.frame(frames.PING, 0, 0, b"in-order"))
        while (await self.expect(frames.PING)).payload != b"in-order":
            pass

    def close(self) -> None:
        self._writer.close()


def fields(block: bytes) -> list[tuple[bytes, bytes]]:
    """Header fields of a block whose encoder uses no table."""

    def pairs(decoded: list[hpack.Field]) -> list[tuple[bytes, bytes]]:
        return [(field[0], field[1]) for field in decoded]

    return hpack.Decoder(hpack.SharedStrings(), pairs).decode(block)


@asynccontextmanager
async def raw_peer(
    port: int, *, settings: Iterable[tuple[int, int]] = (), opening: bytes | None = None
) -> AsyncIterator[RawPeer]:
    """Connected; `opening` replaces the preface and SETTINGS."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    peer = RawPeer(reader, writer)
    if opening is None:
        opening = frames.PREFACE + frames.settings_frame(settings)
    await peer.send(opening)
    try:
        yield peer
    finally:
        peer.close()
