"""Where a server's requests are read: within their limits, before a servicer sees them.

Owns: how gRPC reads each method's requests. A call with one request is read by gRPC before its
servicer runs, and gRPC logs whatever reading raises as a bug: there the error takes the request's
place, and is answered instead of calling the servicer. A stream is read by its servicer, to whom
reading raises what it found; the error border answers it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from aerobee.runtime.errors import InvalidArgument, MqError
from aerobee.runtime.method_wrapping import WrappingInterceptor
from aerobee.runtime.request_limits import Limit, RequestLimits, RequestReader

Read = Callable[[bytes], Any]
Refuse = Callable[[str, Any, MqError], Awaitable[None]]
"""Ends a call, by the method's name and its context, with an error. Raises what gRPC wants then."""


def limits_of_every_server() -> tuple[RequestLimits, RequestLimits]:
    """Of health and of reflection."""
    name = Limit(length=1_024)
    health = RequestLimits(
        health_pb2.DESCRIPTOR.services_by_name.values(),
        {"HealthCheckRequest": 4_096, "HealthListRequest": 1_024},
        {"HealthCheckRequest.service": name},
        package="grpc.health.v1",
    )
    reflection = RequestLimits(
        reflection_pb2.DESCRIPTOR.services_by_name.values(),
        {"ServerReflectionRequest": 8_192},
        {
            "ServerReflectionRequest.host": name,
            "ServerReflectionRequest.file_by_filename": name,
            "ServerReflectionRequest.file_containing_symbol": name,
            "ServerReflectionRequest.all_extension_numbers_of_type": name,
            "ServerReflectionRequest.list_services": name,
            "ExtensionRequest.containing_type": name,
        },
        package="grpc.reflection.v1alpha",
    )
    return health, reflection


class RequestBorder(WrappingInterceptor):
    """Gives every served method a reader of its requests."""

    def __init__(self, limits: RequestLimits | None, refuse: Refuse) -> None:
        """Without `limits` only what cannot be read is refused."""
        super().__init__()
        self._limits = limits
        self._own_limits = limits_of_every_server()
        self._refuse = refuse

    def wrapped(self, name: str, handler: Any) -> Any:
        own = next(filter(None, (each.reader(name) for each in self._own_limits)), None)
        reader = own or (None if self._limits is None else self._limits.reader(name))
        read = _reading(reader, handler.request_deserializer)
        write = handler.response_serializer
        method = name.rpartition("/")[2]
        if handler.unary_unary is not None:
            served = self._answering(handler.unary_unary, method)
            return grpc.unary_unary_rpc_method_handler(served, _error_as_request(read), write)
        if handler.unary_stream is not None:
            served = self._answering(handler.unary_stream, method)
            return grpc.unary_stream_rpc_method_handler(served, _error_as_request(read), write)
        served = handler.stream_stream
        assert served is not None, "no service of ours takes a stream and gives one answer"
        if own is not None:
            served = self._catching(served, method)  # a servicer that has no error border
        elif not inspect.isasyncgenfunction(served):
            served = _with_metadata_first(served)
        return grpc.stream_stream_rpc_method_handler(served, read, write)

    def _answering(self, behaviour: Any, method: str) -> Callable[..., Any]:
        """The servicer's method, unless the request is an error."""
        refuse = self._refuse
        if inspect.isasyncgenfunction(behaviour):

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                if isinstance(request, MqError):
                    await refuse(method, context, request)
                async for answer in behaviour(request, context):
                    yield answer

            return stream

        async def answer(request: Any, context: Any) -> Any:
            if isinstance(request, MqError):
                await refuse(method, context, request)
            return await behaviour(request, context)

        return answer

    def _catching(self, behaviour: Any, method: str) -> Callable[..., Any]:
        """A stream's servicer, whose reading may raise."""
        refuse = self._refuse

        async def stream(requests: Any, context: Any) -> AsyncIterator[Any]:
            try:
                async for answer in behaviour(requests, context):
                    yield answer
            except MqError as error:
                await refuse(method, context, error)

        return stream


def _with_metadata_first(behaviour: Any) -> Callable[..., Any]:
    """A stream whose writes may be given up, because reading failed, can still end with an error:
    gRPC sends the first metadata with the first write, and if that is given up sends them again
    with the error, which fails and leaves the client without an answer."""

    async def served(requests: Any, context: Any) -> Any:
        try:
            await context.send_initial_metadata(())
        except grpc.aio.InternalError:
            raise asyncio.CancelledError from None  # the client is gone already
        return await behaviour(requests, context)

    return served


def _reading(reader: RequestReader | None, parse: Read | None) -> Read | None:
    """`parse` is None where the servicer takes bytes."""
    if reader is not None:
        return reader.read if parse is not None else _checked_bytes(reader)
    if parse is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            raise InvalidArgument("the bytes of the request cannot be read") from None

    return read


def _checked_bytes(reader: RequestReader) -> Read:
    def read(data: bytes) -> bytes:
        reader.check(data)
        return data

    return read


def _error_as_request(read: Read | None) -> Read | None:
    if read is None:
        return None

    def given(data: bytes) -> Any:
        try:
            return read(data)
        except MqError as error:
            return error

    return given
