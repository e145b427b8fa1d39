"""The gRPC server that every service has, with health and reflection.

A setting chooses the gRPC implementation; what happens around each call is the same
(`call_border`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import grpc
from grpc_health.v1 import health_pb2_grpc

from aerobee.rpc.call_border import AnswerError, CallBorder, RpcObserver, SayError
from aerobee.rpc.call_guard import CallGuard
from aerobee.rpc.core.first_bytes import Beside
from aerobee.rpc.core.limits import LimitObserver
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.grpcio_engine import GrpcioEngine
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.own_engine import OwnEngine
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.rpc.reflection import Reflection, reflection_files, service_of
from aerobee.rpc.request_limits import RequestLimits
from aerobee.rpc.server_engine import AcceptedTls, ServerEngine, ServerOptions
from aerobee.rpc.serving_health import SERVICE_NAME, ServingHealth
from aerobee.rpc.standard_limits import health_limits, reflection_limits
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock, SystemClock


class RpcServer:
    """A gRPC server with health and reflection, listening on one address."""

    def __init__(
        self,
        say_error: SayError,
        service_names: Sequence[str],
        *,
        engine: Engine = Engine.OWN,
        busy_poll_us: int = 0,
        limits: Sequence[RequestLimits] = (),
        answer_errors: Mapping[str, AnswerError] = MappingProxyType({}),
        connections_max: int | None = None,
        memory: MemoryBudget | None = None,
        latencies: RpcObserver | None = None,
        clock: Clock | None = None,
        observer: LimitObserver | None = None,
        guard: CallGuard | None = None,
        tls: AcceptedTls | None = None,
        on_disconnected: Callable[[str], None] | None = None,
        beside: Beside | None = None,
    ) -> None:
        """`say_error` of the protocol; `answer_errors`, by path, for methods that report errors in
        their answers. `service_names`: full protobuf names, listed by reflection and health.
        `limits` for these services' requests; without them, only unreadable requests are refused.
        Connections beyond `connections_max` are closed at once. `memory` has a part
        for what peers make the server hold. `latencies` gets the time of each
        call with a single answer, `observer` each peer that exceeds a limit of the engine. `guard`
        decides who may call what; without it, everyone may. Without `tls` everything is plain text.
        `on_disconnected` gets the peer of each connection that ends; `beside`: another protocol on
        the same ports. Both with our own engine only."""
        files = reflection_files()
        self._service_names = tuple(service_names)
        self._health = ServingHealth(service_names)
        self._beside = beside
        options = ServerOptions(
            connections_max=connections_max,
            tls=tls,
            busy_poll_us=busy_poll_us,
            on_disconnected=on_disconnected,
            beside=beside,
        )
        if memory is not None:
            options = replace(
                options,
                memory_bytes_max=memory.server_bytes,
                request_bytes_max=memory.request_bytes_max,
            )
        self._engine = new_engine(engine, options, clock, observer)
        if memory is not None and self._engine.memory_used_bytes is not None:
            memory.counts("server", lambda: self._engine.memory_used_bytes or 0)
        border = CallBorder(
            say_error,
            clock or SystemClock(),
            limits=(*limits, health_limits(), *reflection_limits(files)),
            observer=latencies,
            answer_errors=answer_errors,
            guard=guard,
        )
        self.server = MethodTable(self._engine, border)
        """For protoc's `add_XServicer_to_server`."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        names = (*service_names, SERVICE_NAME, *(service_of(file).full_name for file in files))
        for file in files:
            add_reflection(Reflection(file, files, names), self.server)
        self.port = 0

    async def start(self, listen: str, *, serving: bool = True) -> int:
        """Bind and serve; returns the port (which matters if `listen` ends in :0).

        `serving` is what health answers at first.

        Raises:
            InvalidArgument: the address is in use or not of this machine.
        """
        self._health.set(serving)
        with _listening_on(listen):
            self.port = await self._engine.listen(listen)
        return self.port

    async def start_outside(self, listen: str, tls: AcceptedTls | None) -> None:
        """Serve the same on the outside listener, see `aerobee.rpc.outside`.

        Raises:
            InvalidArgument: as `start`, or the engine has no such listener.
        """
        with _listening_on(listen):
            await self._engine.listen_outside(listen, tls)

    async def set_serving(self, serving: bool) -> None:
        """What gRPC health answers, for the server as a whole and for each service."""
        self._health.set(serving)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running ones end for `grace_s` seconds, then cancel them."""
        self._health.end()
        async with asyncio.TaskGroup() as stopping:
            stopping.create_task(self._engine.stop(grace_s), name="stop-engine")
            if self._beside is not None:
                stopping.create_task(self._beside.stop(grace_s), name="stop-beside")


@contextmanager
def _listening_on(listen: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.InvalidArgument(
            f"cannot listen on {listen}: the port is in use or the address is not of this "
            "machine; stop the other process or choose another port"
        ) from error


def new_engine(
    engine: Engine,
    options: ServerOptions,
    clock: Clock | None = None,
    observer: LimitObserver | None = None,
) -> ServerEngine:
    """A server of that kind, not listening yet."""
    if engine is Engine.GRPCIO:
        return GrpcioEngine(options)
    return OwnEngine(options, clock or SystemClock(), observer or PeerLimits())


class MethodTable:
    """Takes the place of a server in protoc's `add_XServicer_to_server`."""

    def __init__(self, engine: ServerEngine, border: CallBorder) -> None:
        self._engine = engine
        self._border = border

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same handlers arrive through `add_registered_method_handlers`, with their names."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve those methods of one service that its servicer implements."""
        for name, handler in handlers.items():
            method = self._border.served(f"/{service}/{name}", handler)
            if method is not None:
                self._engine.add(method)


def add_reflection(reflection: Reflection, server: MethodTable) -> None:
    """What protoc generates, which it does for v1alpha only."""
    handler = grpc.stream_stream_rpc_method_handler(
        reflection.ServerReflectionInfo,
        request_deserializer=reflection.request.FromString,
        response_serializer=reflection.response.SerializeToString,
    )
    server.add_registered_method_handlers(
        reflection.service_name, {"ServerReflectionInfo": handler}
    )
