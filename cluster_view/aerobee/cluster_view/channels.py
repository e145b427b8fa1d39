"""Connections to nameservers and brokers: one gRPC channel per address, closed together.

Owns: the channels. The only file that makes them, for clients and for nodes that call each other:
calls and streams leave it as typed values, failures as `aerobee.runtime.errors`. A channel
reconnects by itself; a stream that broke stays broken, and its owner opens another. A channel
without a connection is replaced when it is used again, because gRPC asks for a name that could not
be resolved less and less often. Calls under way on the replaced channel end in their own time: a
server that stops answers what it has accepted.

Each call and each stream carries a request id, which joins the logs of all services that it
reaches: that of the request it is made for (`aerobee.runtime.call_context`), or a new one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar, cast

import grpc
from google.protobuf.message import Message

from aerobee.cluster_view.methods import Method
from aerobee.cluster_view.own_process import OwnProcess
from aerobee.runtime import errors, rpc
from aerobee.runtime.call_context import RequestNames, outgoing_ids
from aerobee.runtime.clock import system_random
from aerobee.runtime.own_protocol import error_from_rpc

Q = TypeVar("Q", bound=Message | bytes)
R = TypeVar("R", bound=Message | bytes)

RENEW_AFTER_S = 1.0
"""How long a channel may try by itself."""
RETIRED_GRACE_S = 60.0
"""How long calls of a replaced channel may continue; longer than any server takes to stop."""

_WITHOUT_CONNECTION = (
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    # Its connection ended. It would begin with the address that the name had then, and if nobody
    # has that any more, wait for an answer for as long as an attempt may take.
    grpc.ChannelConnectivity.IDLE,
)
_FAILURES = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    asyncio.CancelledError,
)


class ServerStream(Generic[R]):
    """Answers of one call, read one by one."""

    __slots__ = ("_call", "address", "request_id")

    def __init__(self, address: str, call: Any, request_id: str) -> None:
        self.address = address
        self.request_id = request_id
        self._call = call

    async def read(self) -> R | None:
        """The next answer; None when the server ended the stream without an error.

        Raises:
            MqError: the server's error, or Unreachable when the connection broke or `cancel` was
                called.
        """
        try:
            answer = await self._call.read()
        except _FAILURES as error:
            _raise_typed(error, self.address, self.request_id)
        return None if answer is grpc.aio.EOF else cast(R, answer)

    def cancel(self) -> None:
        """End the stream at once; a waiting `read` raises Unreachable."""
        self._call.cancel()


class Stream(ServerStream[R], Generic[Q, R]):
    """A bidirectional stream: one task may write while another reads.

    A cancelled `write` or `read` ends the whole stream: what was in flight has an unknown outcome.
    """

    __slots__ = ("_is_connected",)

    def __init__(self, address: str, call: Any, request_id: str) -> None:
        super().__init__(address, call, request_id)
        self._is_connected = False

    async def wait_connected(self) -> None:
        """Until the call is under way; raises Unreachable if there is no connection to be had, or
        `cancel` was called.

        What was not written before this failed cannot have reached the peer.
        """
        connecting = asyncio.get_running_loop().create_task(
            self._call.wait_for_connection(), name=f"connect:{self.address}"
        )

        def on_done(call: Any) -> None:
            # A call that is cancelled before it has a connection never says that it has none.
            if call.cancelled():
                connecting.cancel()

        self._call.add_done_callback(on_done)
        try:
            await connecting
        except _FAILURES as error:
            _raise_typed(error, self.address, self.request_id)
        self._is_connected = True

    async def write(self, request: Q | bytes) -> None:
        """Hand one message to the transport; waits while the peer's window is full.

        Bytes are taken as an already serialised Q.
        """
        if not self._is_connected:
            await self.wait_connected()
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            await self._raise_why_over()
        except _FAILURES as error:
            _raise_typed(error, self.address, self.request_id)

    async def _raise_why_over(self) -> NoReturn:
        """The call ended before the write: its status says why."""
        try:
            await self._call.wait_for_connection()
        except _FAILURES as error:
            _raise_typed(error, self.address, self.request_id)
        ended = errors.Unreachable(f"{self.address} ended the stream")
        raise _named(ended, self.request_id)

    async def done_writing(self) -> None:
        """Tell the peer that nothing more will be written."""
        try:
            await self._call.done_writing()
        except _FAILURES as error:
            _raise_typed(error, self.address, self.request_id)


class Channels:
    """The channels of one client, made on first use."""

    def __init__(
        self, *, chance: random.Random | None = None, own_connections: bool = False
    ) -> None:
        """Channels of one process to one address share a connection, also one that is dead until
        keepalive notices it, after 15 s. With `own_connections` they do not: after `disconnect`
        the next call begins with a new connection."""
        self._own_connections = own_connections
        self._names = RequestNames.of_chance(chance or system_random())
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._opened_s: dict[str, float] = {}
        self._retired: set[grpc.aio.Channel] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._calls: dict[tuple[str, str], Any] = {}
        self._closed = False
        self._process: OwnProcess | None = None
        """In which the first connection was made."""

    async def call(
        self, address: str, method: Method[Q, R], request: Q, *, timeout_ms: int = 3_000
    ) -> R:
        """One request, one answer.

        Raises:
            MqError: the server's typed error; DeadlineExceeded after `timeout_ms`; Unreachable
                without a connection.
        """
        channel = self._channel(address)
        callable_ = self._calls.get((address, method.path))
        if callable_ is None:
            callable_ = channel.unary_unary(
                method.path,
                request_serializer=_serialize,
                response_deserializer=_parser(method.answer),
            )
            self._calls[address, method.path] = callable_
        ids = outgoing_ids(self._names)
        try:
            answer = await callable_(request, timeout=timeout_ms / 1_000, metadata=ids.metadata())
        except _FAILURES as error:
            _raise_typed(error, address, ids.request_id)
        return cast(R, answer)

    def open_stream(self, address: str, method: Method[Q, R]) -> Stream[Q, R]:
        """Start a bidirectional stream; a missing connection shows at the first write or read."""
        call = self._channel(address).stream_stream(
            method.path,
            request_serializer=_serialize,
            response_deserializer=_parser(method.answer),
        )
        ids = outgoing_ids(self._names)
        return Stream(address, call(metadata=ids.metadata()), ids.request_id)

    def open_server_stream(self, address: str, method: Method[Q, R], request: Q) -> ServerStream[R]:
        """Send one request and read many answers."""
        call = self._channel(address).unary_stream(
            method.path,
            request_serializer=_serialize,
            response_deserializer=_parser(method.answer),
        )
        ids = outgoing_ids(self._names)
        return ServerStream(address, call(request, metadata=ids.metadata()), ids.request_id)

    async def disconnect(self, address: str) -> None:
        """End the calls to `address` and their connection; the next call makes another."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            self._forget_calls(address)
            await channel.close()

    async def close(self) -> None:
        """End all calls and connections; later calls raise Unreachable."""
        self._closed = True
        for closing in self._closing:
            closing.cancel()
        if self._closing:
            await asyncio.wait(self._closing)
        channels = [*self._channels.values(), *self._retired]
        self._channels.clear()
        self._retired.clear()
        self._calls.clear()
        for channel in channels:
            await channel.close()

    def _channel(self, address: str) -> grpc.aio.Channel:
        if self._process is None:
            self._process = OwnProcess("client")
        self._process.check()
        if self._closed:
            raise errors.Unreachable(f"cannot reach {address}: this client is closed")
        channel = self._channels.get(address)
        if channel is not None and self._has_failed(address, channel):
            self._drop(address, channel)
            channel = None
        if channel is None:
            channel = self._channels[address] = rpc.build_channel(
                address, own_connection=self._own_connections
            )
            self._opened_s[address] = asyncio.get_running_loop().time()
        return channel

    def _has_failed(self, address: str, channel: grpc.aio.Channel) -> bool:
        age_s = asyncio.get_running_loop().time() - self._opened_s[address]
        if age_s < RENEW_AFTER_S:
            return False
        return channel.get_state() in _WITHOUT_CONNECTION

    def _drop(self, address: str, channel: grpc.aio.Channel) -> None:
        """It has no connection for new calls; those under way may end on the one it had."""
        del self._channels[address]
        self._retired.add(channel)
        self._forget_calls(address)
        closing = asyncio.get_running_loop().create_task(
            self._close_retired(channel), name=f"close-channel:{address}"
        )
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _forget_calls(self, address: str) -> None:
        for key in [key for key in self._calls if key[0] == address]:
            del self._calls[key]

    async def _close_retired(self, channel: grpc.aio.Channel) -> None:
        await channel.close(RETIRED_GRACE_S)
        self._retired.discard(channel)


def _parser(answer: type[Any]) -> Callable[[bytes], Any] | None:
    """None leaves answers as bytes."""
    return None if answer is bytes else answer.FromString


def _serialize(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def _raise_typed(error: BaseException, address: str, request_id: str) -> NoReturn:
    """As an MqError, or as the cancellation that it is if the task was cancelled. What the
    transport raised tells a user nothing more, in a dozen frames."""
    if isinstance(error, grpc.aio.AioRpcError):
        raise _named(error_from_rpc(error, address), request_id) from None
    if isinstance(error, asyncio.CancelledError):
        # grpc.aio also raises this when the call, not the task, was cancelled.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
        cancelled = errors.Unreachable(f"the stream to {address} was cancelled")
        raise _named(cancelled, request_id) from None
    ended = errors.Unreachable(f"the connection to {address} has ended")
    raise _named(ended, request_id) from None


def _named(error: errors.MqError, request_id: str) -> errors.MqError:
    error.request_id = request_id
    return error
