"""Connections to nameservers and brokers: one channel per address, closed together.

Owns: the channels. The only file that makes them, for clients and for nodes that call each other.
Calls and streams give typed values, and failures as `aerobee.runtime.errors`. A channel reconnects
by itself, resolving its name again; a stream that broke stays broken, and its owner opens another.

Each call and each stream carries a request id, which connects the logs of all services it reaches:
the id of the request it is made for (`aerobee.runtime.call_context`), or a new one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, overload

from google.protobuf.message import DecodeError, Message

from aerobee.access.credentials import Credentials, credentials_of_environment
from aerobee.cluster_view.methods import Method
from aerobee.cluster_view.own_process import OwnProcess
from aerobee.rpc.client_channel import DialledTls, open_channel
from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel import Channel
from aerobee.rpc.core.connection_set import MemoryLimit
from aerobee.rpc.core.stream_call import StreamCall
from aerobee.rpc.own_protocol import error_from_call
from aerobee.runtime import errors
from aerobee.runtime.call_context import Metadata, RequestIds, RequestNames, outgoing_ids
from aerobee.runtime.clock import system_random

Q = TypeVar("Q", bound=Message | bytes)
R = TypeVar("R", bound=Message | bytes)
P = TypeVar("P")


class ServerStream(Generic[P]):
    """The answers of one call, read one by one."""

    __slots__ = ("_call", "_parse", "address", "request_id")

    def __init__(
        self, address: str, call: StreamCall, parse: Callable[[bytes], P], request_id: str
    ) -> None:
        self.address = address
        self.request_id = request_id
        self._call = call
        self._parse = parse

    async def read(self) -> P | None:
        """The next answer; None when the server ended the stream without an error.

        Raises:
            AerobeeError: the server's error, or Unreachable when the connection broke or `cancel`
                was called.
        """
        try:
            answer = await self._call.read()
            return None if answer is None else self._parse(answer)
        except (CallError, DecodeError) as error:
            raise _typed(error, self.address, self.request_id) from None

    def cancel(self) -> None:
        """End the stream immediately; a waiting `read` raises Unreachable."""
        self._call.cancel()


class Stream(ServerStream[P], Generic[Q, P]):
    """A bidirectional stream: one task may write while another reads.

    After a cancelled `write` or `read`, only `cancel` may be called: the outcome of what was in
    flight is unknown.
    """

    __slots__ = ()

    async def wait_connected(self) -> None:
        """Wait until the call is under way; raises Unreachable if no connection can be made, or
        after `cancel`.

        Whatever was not written before this failed cannot have reached the peer.
        """
        try:
            await self._call.wait_connected()
        except CallError as error:
            raise _typed(error, self.address, self.request_id) from None

    async def read_each(self, told: Callable[[P], None]) -> None:
        """Pass each answer to `told` in the event loop iteration in which it arrives; return when
        the server has ended the stream without an error.

        Raises:
            AerobeeError: as `read`. Whatever `told` raises is passed on.
        """
        parse = self._parse

        def parsed(answer: bytes) -> None:
            told(parse(answer))

        try:
            await self._call.read_each(parsed)
        except (CallError, DecodeError) as error:
            raise _typed(error, self.address, self.request_id) from None

    def write_at_once(self, request: bytes) -> bool:
        """Hand one serialised message to the transport if that needs no waiting; otherwise do
        nothing."""
        return self._call.write_at_once(request)

    async def write(self, request: Q | bytes) -> None:
        """Hand one message to the transport; waits while the peer's window is full.

        Bytes are taken to be an already serialised Q.
        """
        message = request if isinstance(request, bytes) else request.SerializeToString()
        if self._call.write_at_once(message):
            return
        try:
            await self._call.write(message)
        except CallError as error:
            raise _typed(error, self.address, self.request_id) from None

    def done_writing(self) -> None:
        """Tell the peer that nothing more will be written."""
        self._call.done_writing()


class Channels:
    """The channels of one client, made on first use. Clients share no connections."""

    def __init__(
        self,
        *,
        chance: random.Random | None = None,
        credentials: Credentials | None = None,
        tls: DialledTls | None = None,
        memory: MemoryLimit | None = None,
    ) -> None:
        """`credentials`: by default, those of the environment. Without `tls` everything is plain
        text. `memory`: a limit for all channels together, which others may share.

        Raises:
            InvalidArgument: the environment names credentials that cannot be read.
        """
        self._credentials = credentials or credentials_of_environment()
        self._chance = chance or system_random()
        self._tls = tls
        self._memory = memory
        self._names = RequestNames.of_chance(self._chance)
        self._channels: dict[str, Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._process: OwnProcess | None = None
        """The process in which the first connection was made."""

    async def call(
        self,
        address: str,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int = 3_000,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> R:
        """One request, one answer. `metadata` is added to the request id. A call refused because of
        a quota is repeated at the time the server gives, if that is before the timeout.

        Raises:
            AerobeeError: the server's typed error; DeadlineExceeded after `timeout_ms`; Unreachable
                without a connection.
        """
        self._channel(address)  # refuses the child of a fork, which has no loop
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_ms / 1_000
        while True:
            left_ms = max(1, int((end_s - loop.time()) * 1_000))
            try:
                return await self._call_once(address, method, request, left_ms, metadata)
            except errors.QuotaExceeded as error:
                pause_s = error.retry_after_ms / 1_000
                if loop.time() + pause_s >= end_s:
                    raise
                await asyncio.sleep(pause_s)

    async def _call_once(
        self,
        address: str,
        method: Method[Q, R],
        request: Q,
        timeout_ms: int,
        metadata: tuple[tuple[str, str], ...],
    ) -> R:
        ids = outgoing_ids(self._names)
        call = self._channel(address).start(
            method.path,
            request if isinstance(request, bytes) else request.SerializeToString(),
            timeout_s=timeout_ms / 1_000,
            metadata=(*self._said(ids, method.path), *metadata),
        )
        try:
            return _parser(method)(await call.answer)
        except (CallError, DecodeError) as error:
            raise _typed(error, address, ids.request_id) from None
        except asyncio.CancelledError:
            call.cancel()
            raise

    @overload
    def open_stream(
        self, address: str, method: Method[Q, R], *, metadata: Metadata = ()
    ) -> Stream[Q, R]: ...
    @overload
    def open_stream(
        self,
        address: str,
        method: Method[Q, R],
        *,
        metadata: Metadata = (),
        parse: Callable[[bytes], P],
    ) -> Stream[Q, P]: ...
    def open_stream(
        self,
        address: str,
        method: Method[Q, R],
        *,
        metadata: Metadata = (),
        parse: Callable[[bytes], Any] | None = None,
    ) -> Stream[Q, Any]:
        """Start a bidirectional stream; a missing connection shows up at the first write or read.
        `metadata` is added to the request id. `parse` takes the place of the answers' own; it may
        raise DecodeError."""
        ids = outgoing_ids(self._names)
        call = self._channel(address).stream(
            method.path, metadata=(*self._said(ids, method.path), *metadata)
        )
        return Stream(address, call, parse or _parser(method), ids.request_id)

    def open_server_stream(
        self,
        address: str,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> ServerStream[R]:
        """Send one request and read many answers, all of them within `timeout_ms`. `metadata` is
        added to the request id."""
        ids = outgoing_ids(self._names)
        message = request if isinstance(request, bytes) else request.SerializeToString()
        call = self._channel(address).stream(
            method.path,
            message,
            timeout_s=None if timeout_ms is None else timeout_ms / 1_000,
            metadata=(*self._said(ids, method.path), *metadata),
        )
        return ServerStream(address, call, _parser(method), ids.request_id)

    def disconnect(self, address: str) -> None:
        """End the calls to `address` and their connection; the next call makes another."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            self._close(address, channel)

    async def close(self) -> None:
        """End all calls and connections; later calls raise Unreachable."""
        self._is_closed = True
        if self._process is not None and self._process.is_left:
            self._channels.clear()  # the connections are the parent's
        for address in list(self._channels):
            self.disconnect(address)
        if self._closing:
            await asyncio.wait(self._closing)

    def _channel(self, address: str) -> Channel:
        if self._process is None:
            self._process = OwnProcess("client")
        self._process.check()
        channel = self._channels.get(address)
        if channel is None:
            if self._is_closed:
                raise errors.Unreachable(f"cannot reach {address}: this client is closed")
            channel = open_channel(address, self._chance, self._tls, self._memory)
            self._channels[address] = channel
        return channel

    def _said(self, ids: RequestIds, path: str) -> Metadata:
        """The metadata of every call: its ids, and who makes it."""
        return (*ids.metadata(), *self._credentials.metadata(path))

    def _close(self, address: str, channel: Channel) -> None:
        """In a task of its own: a peer that is gone delays the end, and only `close` waits for
        that."""
        closing = asyncio.get_running_loop().create_task(
            channel.close(), name=f"close-channel:{address}"
        )
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _parser(method: Method[Any, R]) -> Callable[[bytes], R]:
    answer: Any = method.answer
    return cast(Callable[[bytes], R], bytes if answer is bytes else answer.FromString)


def _typed(error: CallError | DecodeError, address: str, request_id: str) -> errors.AerobeeError:
    """Without its cause: the transport's exception adds a dozen frames that tell a user nothing."""
    if isinstance(error, CallError):
        typed = error_from_call(error, address)
    else:
        typed = errors.AerobeeError(
            f"{address} answered with something that is not a message of the protocol"
        )
    typed.request_id = request_id
    return typed
