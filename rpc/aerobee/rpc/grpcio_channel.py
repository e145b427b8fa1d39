"""`client_channel.ClientChannel` on grpcio's asyncio client, with the oddities of grpcio hidden.

A channel without a connection is replaced when it is used again, because gRPC retries a name that
could not be resolved less and less often. Calls running on the replaced channel may finish: a
server that stops answers what it has accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import grpc

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.status import Metadata, Status
from aerobee.rpc.server_engine import FRAME_BYTES_MAX

RENEW_AFTER_S = 1.0
"""How long a channel may try on its own."""
RETIRED_GRACE_S = 60.0
"""How long calls of a replaced channel may continue; longer than any server takes to stop."""

_WITHOUT_CONNECTION = (
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    # Its connection ended. It would start with the address that the name had then and, if no peer
    # has that any more, wait as long as an attempt may take.
    grpc.ChannelConnectivity.IDLE,
)
_FAILURES = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    asyncio.CancelledError,
)
_BROKEN = ("Internal error from Core", "RST_STREAM")
"""gRPC's texts for a connection that ended in the middle of a call, as opposed to a status from the
server."""
# The beginning of the resolvers' texts about a name that they cannot resolve.
_LOOKUP_FAILED = ("DNS resolution failed", "errors resolving", "address lookup failed")


CHANNEL_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", FRAME_BYTES_MAX),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # How long one attempt to connect may take: an address that is gone may not answer at all.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    # A process that comes back may have another address under the same name. By default a name is
    # resolved once in 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
)


def build_channel(address: str, *, own_connection: bool = False) -> grpc.aio.Channel:
    """A client channel to host:port that reconnects by itself within 2 s.

    Channels of one process to one address share a connection, even one that is dead until keepalive
    notices after 15 s. A channel with `own_connection` does not: another channel, built after its
    peer was given up, starts with a new connection.
    """
    options = list(CHANNEL_OPTIONS)
    if own_connection:
        options.append(("grpc.use_local_subchannel_pool", 1))
    return grpc.aio.insecure_channel(address, options=options)


class GrpcioChannel:
    """A channel to one address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel: grpc.aio.Channel | None = None
        self._opened_s = 0.0
        self._retired: dict[grpc.aio.Channel, asyncio.Task[None]] = {}
        self._is_closed = False

    def start(
        self, path: str, request: bytes, *, timeout_s: float | None, metadata: Metadata
    ) -> _GrpcioCall:
        method: Any = self._live().unary_unary(path)
        call = method(request, timeout=timeout_s, metadata=metadata)
        return _GrpcioCall(call, self._address)

    def stream(
        self,
        path: str,
        request: bytes | None = None,
        *,
        timeout_s: float | None = None,
        metadata: Metadata,
    ) -> _GrpcioStream:
        channel: Any = self._live()
        if request is None:
            call = channel.stream_stream(path)(timeout=timeout_s, metadata=metadata)
        else:
            call = channel.unary_stream(path)(request, timeout=timeout_s, metadata=metadata)
        return _GrpcioStream(call, self._address)

    async def close(self) -> None:
        self._is_closed = True
        for closing in self._retired.values():
            closing.cancel()
        if self._retired:
            await asyncio.wait(self._retired.values())
        channels = [*self._retired, *([self._channel] if self._channel is not None else [])]
        self._retired.clear()
        self._channel = None
        for channel in channels:
            await channel.close()

    def _live(self) -> grpc.aio.Channel:
        if self._is_closed:
            raise CallError(Status.UNAVAILABLE, "the channel is closed", is_unprocessed=True)
        now_s = asyncio.get_running_loop().time()
        channel = self._channel
        if (
            channel is not None
            and now_s - self._opened_s >= RENEW_AFTER_S
            and channel.get_state() in _WITHOUT_CONNECTION
        ):
            self._retire(channel)
            channel = None
        if channel is None:
            # Channels that share a connection would also share a dead one.
            channel = self._channel = build_channel(self._address, own_connection=True)
            self._opened_s = now_s
        return channel

    def _retire(self, channel: grpc.aio.Channel) -> None:
        """It has no connection for new calls; running ones may finish on the one they have."""

        async def close() -> None:
            await channel.close(RETIRED_GRACE_S)
            del self._retired[channel]

        name = f"close-channel:{self._address}"
        self._retired[channel] = asyncio.get_running_loop().create_task(close(), name=name)


class _GrpcioCall:
    """A unary call."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._address = address
        self.answer = self._wait()
        self.trailing_metadata: Metadata = ()

    async def _wait(self) -> bytes:
        try:
            answer: bytes = await self._call
            self.trailing_metadata = tuple(await self._call.trailing_metadata() or ())
        except _FAILURES as error:
            _raise_typed(error, self._address)
        return answer

    def cancel(self) -> None:
        self._call.cancel()


class _GrpcioStream:
    """A streaming call."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._address = address
        self._is_connected = False
        self._ending: asyncio.Task[None] | None = None

    async def wait_connected(self) -> None:
        if self._is_connected:
            return
        connecting = asyncio.get_running_loop().create_task(
            self._call.wait_for_connection(), name=f"connect:{self._address}"
        )

        def on_done(call: Any) -> None:
            # A call cancelled before it has a connection never reports that it has none.
            if call.cancelled():
                connecting.cancel()

        self._call.add_done_callback(on_done)
        try:
            await connecting
        except _FAILURES as error:
            _raise_typed(error, self._address)
        self._is_connected = True

    def write_at_once(self, message: bytes) -> bool:
        return False

    async def write(self, message: bytes) -> None:
        await self.wait_connected()
        try:
            await self._call.write(message)
        except asyncio.InvalidStateError:
            await self._raise_why_over()
        except _FAILURES as error:
            _raise_typed(error, self._address)

    async def _raise_why_over(self) -> NoReturn:
        """The call ended before the write: its status says why."""
        try:
            await self._call.wait_for_connection()
        except _FAILURES as error:
            _raise_typed(error, self._address)
        raise CallError(Status.UNAVAILABLE, "the server has ended the call", is_answer=True)

    def done_writing(self) -> None:
        async def end() -> None:
            with contextlib.suppress(*_FAILURES):  # its reader sees them too
                await self._call.done_writing()

        self._ending = asyncio.get_running_loop().create_task(end(), name=f"end:{self._address}")

    async def read(self) -> bytes | None:
        try:
            answer = await self._call.read()
        except _FAILURES as error:
            _raise_typed(error, self._address)
        return None if answer is grpc.aio.EOF else answer

    async def read_each(self, told: Callable[[bytes], None]) -> None:
        while (answer := await self.read()) is not None:
            told(answer)

    def cancel(self) -> None:
        self._call.cancel()


def _raise_typed(error: BaseException, address: str) -> NoReturn:
    """Raise as CallError, or as a cancellation if the task was cancelled. Without its cause: the
    transport's exception adds a dozen frames that tell a user nothing."""
    if isinstance(error, grpc.aio.AioRpcError):
        raise call_error(error, address) from None
    if isinstance(error, asyncio.CancelledError):
        # grpc.aio also raises this if the call, not the task, was cancelled.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
        raise CallError(Status.CANCELLED, "the call was cancelled") from None
    raise CallError(Status.UNAVAILABLE, "the connection has ended") from None


def call_error(error: grpc.aio.AioRpcError, address: str) -> CallError:
    """The corresponding error of `grpc_core`."""
    details = error.details() or ""
    status = Status(error.code().value[0])
    is_broken = status is Status.INTERNAL and any(one in details for one in _BROKEN)
    if is_broken:
        details = ""
    elif any(begin in details for begin in _LOOKUP_FAILED):
        details = f"the host name {address.rpartition(':')[0]} cannot be resolved"
    return CallError(
        status,
        details,
        trailers=tuple(error.trailing_metadata() or ()),
        is_answer=not is_broken and status is not Status.UNAVAILABLE,
    )
