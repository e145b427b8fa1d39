"""gRPC plumbing that every service shares: server, health, reflection, and the error border.

Requests are read within their limits (`request_border`). A servicer method wrapped in `unary` or
`stream` of a protocol's error border raises MqError, which is answered as that protocol says it.
Anything else is a bug: it is logged with its traceback and answered as INTERNAL without details.
Every line that is logged after the border carries the call's ids, which are read from its metadata
when the line is written.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from aerobee.runtime import errors
from aerobee.runtime.call_context import CURRENT_CALL, RequestIds, ids_from
from aerobee.runtime.log import log_event
from aerobee.runtime.request_border import RequestBorder
from aerobee.runtime.request_limits import RequestLimits

FRAME_BYTES_MAX = 32 * 1024 * 1024
"""Largest gRPC message either side accepts: a maximal batch plus its envelope, with room."""

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
    # A process that comes back may have another address behind its name. By default a name is asked
    # for once in 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
)
SERVER_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", FRAME_BYTES_MAX),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Two processes must not share one port by accident: the second start fails instead.
    ("grpc.so_reuseport", 0),
)

P = ParamSpec("P")
R = TypeVar("R")

Context = grpc.aio.ServicerContext[Any, Any]
AnswerError = Callable[[Context, errors.MqError], Awaitable[NoReturn]]
"""Ends a call with an error, as one protocol says it."""

log = logging.getLogger(__name__)


def build_channel(address: str, *, own_connection: bool = False) -> grpc.aio.Channel:
    """A client channel to host:port that reconnects by itself within 2 s.

    Channels of one process to one address share a connection, also one that is dead until keepalive
    notices it, after 15 s. One with its `own_connection` does not: who has given a peer up, and
    builds another channel, begins with a new connection.
    """
    options = list(CHANNEL_OPTIONS)
    if own_connection:
        options.append(("grpc.use_local_subchannel_pool", 1))
    return grpc.aio.insecure_channel(address, options=options)


class RpcServer:
    """A grpc.aio server with health and reflection, listening on one address."""

    def __init__(
        self,
        border: ErrorBorder,
        service_names: Sequence[str],
        *,
        limits: RequestLimits | None = None,
        connections_max: int | None = None,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        """`border` answers requests that no servicer sees. `service_names`: full protobuf names,
        listed by reflection and health. `limits` of these services' requests; without them only
        what cannot be read is refused. Connections beyond `connections_max` are closed at once."""
        options = list(SERVER_OPTIONS)
        if connections_max is not None:
            options.append(("grpc.max_allowed_incoming_connections", connections_max))
        requests = RequestBorder(limits, border.refuse)
        self.server = grpc.aio.server(options=options, interceptors=[*interceptors, requests])
        self._health = health.aio.HealthServicer()
        self._service_names = tuple(service_names)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        reflection.enable_server_reflection(
            [*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME], self.server
        )
        self.port = 0

    async def start(self, listen: str, *, serving: bool = True) -> int:
        """Bind and serve; returns the port (of use when `listen` ends in :0).

        `serving` is what health answers from the first moment.

        Raises:
            InvalidArgument: the address is in use or not of this machine.
        """
        try:
            self.port = self.server.add_insecure_port(listen)
        except RuntimeError as error:
            raise errors.InvalidArgument(
                f"cannot listen on {listen}: the port is in use or the address is not of this "
                "machine; stop the other process or choose another port"
            ) from error
        await self.set_serving(serving)
        await self.server.start()
        return self.port

    async def set_serving(self, serving: bool) -> None:
        """What gRPC health answers, for the server as a whole and for each service."""
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if serving
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in ("", *self._service_names):
            await self._health.set(name, status)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running ones end for `grace_s` seconds, then cancel them."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace_s)


class _ServedCall:
    """A call that a servicer works on; reads nothing of it before it is asked."""

    __slots__ = ("_context", "_name")

    def __init__(self, name: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._name = name
        self._context = context

    def ids(self) -> RequestIds:
        return ids_from(self._context.invocation_metadata() or ())

    def fields(self) -> Mapping[str, object]:
        return {"call": self._name, "peer": self._context.peer(), **self.ids().fields()}


def _begin(name: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """gRPC serves each call in a context of its own, so there is nothing to take back."""
    CURRENT_CALL.set(_ServedCall(name, context))
    if log.isEnabledFor(logging.DEBUG):
        log_event(log, "call", level=logging.DEBUG)


class ErrorBorder:
    """The only `except` between a protocol's servicers and what they call."""

    def __init__(self, answer_error: AnswerError) -> None:
        self._answer_error = answer_error

    def unary(self, method: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """The border of a servicer method (self, request, context) that returns one answer."""

        @functools.wraps(method)
        async def bordered(*args: P.args, **kwargs: P.kwargs) -> R:
            _begin(method.__name__, _context_of(args))
            try:
                return await method(*args, **kwargs)
            except Exception as error:
                await self._end(_context_of(args), error)

        return bordered

    def stream(self, method: Callable[P, AsyncIterator[R]]) -> Callable[P, AsyncIterator[R]]:
        """The border of a servicer method that is an async generator."""

        @functools.wraps(method)
        async def bordered(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
            _begin(method.__name__, _context_of(args))
            try:
                async for answer in method(*args, **kwargs):
                    yield answer
            except Exception as error:
                await self._end(_context_of(args), error)

        return bordered

    async def refuse(self, name: str, context: Context, error: errors.MqError) -> None:
        """Answer a request that no servicer sees."""
        _begin(name, context)
        await self._end(context, error)

    async def _end(self, context: Context, error: Exception) -> NoReturn:
        """Answer a typed error, end quietly when the client is gone; anything else is a bug."""
        cause = _bare(error)
        if isinstance(cause, errors.MqError):
            name = type(cause).__name__
            log_event(log, "call refused", level=logging.DEBUG, code=name, reason=cause)
            await self._answer_error(context, cause)
        if isinstance(cause, grpc.aio.InternalError):
            # A write failed because nobody is there any more: what a cancelled call is, too. gRPC
            # itself would log it as a bug of the servicer.
            raise asyncio.CancelledError from None
        if isinstance(cause, grpc.aio.BaseError):
            raise cause  # gRPC's own, of a call that has ended already
        log_event(log, "a servicer failed because of a bug", level=logging.ERROR, error=cause)
        await context.abort(
            grpc.StatusCode.INTERNAL, "the server failed because of a bug of its own; see its log"
        )


def _bare(error: Exception) -> Exception:
    """What a servicer's task group consists of, if all of it is of one kind; else the group."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = [_bare(one) for one in error.exceptions]
    return inner[0] if len({type(one) for one in inner}) == 1 else error


def _context_of(args: Sequence[Any]) -> grpc.aio.ServicerContext[Any, Any]:
    context: grpc.aio.ServicerContext[Any, Any] = args[-1]
    return context
