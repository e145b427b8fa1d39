"""gRPC health of a server (grpc.health.v1): whether it serves, as a whole and for each service.

Owns: the single answer for all of them, and the watches that wait for it to change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from grpc_health.v1 import health_pb2

from aerobee.grpc_core.status import RpcError, Status
from aerobee.runtime.served_method import answered_at_once

SERVICE_NAME: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

_Answer = health_pb2.HealthCheckResponse


class ServingHealth:
    """The servicer of grpc.health.v1.Health."""

    def __init__(self, service_names: Iterable[str]) -> None:
        """Starts as not serving."""
        self._names = frozenset(("", *service_names))
        self._status = _Answer.NOT_SERVING
        self._has_ended = False
        self._changed = asyncio.Event()

    def set(self, serving: bool) -> None:
        """Answer this from now on; watches receive it at once."""
        if not self._has_ended:
            self._status = _Answer.SERVING if serving else _Answer.NOT_SERVING
            self._changed.set()
            self._changed = asyncio.Event()

    def end(self) -> None:
        """NOT_SERVING for good: the server is stopping."""
        self.set(False)
        self._has_ended = True

    @answered_at_once
    def Check(self, request: health_pb2.HealthCheckRequest, context: object) -> Any:
        if request.service not in self._names:
            raise RpcError(Status.NOT_FOUND, f"no service {request.service!r} is served here")
        return _Answer(status=self._status)

    @answered_at_once
    def List(self, request: health_pb2.HealthListRequest, context: object) -> Any:
        answer = _Answer(status=self._status)
        return health_pb2.HealthListResponse(statuses=dict.fromkeys(self._names, answer))

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: object
    ) -> AsyncIterator[Any]:
        told = None
        is_known = request.service in self._names
        while True:
            changed = self._changed
            status = self._status if is_known else _Answer.SERVICE_UNKNOWN
            if status != told:
                told = status
                yield _Answer(status=status)
            else:
                await changed.wait()
