"""grpcio's asyncio server as an engine of servers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc

from aerobee.rpc.core.method import Style
from aerobee.rpc.core.status import Metadata, RpcError, Status
from aerobee.rpc.served_method import ServedMethod
from aerobee.rpc.server_engine import AcceptedTls, ServerOptions
from aerobee.runtime.errors import InvalidArgument

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcioEngine:
    """A ServerEngine with grpcio's server."""

    def __init__(self, options: ServerOptions) -> None:
        if options.tls is not None:
            raise InvalidArgument("grpc.engine grpcio is without TLS; use own")
        arguments = [
            ("grpc.max_receive_message_length", options.message_bytes_max),
            ("grpc.max_send_message_length", options.message_bytes_max),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
            # Two processes must not share a port by accident: the second one fails to start
            # instead.
            ("grpc.so_reuseport", 0),
        ]
        if options.connections_max is not None:
            arguments.append(("grpc.max_allowed_incoming_connections", options.connections_max))
        if options.idle_s is not None:
            idle_ms = int(options.idle_s * 1_000)
            arguments += (
                ("grpc.max_connection_idle_ms", idle_ms),
                ("grpc.server_handshake_timeout_ms", idle_ms),
            )
        self._server = grpc.aio.server(options=arguments)
        self._methods = _Methods()
        self._server.add_generic_rpc_handlers((self._methods,))

    @property
    def memory_used_bytes(self) -> int | None:
        return None

    def add(self, method: ServedMethod) -> None:
        make = _MAKERS[method.streams_requests, method.streams_answers]
        self._methods.handlers[method.path] = make(_handler(method), method.read, method.write)

    async def listen(self, address: str) -> int:
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, str(error)) from error
        await self._server.start()
        return port

    async def listen_outside(self, address: str, tls: AcceptedTls | None) -> int:
        raise InvalidArgument("grpc.engine grpcio is without an outside listener; use own")

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


class _Methods(grpc.GenericRpcHandler):
    """Everything that is served, by path."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self.handlers.get(handler_call_details.method)


_MAKERS: dict[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def _handler(method: ServedMethod) -> Callable[..., Any]:
    """Always a coroutine: grpcio knows nothing else on the event loop."""
    handle = method.handler
    if method.style is Style.GENERATOR:
        return _generator(handle)
    if method.style is Style.SYNCHRONOUS:
        return _coroutine(_as_coroutine(handle))
    if method.style is Style.COMPLETION:
        return _coroutine(_awaited(handle))
    return _coroutine(_with_metadata_first(handle) if method.streams_answers else handle)


def _as_coroutine(handle: Callable[..., Any]) -> Callable[..., Any]:
    async def handled(request: Any, context: Any) -> Any:
        return handle(request, context)

    return handled


def _awaited(handle: Callable[..., Any]) -> Callable[..., Any]:
    async def handled(request: Any, context: Any) -> Any:
        call = _FutureCall()
        rest = handle(request, context, call)
        if rest is not None:
            await rest()
        return await call.answer

    return handled


def _coroutine(handle: Callable[..., Any]) -> Callable[..., Any]:
    async def handled(request: Any, context: Any) -> Any:
        try:
            return await handle(request, context)
        except RpcError as error:
            await _abort(context, error)

    return handled


def _generator(handle: Callable[..., Any]) -> Callable[..., Any]:
    async def handled(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for answer in handle(request, context):
                yield answer
        except RpcError as error:
            await _abort(context, error)

    return handled


def _with_metadata_first(handle: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a stream end with an error although its writes may be abandoned because reading failed.
    gRPC sends the initial metadata with the first write; if that is abandoned, it sends them again
    with the error, which fails and leaves the client without an answer."""

    async def served(requests: Any, context: Any) -> Any:
        try:
            await context.send_initial_metadata(())
        except grpc.aio.InternalError:
            raise asyncio.CancelledError from None  # the client is already gone
        return await handle(requests, context)

    return served


async def _abort(context: Any, error: RpcError) -> NoReturn:
    trailers = error.trailers
    if error.details:
        trailers = (*trailers, ("grpc-status-details-bin", error.details))
    await context.abort(_CODES[int(error.status)], error.message, trailing_metadata=trailers)
    raise AssertionError("abort raises")


class _FutureCall:
    """A call that is answered later; see OpenCall."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        return self.answer.done()

    def finish(self, answer: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def abort(self, status: Status, message: str = "", *, trailers: Metadata = ()) -> None:
        if not self.answer.done():
            self.answer.set_exception(RpcError(status, message, trailers=trailers))
