"""A TCP path whose other end disappears silently, while a new connection finds another."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

BACKLOG_PLACES = 4


class DyingPath:
    """A path to a port of this machine; see `dying_path`."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._alive = asyncio.Event()
        self._alive.set()
        self.address = ""
        self.listener: asyncio.Server | None = None
        self.held: list[socket.socket] = []
        self.connections = 0

    def swallow(self) -> None:
        """As `die`; also, new connections get no answer, as if a service still named a machine that
        is gone."""
        assert self.listener is not None, "it listens"
        host, port = self.listener.sockets[0].getsockname()
        self.die()
        self.listener.close()
        full = socket.create_server((host, port), backlog=0)
        self.held.append(full)
        for _ in range(BACKLOG_PLACES):  # later connections are not even acknowledged
            waiting = socket.socket()
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect((host, port))
            self.held.append(waiting)

    def die(self) -> None:
        """No more bytes pass over the present connections, and nothing closes them."""
        self._alive.clear()
        self._alive = asyncio.Event()
        self._alive.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        alive = self._alive
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_carry(reader, target_writer, alive))
                tasks.create_task(_carry(target_reader, writer, alive))
        except* OSError:
            pass
        finally:
            for one in (writer, target_writer):
                one.transport.abort()


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, alive: asyncio.Event
) -> None:
    while data := await reader.read(65_536):
        await alive.wait()
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def dying_path(
    target_port: int, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[DyingPath]:
    """As for a process that was moved behind the same address, for example by a Kubernetes service.
    It listens at `host` and `port`; 0: any."""
    path = DyingPath(target_port)
    streams: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams.add(asyncio.ensure_future(path.serve(reader, writer)))

    listener = path.listener = await asyncio.start_server(serve, host, port)
    path.address = f"{host}:{listener.sockets[0].getsockname()[1]}"
    try:
        yield path
    finally:
        listener.close()
        for one in path.held:
            one.close()
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
