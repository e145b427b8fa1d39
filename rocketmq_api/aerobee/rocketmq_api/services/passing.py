"""Makes a client's call at the broker responsible for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from aerobee.cluster_view.methods import Method
from aerobee.cluster_view.route import TopicRoute
from aerobee.rocketmq_api.codes import error_of
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.ports import Q, R, RouteSource, StreamingPeers
from aerobee.runtime.errors import NotMaster, Unreachable


class Passing:
    """Calls to the masters of one route source. A call that was already passed on goes no
    further."""

    def __init__(self, routes: RouteSource, peers: StreamingPeers) -> None:
        self._routes = routes
        self._peers = peers

    async def call(
        self,
        method: Method[Q, R],
        request: Q,
        caller: Caller,
        *,
        route: TopicRoute,
        broker_name: str,
    ) -> R:
        """The answer of a call that succeeded. Raises NotMaster, NoBrokerAvailable, Unreachable,
        DeadlineExceeded, and the error in the answer."""
        address = self._address(caller, route, broker_name)
        try:
            answer = await self._peers.call(
                address,
                method,
                request,
                timeout_ms=caller.answer_in_ms,
                metadata=caller.passed_on(),
            )
            check(answer)
        except (NotMaster, Unreachable):
            self._routes.invalidate(route.topic)
            raise
        return answer

    async def stream(
        self,
        method: Method[Q, R],
        request: Q,
        caller: Caller,
        *,
        route: TopicRoute,
        broker_name: str,
        timeout_ms: int | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> AsyncGenerator[R, None]:
        """The answers as they come. The call there ends when this is closed. Raises as `call`, if
        nothing has come before. `timeout_ms`: by default as long as the caller waits; `metadata` is
        added to that of the caller."""
        address = self._address(caller, route, broker_name)
        stream = self._peers.open_server_stream(
            address,
            method,
            request,
            timeout_ms=timeout_ms or caller.answer_in_ms,
            metadata=(*caller.passed_on(), *metadata),
        )
        try:
            first = answer = await stream.read()
            if answer is not None and answer.HasField("status"):
                _check_route(answer)
            while answer is not None:
                yield answer
                answer = await stream.read()
            if first is None:
                raise Unreachable(f"{address} ended the call without an answer; retry")
        except (NotMaster, Unreachable):
            self._routes.invalidate(route.topic)
            raise
        finally:
            stream.cancel()

    def _address(self, caller: Caller, route: TopicRoute, broker_name: str) -> str:
        if caller.was_forwarded:
            raise NotMaster(
                f"a call for broker {broker_name} was passed on to another node: routes are "
                "changing; retry in a moment"
            )
        return route.master_address(broker_name)


def check(answer: Any) -> None:
    """Raises the error that an answer says."""
    error = error_of(answer.status)
    if error is not None:
        raise error


def _check_route(answer: Any) -> None:
    """Any other error goes to the client unchanged."""
    error = error_of(answer.status)
    if isinstance(error, NotMaster):
        raise error
