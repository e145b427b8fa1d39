"""A server that speaks HTTP/2 frame by frame, even invalidly: for what no honest one sends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aerobee.rpc.core import frames, hpack
from tests.support.raw_http2 import RawPeer, data, headers, message

OK_HEAD = hpack.encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
OK_END = hpack.encode([(b"grpc-status", b"0")])
_END = frames.END_HEADERS | frames.END_STREAM


@dataclass
class RawServing:
    """What is running, and what was received."""

    address: str = ""
    peers: list[RawPeer] = field(default_factory=list)
    """One per connection, in order."""
    failures: list[BaseException] = field(default_factory=list)


def answer(stream_id: int, content: bytes) -> bytes:
    """A complete unary answer."""
    return (
        headers(stream_id, OK_HEAD)
        + data(stream_id, message(content))
        + headers(stream_id, OK_END, _END)
    )


def trailers_only(stream_id: int, *pairs: tuple[bytes, bytes]) -> bytes:
    return headers(stream_id, OK_HEAD + hpack.encode(pairs), _END)


async def requested(peer: RawPeer) -> int:
    """The next complete request; returns its stream.

    Raises:
        ConnectionError: there is none.
    """
    while True:
        received = await peer.receive()
        if received is None:
            raise ConnectionError("the client has closed")
        if received.flags & frames.END_STREAM and received.kind in (frames.DATA, frames.HEADERS):
            return received.stream_id


@asynccontextmanager
async def raw_server(
    *scripts: Callable[[RawPeer], Awaitable[None]],
    settings: Iterable[tuple[int, int]] = (),
    opening: bytes | None = None,
) -> AsyncIterator[RawServing]:
    """The connections follow these scripts, one each, the last for all further ones; a connection
    ends with its script. `opening` replaces SETTINGS. Fails at the end if a script failed.
    """
    serving = RawServing()
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio serves each connection in a task"
        running.add(task)
        peer = RawPeer(reader, writer)
        script = scripts[min(len(serving.peers), len(scripts) - 1)]
        serving.peers.append(peer)
        try:
            await reader.readexactly(len(frames.PREFACE))
            await peer.send(opening or frames.settings_frame(settings))
            await script(peer)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass  # the test is over, or its client is gone
        except BaseException as error:
            serving.failures.append(error)
        finally:
            peer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            running.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    serving.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield serving
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        if running:
            await asyncio.wait(running)
    assert not serving.failures, serving.failures
