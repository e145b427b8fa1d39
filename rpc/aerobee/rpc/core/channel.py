"""A client's channel to one host and port: it connects on first use, and reconnects when necessary.

Owns: the connection on which new calls begin, older connections whose calls are still running, the
calls that wait, and the pause between attempts to connect.

    IDLE  --a call-->  CONNECTING  --HTTP/2 is spoken-->  READY  --the connection leaves-->  IDLE
                           |    ^
                 it failed |    | the pause is over, and calls wait; otherwise IDLE
                           v    |
                          BACKOFF: calls fail at once, unless they wait for a connection

A call that its server is known not to have begun is repeated once: it was refused, or came after
the last stream that a GOAWAY names.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from random import Random
from typing import Final

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.backoff import Backoff
from aerobee.rpc.core.channel_limits import ChannelLimits
from aerobee.rpc.core.client_call import ClientCall
from aerobee.rpc.core.client_connection import ClientConnection
from aerobee.rpc.core.connection_set import ConnectionSet, MemoryLimit
from aerobee.rpc.core.deadlines import Deadlines
from aerobee.rpc.core.dial import Dialer, Resolve, Unreachable, split_address, system_resolver
from aerobee.rpc.core.hpack import SharedStrings
from aerobee.rpc.core.inbox import compressed
from aerobee.rpc.core.limits import LimitObserver
from aerobee.rpc.core.request_fields import RequestFields
from aerobee.rpc.core.status import Metadata, Status
from aerobee.rpc.core.stream_call import StreamCall
from aerobee.rpc.core.tls import DISTRUSTED, FollowedTls
from aerobee.rpc.core.unary_call import UnaryCall

FAREWELL_S: Final = 0.25
"""Time for the last bytes to leave and for TLS to end; a peer that is gone uses all of it."""
_SENT_AWAY_MAX: Final = 3
"""How many connections in a row a server may drain before any call began; then its calls fail."""


class ChannelState(StrEnum):
    """What a new call finds: a connection, an attempt to make one, or neither."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    BACKOFF = "backoff"
    CLOSED = "closed"


class Channel:
    """Calls to one server. Belongs to the event loop it was made in. Never shares a connection with
    another channel."""

    def __init__(
        self,
        address: str,
        *,
        now: Callable[[], float],
        random: Random,
        observer: LimitObserver,
        limits: ChannelLimits | None = None,
        tls: ssl.SSLContext | FollowedTls | None = None,
        server_name: str | None = None,
        resolve: Resolve | None = None,
        user_agent: str = "aerobee-grpc-core",
        compress_bytes_min: int | None = None,
        memory: MemoryLimit | None = None,
    ) -> None:
        """`address`: host:port. `now`: monotonic seconds. `random` spreads the pauses between
        attempts. `tls`: a context that you make yourself must offer the protocol h2, see `tls`.
        `server_name`: the name in the certificate, if not the host. `compress_bytes_min`: requests
        of at least this size are compressed with gzip, which the server must support; None: never.
        `memory`: shared with other channels, in addition to the limit of each.

        Raises:
            ValueError: `address` is not host:port.
        """
        host, port = split_address(address)
        self.address = address
        self.loop = asyncio.get_running_loop()
        self.limits = limits or ChannelLimits()
        self.state = ChannelState.IDLE
        self.last_failure = ""
        """Why the last attempt to connect failed, or why the last connection ended."""
        self.deadlines = Deadlines(self.loop)
        self.waiting: OrderedDict[ClientCall, None] = OrderedDict()
        self._waiting_bytes = 0
        self._now = now
        self._observer = observer
        self._strings = SharedStrings()
        self._backoff = Backoff(self.limits.backoff_first_s, self.limits.backoff_max_s, random)
        self._pause: asyncio.TimerHandle | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._sent_away = 0
        self._current: ClientConnection | None = None
        self._connections: ConnectionSet[ClientConnection] = ConnectionSet(
            self.loop, now, self.limits.memory_bytes_max, memory
        )
        self._compress_bytes_min = compress_bytes_min
        self._fields = RequestFields(
            authority=_authority(address, host, port),
            user_agent=user_agent,
            is_tls=tls is not None,
            compresses=compress_bytes_min is not None,
        )
        self._heads, self._timeouts = self._fields.heads, self._fields.timeouts
        self._followed = tls if isinstance(tls, FollowedTls) else None
        if self._followed is not None:
            self._followed.on_withdrawal(self, self._end_distrusted)
        self._dialer = Dialer(
            host,
            port,
            self._make_connection,
            resolve=resolve or system_resolver(self.loop),
            tls=tls,
            server_name=server_name,
            attempt_s=self.limits.attempt_s,
            stagger_s=self.limits.stagger_s,
        )

    def __repr__(self) -> str:
        return (
            f"<Channel {self.address} {self.state} connections={len(self._connections)} "
            f"waiting={len(self.waiting)}>"
        )

    # ---------------------------------------------------------------------------------- calls

    async def call(
        self,
        path: str,
        request: bytes,
        *,
        timeout_s: float | None = None,
        metadata: Metadata = (),
        wait_for_ready: bool = False,
    ) -> bytes:
        """One request, one answer. `path`: `/package.Service/Method`. Cancelling it also ends the
        call on the server.

        Raises:
            CallError: the call ended with a status other than OK.
            ValueError: HTTP/2 cannot carry the metadata, or `path` is malformed.
        """
        call = self.start(
            path, request, timeout_s=timeout_s, metadata=metadata, wait_for_ready=wait_for_ready
        )
        try:
            return await call.answer
        except asyncio.CancelledError:
            call.cancel()
            raise

    def start(
        self,
        path: str,
        request: bytes,
        *,
        timeout_s: float | None = None,
        metadata: Metadata = (),
        wait_for_ready: bool = False,
    ) -> UnaryCall:
        """The same without waiting: the answer is a Future, and metadata can be read."""
        fields = self._heads.get(path) or self._fields.head(path)
        timeout = b""
        if timeout_s is not None:
            timeout = self._timeouts.get(timeout_s) or self._fields.timeout(timeout_s)
        own = self._fields.metadata.encode(metadata) if metadata else b""
        call = UnaryCall(self, fields, timeout, own, request, wait_for_ready)
        if self._compress_bytes_min is not None:
            call.request, call.is_compressed = self.maybe_compressed(request)
        if timeout_s is not None:
            self._arm(call, timeout_s)
        current = self._current
        if current is not None and not self.waiting and current.has_room():
            current.open(call)
        else:
            self.place(call)
        return call

    def stream(
        self,
        path: str,
        request: bytes | None = None,
        *,
        timeout_s: float | None = None,
        metadata: Metadata = (),
        wait_for_ready: bool = False,
    ) -> StreamCall:
        """A streaming call. A `request` given here is its only one; otherwise write requests to it.
        A missing connection shows up at the first `write` or `read`.

        Raises:
            ValueError: HTTP/2 cannot carry the metadata, or `path` is malformed.
        """
        timeout = b"" if timeout_s is None else self._fields.timeout(timeout_s)
        own = self._fields.metadata.encode(metadata)
        call = StreamCall(self, self._fields.head(path), timeout, own, request, wait_for_ready)
        if timeout_s is not None:
            self._arm(call, timeout_s)
        self.place(call)
        return call

    def _arm(self, call: ClientCall, timeout_s: float) -> None:
        if self.state is ChannelState.CLOSED:
            return
        call.expires_s = self.loop.time() + timeout_s
        call.bucket = self.deadlines.add(call, timeout_s)

    def maybe_compressed(self, message: bytes) -> tuple[bytes, int]:
        """The message, possibly compressed, with the flag that says so."""
        least = self._compress_bytes_min
        if least is None or len(message) < least:
            return message, 0
        return compressed(message), 1

    # -------------------------------------------------------------------------- calls that wait

    def place(self, call: ClientCall) -> None:
        """Begin a call, or let it wait for a connection or for room."""
        current = self._current
        if current is not None and not self.waiting and current.has_room():
            current.open(call)
            return
        failure = self._no_room(call)
        if failure is not None:
            call.end(failure)
            return
        call.has_waited = True
        self.waiting[call] = None
        self._waiting_bytes += len(call.request or b"")
        if self.state is ChannelState.IDLE and self._pause is None:
            self._connect()

    def _no_room(self, call: ClientCall) -> CallError | None:
        """Why a call may not even wait."""
        status, reason = Status.UNAVAILABLE, ""
        if self.state is ChannelState.CLOSED:
            reason = f"{self.address}: the channel is closed"
        elif self.state is ChannelState.BACKOFF and not call.waits_for_ready:
            reason = self.unconnected("no connection")
        elif (
            len(self.waiting) >= self.limits.waiting_max
            or self._waiting_bytes + len(call.request or b"") > self.limits.waiting_bytes_max
        ):
            status = Status.RESOURCE_EXHAUSTED
            reason = f"{self.address}: {len(self.waiting)} calls wait already"
        return CallError(status, reason, is_unprocessed=True) if reason else None

    def unconnected(self, what: str) -> str:
        """The error text for a call that had no connection."""
        return f"{self.address}: {what}; {self.last_failure or 'connecting'}"

    def forget(self, call: ClientCall) -> None:
        """The call no longer waits."""
        if call in self.waiting:
            del self.waiting[call]
            self._waiting_bytes -= len(call.request or b"")

    def on_room(self) -> None:
        current = self._current
        while self.waiting and current is not None and current.has_room():
            call = next(iter(self.waiting))
            self.forget(call)
            current.open(call)
            current = self._current

    def _fail_waiting(self, failure: str, *, with_patient: bool = False) -> None:
        for call in list(self.waiting):
            if with_patient or not call.waits_for_ready:
                call.end(CallError(Status.UNAVAILABLE, failure, is_unprocessed=True))

    # ----------------------------------------------------------------------------- connections

    def _connect(self) -> None:
        self.state = ChannelState.CONNECTING
        self._dialing = self.loop.create_task(self._dial(), name=f"dial:{self.address}")

    async def _dial(self) -> None:
        try:
            connection = await self._dialer.dial()
        except Unreachable as error:
            self._dialing = None
            self._pause_after(str(error))
            return
        self._dialing = None
        self._end_if_distrusted(connection)
        if connection.has_left:  # before this task got its turn
            self._sent_away += 1
            if connection.is_sent_away and self._sent_away <= _SENT_AWAY_MAX:
                self._rest(connection.reason)
            else:
                self._pause_after(connection.reason)
            return
        self._sent_away = 0
        self._current = connection
        self.state = ChannelState.READY
        self.on_room()

    def _end_distrusted(self) -> None:
        for connection in self._connections:
            self._end_if_distrusted(connection)

    def _end_if_distrusted(self, connection: ClientConnection) -> None:
        if self._followed is not None and self._followed.distrusts(connection.transport):
            connection.close(DISTRUSTED)

    def _make_connection(self) -> ClientConnection:
        connection = ClientConnection(
            self,
            self.loop,
            self.limits.connection,
            now=self._now,
            memory=self._connections.memory,
            observer=self._observer,
            strings=self._strings,
        )
        self._connections.add(connection)
        return connection

    def _rest(self, reason: str) -> None:
        """A pause during which calls wait."""
        self.state = ChannelState.IDLE
        self.last_failure = reason
        self._pause = self.loop.call_later(self._backoff.next_s(), self._end_pause)

    def _pause_after(self, failure: str) -> None:
        """Calls that do not wait for a connection fail, now and until the pause is over."""
        self.state = ChannelState.BACKOFF
        self.last_failure = failure
        self._pause = self.loop.call_later(self._backoff.next_s(), self._end_pause)
        self._fail_waiting(self.unconnected("no connection"))

    def _end_pause(self) -> None:
        self._pause = None
        self.state = ChannelState.IDLE
        if self.waiting:
            self._connect()

    def on_leaving(self, connection: ClientConnection) -> None:
        """The next call uses another connection. But a server that ends each connection at once
        must not be called continually: a connection that served no call is followed by a pause,
        during which calls wait."""
        if connection is not self._current:
            return
        self._current = None
        age_s = self._now() - connection.begun_s
        if not connection.is_of_use and age_s < self.limits.backoff_max_s:
            self._rest(connection.reason)
            return
        self.state = ChannelState.IDLE
        self.last_failure = connection.reason
        self._backoff.reset()
        if self.waiting:
            self._connect()

    def on_gone(self, connection: ClientConnection) -> None:
        self._connections.remove(connection)

    def tick(self, now_s: float) -> None:
        """End what takes too long, on all connections; called once a second."""
        self._connections.tick(now_s)

    @property
    def held_bytes(self) -> int:
        """Bytes waiting to be sent or read on its connections."""
        return self._connections.memory.used

    @property
    def connections(self) -> list[ClientConnection]:
        """Connections that are open or being opened."""
        return list(self._connections)

    # --------------------------------------------------------------------------------- ending

    async def close(self, grace_s: float = 0.0) -> None:
        """Refuse new calls, let running ones finish for `grace_s` seconds, then cancel them. Calls
        without a connection fail at once."""
        if self.state is not ChannelState.CLOSED:
            self.state = ChannelState.CLOSED
            self._current = None
            if self._followed is not None:
                self._followed.forget(self)
            if self._pause is not None:
                self._pause.cancel()
            self._fail_waiting(f"{self.address}: the channel is closed", with_patient=True)
        if self._dialing is not None:
            self._dialing.cancel()
            await asyncio.wait([self._dialing])
            self._dialing = None
        await self._connections.drain(grace_s)
        for connection in self._connections:
            for call in list(connection.streams.values()):
                call.cancel("the channel was closed")
        await self._connections.end("the channel was closed", FAREWELL_S)
        self.deadlines.close()


def _authority(address: str, host: str, port: int) -> bytes:
    return address.encode() if address.isascii() else host.encode("idna") + b":%d" % port
