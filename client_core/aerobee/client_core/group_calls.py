"""Questions to a broker group that survive a change of its master.

A call goes to the group's current master and, if that one is gone or is no longer master, to the
next one as soon as the route shows it, within one deadline. Only for questions that may be
repeated: a lost answer leaves the outcome unknown.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from google.protobuf.message import Message

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import Method
from aerobee.cluster_view.route import Endpoint
from aerobee.cluster_view.routes import Routes
from aerobee.runtime import errors
from aerobee.runtime.retry import Backoff

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

ELSEWHERE = (
    errors.NotMaster,
    errors.StaleEpoch,
    errors.ReplicaBehind,
    errors.ShuttingDown,
    errors.Unreachable,
)
"""Another replica may answer, or the same one soon."""
UNANSWERED = (*ELSEWHERE, errors.DeadlineExceeded)
"""A caller that asks all brokers leaves out one that answers with this, as one that is down."""

BACKOFF = Backoff(base_ms=50, max_ms=1_000)

OVERSLEPT_S = 0.5
"""A caller that notices the end of its time this much too late was not running in the meantime."""


class GroupCalls:
    """Calls to masters, or to whichever replica answers, by topic and broker name."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._channels: Channels = connection.channels
        self._routes: Routes = connection.routes
        self._clock = connection.clock
        self._random = connection.random

    async def at_master(
        self,
        topic: str,
        broker_name: str,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int,
    ) -> R:
        """The answer of the master of a group that holds queues of the topic.

        Raises:
            NoBrokerAvailable: the group never had a master in this time.
            AerobeeError: the master's answer; the last reason if none could be asked in time.
        """
        end_s = self._clock.monotonic_s() + timeout_ms / 1_000
        failures = 0
        reason: errors.AerobeeError | None = None
        may_oversleep = True
        while True:
            left_ms = self._left_ms(end_s)
            endpoint = await self._routes.master(topic, broker_name, timeout_ms=left_ms)
            try:
                return await self._ask(topic, endpoint, method, request, self._left_ms(end_s))
            except UNANSWERED as error:
                if may_oversleep and self._overslept(end_s):
                    may_oversleep = False
                    end_s = self._clock.monotonic_s() + timeout_ms / 1_000
                elif isinstance(error, errors.DeadlineExceeded):
                    raise (reason or error) from None
                elif not await self._pause(topic, failures, end_s):
                    raise
                else:
                    failures += 1
                    reason = error

    async def at_any(
        self,
        topic: str,
        broker_name: str,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int,
    ) -> R:
        """As `at_master`, but a slave is enough while there is no master, or it cannot be asked.

        A slave may lack its master's newest messages and offsets.
        """
        end_s = self._clock.monotonic_s() + timeout_ms / 1_000
        failures = 0
        may_oversleep = True
        while True:
            candidates = await self._candidates(topic, broker_name, self._left_ms(end_s))
            failure: errors.AerobeeError | None = None
            for position, endpoint in enumerate(candidates):
                share_ms = max(1, self._left_ms(end_s) // (len(candidates) - position))
                try:
                    return await self._ask(topic, endpoint, method, request, share_ms)
                except UNANSWERED as error:
                    failure = error
            assert failure is not None, "there is at least one candidate"
            if may_oversleep and self._overslept(end_s):
                may_oversleep = False
                end_s = self._clock.monotonic_s() + timeout_ms / 1_000
            elif not await self._pause(topic, failures, end_s):
                raise failure
            failures += 1

    async def _candidates(self, topic: str, broker_name: str, timeout_ms: int) -> list[Endpoint]:
        """The master first, then the slaves; if there is none, the next master."""
        route = await self._routes.route(topic, timeout_ms=timeout_ms)
        master = route.master(broker_name)
        slaves = route.slaves(broker_name)
        if master is None and not slaves:
            return [await self._routes.master(topic, broker_name, timeout_ms=timeout_ms)]
        return [*slaves] if master is None else [master, *slaves]

    async def _ask(
        self, topic: str, endpoint: Endpoint, method: Method[Q, R], request: Q, timeout_ms: int
    ) -> R:
        """One replica's answer; NotMaster as soon as the route says it is no longer master, because
        a hanging process does not say so itself."""
        if not endpoint.is_master:
            return await self._channels.call(
                endpoint.address, method, request, timeout_ms=timeout_ms
            )
        async with self._routes.while_master(topic, endpoint):
            return await self._channels.call(
                endpoint.address, method, request, timeout_ms=timeout_ms
            )

    async def _pause(self, topic: str, failures: int, end_s: float) -> bool:
        """After a failure: wait until the route changes, or for a while. False: no time is left."""
        delay_s = BACKOFF.delay_s(failures, self._random)
        if end_s - self._clock.monotonic_s() <= delay_s:
            return False
        known = self._routes.cached(topic)
        self._routes.invalidate(topic)
        try:
            async with asyncio.timeout(delay_s):
                await self._routes.changed(topic, known)
        except TimeoutError:
            pass
        return True

    def _overslept(self, end_s: float) -> bool:
        """Whether this process was suspended past the deadline, so that nobody had the time they
        were to wait: a machine that slept, a debugger, SIGSTOP."""
        return self._clock.monotonic_s() - end_s > OVERSLEPT_S

    def _left_ms(self, end_s: float) -> int:
        return max(1, int((end_s - self._clock.monotonic_s()) * 1_000))
