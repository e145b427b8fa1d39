"""Runs the web server of a console."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from aerobee.console.listening import listening_socket
from aerobee.console.pages import Console
from aerobee.console.settings import ConsoleSettings
from aerobee.runtime.errors import InvalidArgument

CONNECTIONS_MAX: Final = 500
KEEP_ALIVE_S: Final = 30
GRACE_S: Final = 3


class _Server(uvicorn.Server):
    """Signals belong to the command, which is told when browsers may come."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    console: Console,
    settings: ConsoleSettings,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None],
    listener: socket.socket | None = None,
) -> None:
    """`on_ready` gets the address for browsers. `listener`: listens for them already.

    Raises:
        InvalidArgument: the address cannot be used, or the certificate's files.
    """
    listener = listener or listening_socket(settings.host, settings.port)
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        console.app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=settings.certificate or None,
        ssl_keyfile=settings.key or None,
        lifespan="on",
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        listener.close()
        raise InvalidArgument(
            f"{settings.certificate} and {settings.key} cannot be used for https: {error}"
        ) from error
    scheme = "https" if settings.certificate else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    server = _Server(config, lambda: on_ready(f"{scheme}://{host}:{port}"))
    async with asyncio.TaskGroup() as tasks:
        stopping = tasks.create_task(_until(stop, server, console), name="console:stop")
        await server.serve([listener])
        stopping.cancel()


async def _until(stop: asyncio.Event, server: uvicorn.Server, console: Console) -> None:
    await stop.wait()
    console.stop()
    server.should_exit = True
