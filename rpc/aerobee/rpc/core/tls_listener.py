"""Accepts connections that begin with a TLS handshake and, if allowed, plain-text ones on the same
port.

Owns: the listening socket and the handshakes. asyncio's own TLS servers do not report a connection
before its handshake has ended. Here each counts as a connection once it is accepted, one too many
is closed before it costs a handshake, and `close` ends running ones.

The first byte tells them apart: a handshake begins with 0x16, HTTP/2 with a letter.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Final

from aerobee.rpc.core.limits import Limit
from aerobee.rpc.core.listening import BACKLOG

if TYPE_CHECKING:
    from aerobee.rpc.core.server import Server
    from aerobee.rpc.core.server_connection import ServerConnection

_HANDSHAKE: Final = b"\x16"
_NO_TLS: Final = frozenset({"wrong version number", "http request"})
_RETRY_S: Final = 1.0
"""Pause after the system had no file descriptor for a connection; as long as in asyncio's own
servers."""


class TlsListener:
    """The listener of one bound socket."""

    def __init__(
        self,
        server: Server,
        bound: socket.socket,
        context: ssl.SSLContext,
        *,
        accepts_plain_text: bool,
        listener: str,
    ) -> None:
        self._listener = listener
        self._accepts_plain_text = accepts_plain_text
        self._server = server
        self._loop = server.loop
        self._socket = bound
        self._context = context
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        bound.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        """Accept nothing more; unfinished handshakes give no connection."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for handshake in self._handshakes:
            handshake.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            accepted, address = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # it has gone again
        except OSError as error:
            self._loop.remove_reader(self._socket)
            self._pause = self._loop.call_later(_RETRY_S, self._resume)
            told = {"message": "a connection could not be accepted", "exception": error}
            self._loop.call_exception_handler(told)
            return
        begun: list[asyncio.Task[None]] = []
        connection = self._server.expect(address, self._listener, lambda: begun[0].cancel())
        if connection is None:
            accepted.close()
            return
        accepted.setblocking(False)
        handshake = self._loop.create_task(self._begin(connection, accepted))
        begun.append(handshake)
        self._handshakes.add(handshake)

        def ended(_: asyncio.Task[None]) -> None:
            self._handshakes.discard(handshake)
            self._server.on_handshake_ended(connection)
            if handshake.cancelled():
                accepted.close()  # if cancelled before its first step, nothing else closes it

        handshake.add_done_callback(ended)

    async def _begin(self, connection: ServerConnection, accepted: socket.socket) -> None:
        """A peer that sends no first byte has no more time than one that sends no preface."""
        if self._accepts_plain_text:
            try:
                async with asyncio.timeout(self._server.limits.preface_s):
                    first = await self._first_byte(accepted)
            except TimeoutError:
                accepted.close()
                self._tell(Limit.PREFACE, connection, "not a byte")
                return
            if first != _HANDSHAKE:
                with contextlib.suppress(OSError):  # it has gone
                    await self._loop.connect_accepted_socket(
                        lambda: self._server.accepted(connection), accepted
                    )
                return
        await self._shake_hands(connection, accepted)

    async def _shake_hands(self, connection: ServerConnection, accepted: socket.socket) -> None:
        allowed_s = self._server.limits.preface_s
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._server.accepted(connection),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=allowed_s,
            )
        except ConnectionAbortedError:
            self._tell(Limit.PREFACE, connection, "no TLS handshake")
        except ssl.SSLCertVerificationError as invalid:
            reason = f"its certificate is not valid: {invalid.verify_message}"
            self._server.observer.limit_met(Limit.HANDSHAKE, connection.peer, reason)
        except ssl.SSLError as error:
            words = (error.reason or str(error)).replace("_", " ").lower()
            reason = "it does not speak TLS" if words in _NO_TLS else f"no TLS with it: {words}"
            self._server.observer.limit_met(Limit.HANDSHAKE, connection.peer, reason)
        except OSError:
            pass  # it has gone

    def _tell(self, limit: Limit, connection: ServerConnection, what: str) -> None:
        reason = f"{what} within {self._server.limits.preface_s:g} s"
        self._server.observer.limit_met(limit, connection.peer, reason)

    async def _first_byte(self, accepted: socket.socket) -> bytes:
        """It stays in the socket to be read again. Empty: there is none, and there will be none."""
        while True:
            try:
                return accepted.recv(1, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                return b""
            readable = self._loop.create_future()
            self._loop.add_reader(accepted, _wake, readable)
            try:
                await readable
            finally:
                self._loop.remove_reader(accepted)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
