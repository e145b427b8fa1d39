"""gRPC health of a server (grpc.health.v1): whether it serves, as a whole and for each service.

Owns: the single answer for all of them, and the watches that wait for it to change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from grpc_health.v1 import health_pb2

from aerobee.rpc.core.status import RpcError, Status
from aerobee.rpc.served_method import answered_at_once
from aerobee.runtime.waiting import Waiters

SERVICE_NAME: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

WATCHES_MAX: Final = 4_096
"""Anybody may watch, and each watch is a task that waits. `Check` always answers."""
WATCHES_PER_CONNECTION_MAX: Final = 8
"""A client library needs one for each connection."""

_Answer = health_pb2.HealthCheckResponse


class ServingHealth:
    """The servicer of grpc.health.v1.Health."""

    def __init__(self, service_names: Iterable[str]) -> None:
        """Starts as not serving."""
        self._names = frozenset(("", *service_names))
        self._status = _Answer.NOT_SERVING
        self._has_ended = False
        self._changed = Waiters()
        self._watches: dict[str, int] = {}
        """How many, by the peer of the connection."""
        self._watch_count = 0

    def set(self, serving: bool) -> None:
        """Answer this from now on; watches receive it at once."""
        if not self._has_ended:
            self._status = _Answer.SERVING if serving else _Answer.NOT_SERVING
            self._changed.wake()

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
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncIterator[Any]:
        told = None
        is_known = request.service in self._names
        with self._watching(str(context.peer())):
            while True:
                status = self._status if is_known else _Answer.SERVICE_UNKNOWN
                if status != told:
                    told = status
                    yield _Answer(status=status)
                else:
                    await self._changed.wait()

    @contextmanager
    def _watching(self, peer: str) -> Iterator[None]:
        """Raises RpcError: there are too many watches."""
        own = self._watches.get(peer, 0)
        if own >= WATCHES_PER_CONNECTION_MAX or self._watch_count >= WATCHES_MAX:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED,
                f"{own} watches of health exist already on this connection and {self._watch_count} "
                f"in all, and {WATCHES_PER_CONNECTION_MAX} and {WATCHES_MAX} are allowed; use "
                "Check, which always answers",
            )
        self._watches[peer] = own + 1
        self._watch_count += 1
        try:
            yield
        finally:
            self._watch_count -= 1
            self._watches[peer] -= 1
            if not self._watches[peer]:
                del self._watches[peer]
