"""The health port: gRPC health on a separate address, as long as the process lives.

Owns: the server. It runs on the event loop that it reports on: a loop that hangs does not answer,
which every caller takes for a no. Each answer is computed when asked; a change is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aerobee.rpc.call_border import CallBorder
from aerobee.rpc.core.limits import LimitObserver
from aerobee.rpc.core.status import RpcError, Status
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.served_method import answered_at_once
from aerobee.rpc.server_engine import AcceptedTls, ServerOptions
from aerobee.rpc.serving import MethodTable, new_engine
from aerobee.rpc.standard_limits import health_limits
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.health import REASON_METADATA_KEY, Health, Question
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

WATCH_INTERVAL_S = 0.25
CONNECTIONS_MAX = 512
"""Probes come one at a time; nobody may use up the process's file descriptors through this port."""
REQUEST_BYTES_MAX = 64 << 10
MEMORY_BYTES_MAX = 8 << 20
"""For all that waits at this port; part of what the program itself takes."""
WATCHES_MAX = 64
"""A watch keeps its connection as long as it likes. With at most this many, far fewer than the
connections, there is always room for a probe."""
IDLE_S = 3.0
"""After this, a connection without a call, or one that has not even started HTTP/2, is closed, so
that idle ones cannot keep probes out. A probe opens a new one each time."""

Context = grpc.aio.ServicerContext[Any, Any]


class HealthService:
    """The servicer of grpc.health.v1.Health, over a `Health`."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._told: dict[Question, bool] = {}
        self._watches = 0

    @answered_at_once
    def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        question = _question(request.service)
        if question is None:
            raise RpcError(
                Status.NOT_FOUND,
                f"no service {request.service!r}; there are {', '.join(Question)}",
            )
        reason = self._why_not(question)
        if reason:
            context.set_trailing_metadata(((REASON_METADATA_KEY, reason.encode()),))
        return health_pb2.HealthCheckResponse(status=_status(reason))

    @answered_at_once
    def List(
        self, request: health_pb2.HealthListRequest, context: Context
    ) -> health_pb2.HealthListResponse:
        answers = {question.value: _status(self._why_not(question)) for question in Question}
        return health_pb2.HealthListResponse(
            statuses={
                name: health_pb2.HealthCheckResponse(status=status)
                for name, status in answers.items()
            }
        )

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        question = _question(request.service)
        if question is None:
            unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            yield health_pb2.HealthCheckResponse(status=unknown)
            return
        if self._watches >= WATCHES_MAX:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED,
                f"{self._watches} watches of this process's health exist already, which is the "
                "limit; use Check, which always answers",
            )
        self._watches += 1
        try:
            told = None
            while True:
                status = _status(self._why_not(question))
                if status != told:
                    told = status
                    yield health_pb2.HealthCheckResponse(status=status)
                await asyncio.sleep(WATCH_INTERVAL_S)
        finally:
            self._watches -= 1

    def _why_not(self, question: Question) -> str:
        reason = self._health.why_not(question)
        is_serving = not reason
        if self._told.get(question) is not is_serving:
            self._told[question] = is_serving
            log_event(log, "health", question=question, serving=is_serving, reason=reason)
        return reason


@asynccontextmanager
async def serve_health(
    listen: str,
    health: Health,
    *,
    idle_s: float = IDLE_S,
    engine: Engine = Engine.OWN,
    observer: LimitObserver | None = None,
    tls: AcceptedTls | None = None,
) -> AsyncIterator[int]:
    """Answer on `listen` within the block; yields the port. Without an address nothing is served.

    Connections that make no call are closed after `idle_s`. `observer` gets each peer that exceeds
    a limit of the engine. Without `tls` everything is plain text.

    Raises:
        InvalidArgument: the address is in use or not of this machine.
    """
    if not listen:
        yield 0
        return
    options = ServerOptions(
        request_bytes_max=REQUEST_BYTES_MAX,
        memory_bytes_max=MEMORY_BYTES_MAX,
        connections_max=CONNECTIONS_MAX,
        idle_s=idle_s,
        tls=tls,
    )
    server = new_engine(engine, options, observer=observer)
    border = CallBorder(say_error, SystemClock(), limits=(health_limits(),), observer=None)
    table = MethodTable(server, border)
    health_pb2_grpc.add_HealthServicer_to_server(HealthService(health), table)
    try:
        port = await server.listen(listen)
    except OSError as error:
        raise InvalidArgument(
            f"cannot serve health on {listen}: the port is in use or the address is not of this "
            "machine; stop the other process or choose another port for health.listen"
        ) from error
    log_event(log, "health is served", address=listen, port=port)
    try:
        yield port
    finally:
        await server.stop(0)


def _question(service: str) -> Question | None:
    try:
        return Question(service or Question.READINESS)
    except ValueError:
        return None


def _status(reason: str) -> health_pb2.HealthCheckResponse.ServingStatus:
    answer = health_pb2.HealthCheckResponse
    return answer.NOT_SERVING if reason else answer.SERVING
