"""A small client: one connection, requests and answers both ways.

For tests, tools and nodes that ask each other; clients of users speak gRPC.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.remoting_core.limits import Limit, RemotingLimits

NOT_SUPPORTED: Final = 3
"""Apache's REQUEST_CODE_NOT_SUPPORTED."""

Serve = Callable[[Command], Command | None]
"""What answers a request of the other end; None: no answer."""


class RemotingClient:
    """Made by `connect`; `async with` closes it."""

    def __init__(self, serve: Serve | None) -> None:
        self._serve = serve
        self._connection: Connection | None = None

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        now: Callable[[], float],
        serve: Serve | None = None,
        limits: RemotingLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> RemotingClient:
        """`now`: monotonic seconds; `serve`: see `Serve`. Raises OSError."""
        client = cls(serve)
        allowed = limits or RemotingLimits(idle_s=0)
        loop = asyncio.get_running_loop()
        _, client._connection = await loop.create_connection(
            lambda: Connection(client, allowed, now=now), host, port, ssl=tls
        )
        return client

    async def __aenter__(self) -> RemotingClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._connection is not None and self._connection.is_open

    async def ask(self, request: Command, *, timeout_s: float = 10.0) -> Command:
        """The answer. Raises ConnectionEnded, TimeoutError; ValueError: it fits no frame."""
        async with asyncio.timeout(timeout_s):
            return await self._opened.ask(request)

    def tell(self, request: Command) -> None:
        """One-way. Raises ValueError."""
        self._opened.tell(request)

    def close(self) -> None:
        """Ends what is still asked with ConnectionEnded."""
        if self._connection is not None:
            self._connection.close()

    @property
    def _opened(self) -> Connection:
        assert self._connection is not None, "connect makes it"
        return self._connection

    # ---------------------------------------------------------------- what the connection reports

    def opened(self, connection: Connection) -> bool:
        return True

    def received(self, connection: Connection, request: Command) -> None:
        answer = None
        if self._serve is not None:
            answer = self._serve(request)
        elif not request.is_one_way:
            answer = request.answer(NOT_SUPPORTED, remark="this client serves no requests")
        if answer is not None and not request.is_one_way:
            connection.reply(answer)

    def holds(self, connection: Connection) -> None: ...

    def met(self, connection: Connection, limit: Limit, reason: str) -> None: ...

    def closed(self, connection: Connection) -> None: ...
