"""Services whose code protoc has generated for grpcio's asyncio server, on a server of ours.

`add_XServicer_to_server(servicer, GeneratedServices(server, ...))` serves them unchanged: a
servicer's methods get a `ServicerContext` that behaves as grpcio's does where servicers ask it for
the peer, metadata, the time that is left, reading, writing and aborting. Nothing of grpcio is
imported here: its handlers and status codes are taken as they look, and what `read` returns at the
end of a stream is passed in.

How a process switches between this server and grpcio's: both are behind one class with `server`
(what the generated functions take), `start`, `set_serving` and `stop`. What grpcio has as
interceptors that wrap handlers, `wrap` does here, once for each method when it is added; what they
do for every call, an `Interceptor` of the server does for less. Methods that are worth it are then
added to the server itself, synchronous or in completion style, in place of generated coroutines.

Not here: `set_code` and `set_details` in place of `abort`, callbacks of a call, and servicers that
block.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from aerobee.grpc_core.method import Method, Style
from aerobee.grpc_core.server import Server
from aerobee.grpc_core.server_call import ServerCall
from aerobee.grpc_core.status import Metadata, RpcError, Status

Wrap = Callable[[str, Any], Any]
"""From a method's path and grpcio's handler of it to the handler that is to be served."""


class ServicerContext:
    """One call, as servicers written for grpcio ask for it."""

    __slots__ = ("_call", "_end_of_stream", "_trailers")

    def __init__(self, call: ServerCall, end_of_stream: object) -> None:
        self._call = call
        self._end_of_stream = end_of_stream
        self._trailers: Metadata = ()

    @property
    def call(self) -> ServerCall:
        """The call itself."""
        return self._call

    def peer(self) -> str:
        return self._call.peer

    def invocation_metadata(self) -> Metadata:
        return self._call.metadata

    def time_remaining(self) -> float | None:
        return self._call.time_remaining_s()

    def cancelled(self) -> bool:
        return self._call.is_over

    done = cancelled

    async def send_initial_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self._check()
        self._call.send_initial_metadata(tuple(metadata))

    def set_trailing_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """They go with whatever status the call ends by."""
        self._trailers = tuple(metadata)
        self._call.set_trailers(self._trailers)

    def trailing_metadata(self) -> Metadata:
        return self._trailers

    async def read(self) -> Any:
        """The next request, or what grpcio calls the end of a stream."""
        self._check()
        try:
            request = await self._call.read()
        except RpcError:
            self._check()
            raise
        return self._end_of_stream if request is None else request

    async def write(self, answer: Any) -> None:
        call = self._call
        if call.is_over:
            raise asyncio.CancelledError
        # Who writes much leaves the loop after what a turn may send; what leaves at once does not
        # count for that.
        call.send_nowait(answer)
        if call.outbox is not None:
            await call.sendable()

    def write_at_once(self, answer: Any) -> bool:
        """The same if it takes no waiting; otherwise nothing has happened."""
        call = self._call
        if call.is_over or call.outbox is not None:
            return False
        call.send_now(answer)
        return True

    def set_code(self, code: object) -> None:
        """Of use only to methods that are not implemented, which raise afterwards."""

    def set_details(self, details: str) -> None:
        """The same."""

    async def abort(
        self,
        code: Any,
        details: str = "",
        trailing_metadata: Iterable[tuple[str, str | bytes]] = (),
    ) -> NoReturn:
        """Ends the call; `code` is a grpc.StatusCode."""
        further = tuple(trailing_metadata)
        self._trailers += further
        raise RpcError(Status(code.value[0]), details, trailers=further)

    def _check(self) -> None:
        """A call that is over is cancelled, and nothing else is heard of it."""
        if self._call.is_over:
            raise asyncio.CancelledError


class GeneratedServices:
    """What `add_XServicer_to_server` takes for a server."""

    def __init__(
        self, server: Server, *, end_of_stream: object, wrap: Wrap = lambda _, handler: handler
    ) -> None:
        """`end_of_stream`: grpc.aio.EOF."""
        self._server = server
        self._end_of_stream = end_of_stream
        self._wrap = wrap

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same handlers come by `add_registered_method_handlers`, with their names."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve the methods of one service."""
        for name, handler in handlers.items():
            path = f"/{service}/{name}"
            self._server.add(self._method(path, self._wrap(path, handler)))

    def _method(self, path: str, handler: Any) -> Method:
        behaviour = (
            handler.unary_unary
            or handler.unary_stream
            or handler.stream_unary
            or handler.stream_stream
        )
        end = self._end_of_stream

        def served(request: Any, call: ServerCall) -> Any:
            return behaviour(request, ServicerContext(call, end))

        is_generator = inspect.isasyncgenfunction(behaviour)
        if not is_generator and not inspect.iscoroutinefunction(behaviour):
            behaviour = _in_a_coroutine(behaviour)
        return Method(
            path,
            served,
            Style.GENERATOR if is_generator else Style.COROUTINE,
            bool(handler.request_streaming),
            bool(handler.response_streaming),
            handler.request_deserializer,
            handler.response_serializer,
        )


def _in_a_coroutine(behaviour: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function is what protoc generates for a method that a servicer does not have."""

    async def called(request: Any, context: ServicerContext) -> Any:
        try:
            answer = behaviour(request, context)
        except NotImplementedError:
            raise RpcError(Status.UNIMPLEMENTED, "the method is not implemented") from None
        return await answer if inspect.isawaitable(answer) else answer

    return called
