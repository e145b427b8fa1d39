"""Here or passed on: which node answers a call for a broker, and how it gets there.

    this node is the broker's master    `here` gives what the node has of its own
    another node is                     `call`, `stream` and `ask` make the client's call there
    the call was passed on to this      NotMaster: two nodes whose routes differ would otherwise
      node, which is not the master       pass it back and forth without end

A node that turns out not to be the master, or cannot be reached, contradicts the route: the next
call asks for it again.

Owns: the rule against loops, the error for a node that does not answer, and what a call says of its
client when it is passed on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Generic, TypeVar

from aerobee.cluster_view.methods import Method
from aerobee.cluster_view.route import TopicRoute
from aerobee.rocketmq_api.codes import error_of
from aerobee.rocketmq_api.ports import OwnBroker, RouteSource
from aerobee.rocketmq_api.rules.refusals import topic_not_found
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.peers import Q, R, StreamingPeers
from aerobee.runtime.errors import NotMaster, TopicNotFound, Unreachable

O_co = TypeVar("O_co", bound=OwnBroker, covariant=True)


class Masters(Generic[O_co]):
    """The masters of all brokers, one of which may be this node."""

    def __init__(self, routes: RouteSource, peers: StreamingPeers, own: O_co | None = None) -> None:
        """`own`: what this node has of the broker that it is a replica of; None: no store."""
        self._routes = routes
        self._peers = peers
        self._own = own

    @property
    def own(self) -> O_co | None:
        """What this node has, if it is a master now."""
        own = self._own
        return own if own is not None and own.is_master() else None

    @property
    def own_name(self) -> str:
        """The broker whose master this node is; "": of none."""
        own = self.own
        return "" if own is None else own.broker_name

    @property
    def replica_name(self) -> str:
        """The broker of which this node is a replica, master or not; "": of none."""
        return "" if self._own is None else self._own.broker_name

    def here(self, broker_name: str) -> O_co | None:
        """What this node has of a broker whose master it is; None: the call is passed on."""
        own = self.own
        return own if own is not None and own.broker_name == broker_name else None

    async def route(self, topic: str) -> TopicRoute:
        """Raises TopicNotFound as clients expect it, and others of `RouteSource.route`."""
        try:
            return await self._routes.route(topic)
        except TopicNotFound:
            raise topic_not_found(topic) from None

    def known(self, topic: str) -> TopicRoute | None:
        """What `route` would return, if it is known."""
        return self._routes.known(topic)

    def contradicted(self, topic: str) -> None:
        """A node was not what the route says."""
        self._routes.invalidate(topic)

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
        address = _address(caller, route, broker_name)
        try:
            answer = await self._call(address, method, request, caller, caller.answer_in_ms)
            check(answer)
        except (NotMaster, Unreachable):
            self.contradicted(route.topic)
            raise
        return answer

    async def ask(
        self,
        method: Method[Q, R],
        request: Q,
        caller: Caller,
        *,
        route: TopicRoute,
        broker_name: str,
    ) -> R:
        """Any answer, for a caller that tries again and says itself what contradicted a route.
        Raises NotMaster, NoBrokerAvailable, Unreachable, DeadlineExceeded."""
        address = _address(caller, route, broker_name)
        return await self._call(address, method, request, caller, caller.answer_in_ms)

    async def tell(
        self,
        method: Method[Q, R],
        request: Q,
        caller: Caller,
        *,
        topic: str,
        broker_name: str,
        timeout_ms_max: int,
    ) -> None:
        """Pass on what a client said of itself, whatever the answer. Raises AerobeeError."""
        route = await self._routes.route(topic)
        address = _address(caller, route, broker_name)
        timeout_ms = min(timeout_ms_max, caller.answer_in_ms)
        await self._call(address, method, request, caller, timeout_ms)

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
        address = _address(caller, route, broker_name)
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
            self.contradicted(route.topic)
            raise
        finally:
            stream.cancel()

    async def _call(
        self, address: str, method: Method[Q, R], request: Q, caller: Caller, timeout_ms: int
    ) -> R:
        return await self._peers.call(
            address, method, request, timeout_ms=timeout_ms, metadata=caller.passed_on()
        )


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


def _address(caller: Caller, route: TopicRoute, broker_name: str) -> str:
    """Raises NotMaster for a call that was passed on already; NoBrokerAvailable."""
    if caller.was_forwarded:
        raise NotMaster(
            f"a call for broker {broker_name} was passed on to another node: routes are changing; "
            "retry in a moment"
        )
    return route.master_address(broker_name)
