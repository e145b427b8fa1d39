"""A TCP path whose other end goes away without a word, while a new connection finds another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class DyingPath:
    """To a port of this machine; see `dying_path`."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._alive = asyncio.Event()
        self._alive.set()
        self.address = ""
        self.connections = 0

    def die(self) -> None:
        """Nothing goes over the present connections any more, and nothing ends them."""
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
async def dying_path(target_port: int) -> AsyncIterator[DyingPath]:
    """As to a process that was moved behind the same address, by a service of Kubernetes say."""
    path = DyingPath(target_port)
    streams: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams.add(asyncio.ensure_future(path.serve(reader, writer)))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    path.address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield path
    finally:
        listener.close()
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
