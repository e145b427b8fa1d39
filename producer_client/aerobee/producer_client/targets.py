"""Topics as destinations: the queues that a producer may choose from, kept in line with routes.

Invariant: callers continue in the order in which they asked for a topic, whether or not its route
had to be fetched; so messages keep the order in which they were handed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aerobee.client_core.short_tracebacks import TOLD, shortened
from aerobee.cluster_view.cluster_wait import ClusterWait
from aerobee.cluster_view.route import PERM_WRITE, MessageQueue, TopicRoute
from aerobee.cluster_view.routes import Routes
from aerobee.producer_client.accumulator import Batch
from aerobee.producer_client.selector import interleaved
from aerobee.runtime import errors
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

NOT_YET = (
    errors.Unreachable,
    errors.RegistryUnavailable,
    errors.ShuttingDown,
    errors.NoBrokerAvailable,
)
"""Typical errors of a cluster that is still starting."""


class Target:
    """One route's queues, and by `Batch.level` the batches that messages without a key are
    filling."""

    __slots__ = ("current", "keyed_queues", "queues", "route")

    def __init__(self, route: TopicRoute) -> None:
        self.route = route
        self.keyed_queues = route.open_queues or route.queues
        # Without any live master the brokers of the topic are tried until the deadline.
        self.queues = interleaved(route.writable_queues or self.keyed_queues)
        self.current: dict[int | None, Batch] = {}

    def check_queue(self, queue: MessageQueue) -> None:
        """Raises QueueNotFound unless the topic has this queue."""
        count = self.route.queues_by_broker.get(queue.broker_name, 0)
        if queue.topic != self.route.topic or not 0 <= queue.queue_id < count:
            raise errors.QueueNotFound(
                f"topic {self.route.topic!r} has no queue {queue}: see `aerobee topic show`"
            )


class Targets:
    """The topics that one producer sends to."""

    def __init__(
        self,
        routes: Routes,
        *,
        create_missing: bool,
        on_route: Callable[[TopicRoute], None],
        await_cluster_ms: int = 0,
    ) -> None:
        """`on_route` gets each new route before it is used. For `await_cluster_ms`, nameservers and
        brokers that are not there yet are retried."""
        self._await_cluster_ms = await_cluster_ms
        self._routes = routes
        self._create_missing = create_missing
        self._on_route = on_route
        self._targets: dict[str, Target] = {}
        self._last_in_line: dict[str, asyncio.Future[None]] = {}
        """For each topic, the newest of the callers that wait for its route; done when that caller
        and all before it have continued or given up."""

    @property
    def topics(self) -> list[str]:
        """Those that were sent to."""
        return sorted(self._targets)

    def known(self, topic: str) -> Target | None:
        """The topic by its newest route, without waiting; None: call `find`, as others are doing.

        Raises:
            NotWritableTopic, NoBrokerAvailable: as `find`.
        """
        return None if topic in self._last_in_line else self._cached(topic)

    def _cached(self, topic: str) -> Target | None:
        route = self._routes.cached(topic)
        if route is None:
            return None
        target = self._targets.get(topic)
        return target if target is not None and target.route is route else self._renew(route)

    async def find(self, topic: str, *, timeout_ms: int) -> Target:
        """The topic by its newest route, asked from a nameserver if necessary.

        Raises:
            TopicNotFound, IllegalName: there is no such topic, and none is to be created.
            NotWritableTopic: its permission forbids sending.
            NoBrokerAvailable: no broker group holds any of its queues.
            Unreachable, RegistryUnavailable, DeadlineExceeded: no nameserver answers.
        """
        known = self.known(topic)
        if known is not None:
            return known
        before = self._last_in_line.get(topic)
        loop = asyncio.get_running_loop()
        mine = self._last_in_line[topic] = loop.create_future()
        end_s = loop.time() + timeout_ms / 1_000

        def leave(_: object) -> None:
            mine.set_result(None)
            if self._last_in_line.get(topic) is mine:
                del self._last_in_line[topic]

        try:
            route = await self._ask(topic, timeout_ms)
            if before is not None and not before.done():
                await asyncio.wait((before,), timeout=max(0.0, end_s - loop.time()))
                if not before.done():
                    raise errors.DeadlineExceeded(
                        f"earlier sends still wait for the route of topic {topic!r}, and this one "
                        "would overtake them; nothing was sent"
                    )
            return self._cached(topic) or self._renew(route)
        except TOLD as error:
            raise shortened(error) from error.__cause__
        finally:
            if before is None or before.done():
                leave(None)
            else:  # Those after this one do not overtake those before it.
                before.add_done_callback(leave)

    async def found(self, topic: str, *, timeout_ms: int) -> Target:
        """The same for a caller that `find` has already let through: it does not queue again.

        Raises as `find`.
        """
        return self._cached(topic) or await self.find(topic, timeout_ms=timeout_ms)

    async def _ask(self, topic: str, timeout_ms: int) -> TopicRoute:
        """Repeatedly while there is time: a cluster may be started after its producers."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_ms / 1_000
        wait = ClusterWait(min(timeout_ms, self._await_cluster_ms) / 1_000, loop.time)
        while True:
            left_ms = max(1, int((end_s - loop.time()) * 1_000))
            try:
                return await self._routes.route(
                    topic, create_missing=self._create_missing, timeout_ms=left_ms
                )
            except errors.Busy as error:
                # Too many topics are being created automatically; the error says when to retry.
                pause_s = error.retry_after_ms / 1_000
                if loop.time() + pause_s >= end_s:
                    raise
                await asyncio.sleep(pause_s)
            except NOT_YET as error:
                if wait.is_over():
                    raise
                if wait.is_long():
                    log_event(
                        log,
                        "a send waits for the cluster",
                        level=logging.WARNING,
                        topic=topic,
                        reason=error,
                        left_s=wait.left_s,
                    )
                await wait.pause()

    def _renew(self, route: TopicRoute) -> Target:
        if not route.perm & PERM_WRITE:
            raise errors.NotWritableTopic(f"topic {route.topic!r} does not permit sending")
        if not route.queues:
            raise errors.NoBrokerAvailable(
                f"topic {route.topic!r} has no queues: no broker group has any of them"
            )
        self._on_route(route)
        target = self._targets[route.topic] = Target(route)
        return target
