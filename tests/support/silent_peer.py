"""A server that accepts connections and never answers, like one that hangs while starting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def silent_peer(on_connected: Callable[[], None] = lambda: None) -> AsyncIterator[str]:
    """Its host:port. No gRPC call to it is ever established; `on_connected` is called for each
    attempt."""
    over = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_connected()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        over.set()
        server.close()
        await server.wait_closed()
