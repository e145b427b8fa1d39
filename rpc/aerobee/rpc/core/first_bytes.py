"""A second protocol on the port of a server, told apart by the first four bytes.

HTTP/2 begins with `PRI `. What begins otherwise goes to the protocol beside, with everything that
has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aerobee.rpc.core.limits import Limit

if TYPE_CHECKING:
    from aerobee.rpc.core.server import Server
    from aerobee.rpc.core.server_connection import ServerConnection

_HTTP_2: Final = b"PRI "


class BesideConnection(Protocol):
    """A connection of the other protocol."""

    @property
    def listener(self) -> str: ...

    @property
    def transport(self) -> asyncio.BaseTransport | None: ...

    def abort(self) -> None: ...


class Beside(Protocol):
    """The other protocol."""

    def __iter__(self) -> Iterator[BesideConnection]: ...

    def connect(self, listener: str) -> Any:
        """The asyncio protocol of a new connection, by the name of its listener."""
        ...

    def __len__(self) -> int:
        """Its open connections, which count among the server's."""
        ...

    async def stop(self, grace_s: float) -> None:
        """As of the server. May be called again."""
        ...


class FirstBytes:
    """The protocol of a connection until it is known which it speaks. It counts as one that shakes
    hands: a limited number may be silent, and not for long."""

    __slots__ = ("_after", "_beside", "_connection", "_data", "_server", "_timer", "_transport")

    def __init__(
        self,
        server: Server,
        connection: ServerConnection,
        beside: Beside,
        *,
        after: ServerConnection | None = None,
    ) -> None:
        """`after`: what counted during the TLS handshake before."""
        self._server = server
        self._after = after
        self._connection = connection
        self._beside = beside
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Neither uvloop's nor TLS's transports derive from this class; they only have its methods.
        self._transport = cast(asyncio.Transport, transport)
        if self._after is not None:
            self._server.on_handshake_ended(self._after)
        address = transport.get_extra_info("peername")
        if not self._server.count_handshake(self._connection, address, self._transport.abort):
            self._transport.abort()
            return
        preface_s = self._server.limits.preface_s
        self._timer = self._server.loop.call_later(preface_s, self._is_late)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < len(_HTTP_2) and _HTTP_2.startswith(self._data):
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._end()
        is_http_2 = self._data.startswith(_HTTP_2)
        if not is_http_2 and self._server.distrusts(self._connection.listener, transport):
            transport.abort()  # as `Server.admit` ends those of HTTP/2
            return
        chosen = self._connection if is_http_2 else self._beside.connect(self._connection.listener)
        transport.set_protocol(chosen)
        chosen.connection_made(transport)
        chosen.data_received(self._data)
        self._data = b""

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def _is_late(self) -> None:
        words = f"nothing within {self._server.limits.preface_s:g} s"
        self._server.observer.limit_met(Limit.PREFACE, self._connection.peer, words)
        assert self._transport is not None, "the timer was set with it"
        self._transport.abort()

    def _end(self) -> None:
        self._server.on_handshake_ended(self._connection)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
