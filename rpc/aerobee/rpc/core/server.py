"""A gRPC server: methods, listeners, and what all connections share.

Nothing here is global: two servers in one process share nothing but the event loop.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from aerobee.rpc.core import request_head
from aerobee.rpc.core.beginnings import Beginnings
from aerobee.rpc.core.connection_set import ConnectionSet, MemoryAccount
from aerobee.rpc.core.deadlines import Deadlines
from aerobee.rpc.core.first_bytes import Beside, FirstBytes
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.hpack import SharedStrings
from aerobee.rpc.core.limits import ConnectionLimits, Limit, LimitObserver
from aerobee.rpc.core.listening import BACKLOG, bound_sockets
from aerobee.rpc.core.method import Method
from aerobee.rpc.core.peer_name import peer_name
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.server_connection import ServerConnection
from aerobee.rpc.core.status import Status
from aerobee.rpc.core.tls import DISTRUSTED, FollowedTls
from aerobee.rpc.core.tls_listener import TlsListener

_AGE_SPREAD: Final = 0.1
HANDSHAKES_MAX: Final = 1_024
"""TLS handshakes at once. They may also take an eighth of the memory."""
HANDSHAKE_BYTES: Final = 64 << 10
"""What one takes, measured."""
FAREWELL_S: Final = 1.0
"""The longest time for peers to read why."""
_FAREWELL_S_MIN: Final = 0.1


class Interceptor(Protocol):
    """Called around every served call: for access control, latencies, a log of calls."""

    def began(self, call: ServerCall) -> None:
        """Its header block has arrived. Raise RpcError to refuse it; `ended` is called even
        then."""
        ...

    def ended(self, call: ServerCall, status: Status, elapsed_s: float) -> None:
        """It has its status. Must not raise."""
        ...


class Server:
    """Serves until `stop`. Belongs to the event loop it was made in."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        random: Random,
        observer: LimitObserver,
        on_bug: Callable[[ServerCall, Exception], None],
        limits: ConnectionLimits | None = None,
        connections_max: int = 10_000,
        memory_bytes_max: int = 512 << 20,
        interceptor: Interceptor | None = None,
        on_disconnected: Callable[[str], None] | None = None,
        heard: Callable[[], None] | None = None,
        beside: Beside | None = None,
    ) -> None:
        """`now`: monotonic seconds. `random` spreads the ages of connections. `on_bug` gets every
        exception of a handler that is not an RpcError. `connections_max` includes TLS handshakes in
        progress. `memory_bytes_max`: for everything waiting to be sent or read on all connections;
        beyond this, the connection that holds the most is ended. `on_disconnected` gets the peer of
        each connection that ends. `heard` is called whenever something arrives. `beside`: another
        protocol on the same ports, for connections that do not begin as HTTP/2 does."""
        self.loop = asyncio.get_running_loop()
        self.now = now
        self.limits = limits or ConnectionLimits()
        self.observer = observer
        self.on_bug = on_bug
        self.interceptor = interceptor
        self.heard = heard
        self.deadlines = Deadlines(self.loop)
        self.beginnings = Beginnings(self.loop)
        self.strings = SharedStrings()
        self.tasks: set[asyncio.Task[None] | None] = set()
        self._methods: dict[bytes, Method] = {}
        self.read_head = request_head.reader(self._methods)
        self._random = random
        self._connections_max = connections_max
        self._on_disconnected = on_disconnected
        self._beside = beside
        self._connections: ConnectionSet[ServerConnection] = ConnectionSet(
            self.loop, now, memory_bytes_max
        )
        self.memory: MemoryAccount = self._connections.memory
        self._handshaking: dict[ServerConnection, Callable[[], object]] = {}
        """Oldest first, each with what ends it."""
        self._handshakes_max = max(1, min(HANDSHAKES_MAX, memory_bytes_max // 8 // HANDSHAKE_BYTES))
        self._listeners: list[asyncio.Server | TlsListener] = []
        self._followed: dict[str, FollowedTls] = {}
        """By listener."""
        self._is_stopping = False

    def add(self, *methods: Method) -> None:
        """Serve these too; add everything before the first connection.

        Raises:
            ValueError: a path is already served.
        """
        for method in methods:
            path = method.path.encode("ascii")
            if path in self._methods:
                raise ValueError(f"{method.path} is served already")
            self._methods[path] = method

    async def listen(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | FollowedTls | None = None,
        accepts_plain_text: bool = False,
        listener: str = "",
    ) -> int:
        """Accept connections on one address; returns the port, which matters if `port` is 0. A
        wildcard of either family accepts connections of both. A context that you make yourself must
        offer the protocol h2, see `tls`. With `accepts_plain_text`, a port with `tls` accepts both.
        `listener`: the listener name that calls arriving here report.

        Raises:
            OSError: the address is in use, or does not belong to this machine.
        """
        sockets = await bound_sockets(self.loop, host, port)
        chosen = int(sockets[0].getsockname()[1])
        for one in sockets:
            await self.listen_on(
                one, tls=tls, accepts_plain_text=accepts_plain_text, listener=listener
            )
        return chosen

    async def listen_on(
        self,
        socket: socket.socket,
        *,
        tls: ssl.SSLContext | FollowedTls | None = None,
        accepts_plain_text: bool = False,
        listener: str = "",
    ) -> None:
        """The same on a socket that is already bound: of another family, or passed in."""
        if tls is None:
            accept: Callable[[], Any] = partial(self._connect, listener)
            if self._beside is not None:
                accept = partial(self._begin, listener, self._beside)
            plain = await self.loop.create_server(accept, sock=socket, backlog=BACKLOG)
            self._listeners.append(plain)
        else:
            context = tls.for_listener() if isinstance(tls, FollowedTls) else tls
            self._listeners.append(
                TlsListener(
                    self,
                    socket,
                    context,
                    accepts_plain_text=accepts_plain_text,
                    listener=listener,
                )
            )
            if isinstance(tls, FollowedTls):
                known = self._followed.setdefault(listener, tls)
                assert known is tls, "a listener has one certificate, whatever its sockets"
                tls.on_withdrawal(self, self._end_distrusted)

    @property
    def connections(self) -> list[ServerConnection]:
        """The number of open ones."""
        return list(self._connections)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running ones finish for `grace_s` seconds, then cancel them. Peers
        that do not read the last data delay it by as long again, within 0.1 to 1 s."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for connection in list(self._handshaking):
            self.on_handshake_ended(connection)
        for followed in self._followed.values():
            followed.forget(self)
        for connection in self._connections:
            connection.part()
        await self._connections.drain(grace_s)
        for task in list(self.tasks):
            if task is not None:
                task.add_done_callback(self.tasks.discard)
                task.cancel()
        farewell_s = min(max(grace_s, _FAREWELL_S_MIN), FAREWELL_S)
        await self._connections.end("the server stops", farewell_s)
        running = [task for task in self.tasks if task is not None]
        if running:
            await asyncio.wait(running, timeout=FAREWELL_S)
        self.deadlines.close()

    # ---------------------------------------------------------------------------- connections

    def _connect(self, listener: str) -> ServerConnection:
        return ServerConnection(self, self.loop, listener)

    def _begin(self, listener: str, beside: Beside) -> FirstBytes:
        return FirstBytes(self, self._connect(listener), beside)

    def accepted(self, connection: ServerConnection) -> Any:
        """The protocol of a connection that `expect` has counted, once it may speak."""
        if self._beside is None:
            return connection
        listener = connection.listener
        return FirstBytes(self, self._connect(listener), self._beside, after=connection)

    def expect(
        self, address: object, listener: str, end: Callable[[], object]
    ) -> ServerConnection | None:
        """A connection that begins with a TLS handshake; None: there are too many. `end` ends the
        handshake: the oldest one makes room for a new one, because an honest one is short."""
        connection = self._connect(listener)
        return connection if self.count_handshake(connection, address, end) else None

    def count_handshake(
        self, connection: ServerConnection, address: object, end: Callable[[], object]
    ) -> bool:
        """False: there are too many connections. As `expect` for one whose kind is not known."""
        connection.peer = peer_name(address)
        if self._is_full():
            self.observer.limit_met(Limit.CONNECTIONS, connection.peer, self._too_many())
            return False
        if len(self._handshaking) >= self._handshakes_max:
            oldest, end_oldest = next(iter(self._handshaking.items()))
            self.on_handshake_ended(oldest)
            self.observer.limit_met(
                Limit.HANDSHAKES,
                oldest.peer,
                f"more than {self._handshakes_max} handshakes at once, this one the oldest",
            )
            end_oldest()
        self._handshaking[connection] = end
        self.memory.add(HANDSHAKE_BYTES)
        return True

    def on_handshake_ended(self, connection: ServerConnection) -> None:
        """It was admitted, or there is nothing to admit."""
        if self._handshaking.pop(connection, None) is not None:
            self.memory.add(-HANDSHAKE_BYTES)

    def admit(self, connection: ServerConnection) -> bool:
        """The transport is ready; a connection too many is closed at once, without GOAWAY. So is
        one that was accepted before the listener closed but gets its turn only now."""
        self.on_handshake_ended(connection)
        if self._is_stopping:
            connection.discard()
            return False
        if self._is_full():
            connection.abort(self._too_many(), Limit.CONNECTIONS)
            return False
        if self.distrusts(connection.listener, connection.transport):
            # Its handshake had begun when the authority was removed.
            connection.abort(DISTRUSTED, Limit.HANDSHAKE)
            return False
        self._connections.add(connection)
        return True

    def _end_distrusted(self) -> None:
        for connection in self._connections:
            if self.distrusts(connection.listener, connection.transport):
                connection.fail(ErrorCode.INADEQUATE_SECURITY, DISTRUSTED, Limit.HANDSHAKE)
        for each in self._beside or ():
            if self.distrusts(each.listener, each.transport):
                each.abort()

    def distrusts(self, listener: str, transport: asyncio.BaseTransport | None) -> bool:
        """By the files of its own listener: another listener may trust the same authority longer,
        or no longer."""
        followed = self._followed.get(listener)
        return followed is not None and followed.distrusts(transport)

    def _is_full(self) -> bool:
        beside = 0 if self._beside is None else len(self._beside)
        return len(self._connections) + len(self._handshaking) + beside >= self._connections_max

    def _too_many(self) -> str:
        return f"more than {self._connections_max} connections"

    def on_parted(self, connection: ServerConnection) -> None:
        self._connections.note_parted(connection)

    def on_disconnected(self, connection: ServerConnection) -> None:
        self._connections.remove(connection)
        if self._on_disconnected is not None:
            self._on_disconnected(connection.peer)

    def age_s(self) -> float:
        """How long a new connection may live; randomised, so that clients do not all return at
        once."""
        return self.limits.age_s * self._random.uniform(1 - _AGE_SPREAD, 1 + _AGE_SPREAD)

    def tick(self, now_s: float) -> None:
        """End what takes too long, on all connections; called once a second."""
        self._connections.tick(now_s)
