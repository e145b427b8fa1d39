"""Connections to nameservers and brokers: one gRPC channel per address, closed together.

Owns: the channels. The only file of the client packages that knows grpc: calls and streams leave
it as typed values, failures as `aerobee.runtime.errors`. A channel reconnects by itself; a stream
that broke stays broken and its owner opens another.
"""

from __future__ import annotations

import asyncio
from typing import Any, Generic, NoReturn, TypeVar, cast

import grpc
from google.protobuf.message import Message

from aerobee.client_core.methods import Method
from aerobee.runtime import errors, rpc

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

_FAILURES = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    asyncio.CancelledError,
)


class ServerStream(Generic[R]):
    """Answers of one call, read one by one."""

    __slots__ = ("_call", "address")

    def __init__(self, address: str, call: Any) -> None:
        self.address = address
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
            _raise_typed(error, self.address)
        return None if answer is grpc.aio.EOF else cast(R, answer)

    def cancel(self) -> None:
        """End the stream at once; a waiting `read` raises Unreachable."""
        self._call.cancel()


class Stream(ServerStream[R], Generic[Q, R]):
    """A bidirectional stream: one task may write while another reads.

    A cancelled `write` or `read` ends the whole stream: what was in flight has an unknown outcome.
    """

    __slots__ = ()

    async def wait_connected(self) -> None:
        """Until the call is under way; raises Unreachable if there is no connection to be had.

        What was not written before this failed cannot have reached the peer.
        """
        try:
            await self._call.wait_for_connection()
        except _FAILURES as error:
            _raise_typed(error, self.address)

    async def write(self, request: Q | bytes) -> None:
        """Hand one message to the transport; waits while the peer's window is full.

        Bytes are taken as an already serialised Q.
        """
        try:
            await self._call.write(request)
        except _FAILURES as error:
            _raise_typed(error, self.address)

    async def done_writing(self) -> None:
        """Tell the peer that nothing more will be written."""
        try:
            await self._call.done_writing()
        except _FAILURES as error:
            _raise_typed(error, self.address)


class Channels:
    """The channels of one client, made on first use."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._calls: dict[tuple[str, str], Any] = {}
        self._closed = False

    async def call(
        self, address: str, method: Method[Q, R], request: Q, *, timeout_ms: int = 3_000
    ) -> R:
        """One request, one answer.

        Raises:
            MqError: the server's typed error; DeadlineExceeded after `timeout_ms`; Unreachable
                without a connection.
        """
        callable_ = self._calls.get((address, method.path))
        if callable_ is None:
            callable_ = self._channel(address).unary_unary(
                method.path,
                request_serializer=_serialize,
                response_deserializer=method.answer.FromString,
            )
            self._calls[address, method.path] = callable_
        try:
            return cast(R, await callable_(request, timeout=timeout_ms / 1_000))
        except _FAILURES as error:
            _raise_typed(error, address)

    def open_stream(self, address: str, method: Method[Q, R]) -> Stream[Q, R]:
        """Start a bidirectional stream; a missing connection shows at the first write or read."""
        call = self._channel(address).stream_stream(
            method.path,
            request_serializer=_serialize,
            response_deserializer=method.answer.FromString,
        )
        return Stream(address, call())

    def open_server_stream(self, address: str, method: Method[Q, R], request: Q) -> ServerStream[R]:
        """Send one request and read many answers."""
        call = self._channel(address).unary_stream(
            method.path,
            request_serializer=_serialize,
            response_deserializer=method.answer.FromString,
        )
        return ServerStream(address, call(request))

    async def close(self) -> None:
        """End all calls and connections; later calls raise Unreachable."""
        self._closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        self._calls.clear()
        for channel in channels:
            await channel.close()

    def _channel(self, address: str) -> grpc.aio.Channel:
        if self._closed:
            raise errors.Unreachable(f"cannot reach {address}: this client is closed")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = rpc.build_channel(address)
        return channel


def _serialize(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def _raise_typed(error: BaseException, address: str) -> NoReturn:
    """As an MqError, or as the cancellation that it is if the task was cancelled."""
    if isinstance(error, grpc.aio.AioRpcError):
        raise rpc.error_from_rpc(error, address) from error
    if isinstance(error, asyncio.CancelledError):
        # grpc.aio also raises this when the call, not the task, was cancelled.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
        raise errors.Unreachable(f"the stream to {address} was cancelled") from error
    raise errors.Unreachable(f"the connection to {address} has ended") from error
