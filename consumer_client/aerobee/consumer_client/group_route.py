"""One broker group as shown by the routes: its replicas, its master, or that it has none.

A view; the routes belong to the client. The group is found through a topic that has queues there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from aerobee.cluster_view.route import Endpoint
from aerobee.cluster_view.routes import Routes
from aerobee.runtime import errors


class GroupRoute:
    """The group with one broker name, as seen by one of its users, which records its failures
    here."""

    __slots__ = ("_failure", "_routes", "_topic", "_was_used", "broker_name")

    def __init__(self, routes: Routes, topic: str, broker_name: str) -> None:
        self.broker_name = broker_name
        self._routes = routes
        self._topic = topic
        self._was_used: Endpoint | None = None
        self._failure = ""

    def replicas(self) -> tuple[Endpoint, ...]:
        """The live ones, by broker id, as last known."""
        route = self._routes.cached(self._topic)
        return () if route is None else route.replicas(self.broker_name)

    def master(self) -> Endpoint | None:
        """As last known; None if there is none."""
        route = self._routes.cached(self._topic)
        return None if route is None else route.master(self.broker_name)

    def is_masterless(self) -> bool:
        """Whether replicas are alive and none of them is known as master. That does not prove that
        none acts: a master that had no other replicas continues until it hears of them."""
        return bool(self.replicas()) and self.master() is None

    def note_failure(self, reason: str) -> None:
        """Why the master could not be used the last time."""
        self._failure = reason

    def obstacle(self) -> str:
        """Why its master is missing or failed the last time, in one sentence."""
        if not self.replicas():
            return f"no broker of group {self.broker_name!r} is known to be alive"
        master = self.master()
        if master is None:
            return f"broker group {self.broker_name!r} has no master now"
        reason = self._failure or "it has not answered yet"
        return f"broker group {self.broker_name!r}, master at {master.address}: {reason}"

    def has_other_master(self, tried: Endpoint | None) -> bool:
        """Whether there is a master, and it is not the one that was tried."""
        master = self.master()
        if master is None or tried is None:
            return master is not None
        return master.address != tried.address or master.epoch > tried.epoch

    async def find_master(self, timeout_ms: int) -> Endpoint:
        """The master; waits for one to be elected. A caller that asks again and would get the same
        one could not use it, so a nameserver is asked first.

        Raises:
            NoBrokerAvailable: there is none in time.
            AerobeeError: as Routes.route.
        """
        if self._was_used is not None and self._was_used == self.master():
            self._routes.invalidate(self._topic)
        endpoint = await self._routes.master(self._topic, self.broker_name, timeout_ms=timeout_ms)
        if endpoint != self._was_used:
            self._failure = ""
        self._was_used = endpoint
        return endpoint

    async def refresh(self, timeout_ms: int) -> None:
        """Ask a nameserver; what is known stays if none answers."""
        self._routes.invalidate(self._topic)
        try:
            await self._routes.route(self._topic, timeout_ms=timeout_ms)
        except errors.AerobeeError:
            return

    def while_master(self, endpoint: Endpoint) -> AbstractAsyncContextManager[None]:
        """See Routes.while_master."""
        return self._routes.while_master(self._topic, endpoint)

    def telling(self, callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Within this block `callback` is called at every change of the route."""

        def tell(topic: str) -> None:
            if topic == self._topic:
                callback()

        return self._routes.telling(tell)
