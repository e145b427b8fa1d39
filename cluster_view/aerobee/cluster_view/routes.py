"""Where topics are: a nameserver is asked once, then a watch keeps the answer fresh.

Owns: the known routes and one watch stream over all topics that were ever asked for. A known route
stays valid while no nameserver answers; with several nameservers any one is enough. A route never
goes back to an older version, except when a new watch says so (a restored etcd), and a broker group
never to an older epoch.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Self

from aerobee.cluster_view.channels import Channels, ServerStream
from aerobee.cluster_view.methods import QUERY_ROUTE, WATCH_ROUTES
from aerobee.cluster_view.nameservers import Nameservers
from aerobee.cluster_view.route import Endpoint, NewestEpochs, TopicRoute
from aerobee.domain.names import check_topic_name
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff
from aerobee.runtime.waiting import SharedFuture
from aerobee.v1 import common_pb2, nameserver_pb2

log = logging.getLogger(__name__)

WATCH_BACKOFF = Backoff(base_ms=100, max_ms=2_000)
WATCH_RESTART_DELAY_S = 0.02
"""Topics first asked for within this time join the watch together."""

ROUTE_ATTEMPT_MS = 750
"""A route is answered from memory: a nameserver silent for longer is probably gone, with its
machine."""
MASTER_POLL_S = 0.5
"""How often to ask while waiting for a master, in case the watch is broken."""

SILENT_S = 1.0
"""A shorter silence of nameservers is not told: one of them may just be starting again."""

TIME_IS_OVER_S = 0.01
"""If less time than this is left, a question without an answer has timed out."""

WATCHED_TOPICS_MAX = 1_000
"""The most a nameserver accepts in one request. With more topics, the newest are watched, and the
others asked for again when a broker contradicts their routes."""


class RouteChanges:
    """Names of topics whose routes changed, collected until they are read.

    Use as a context manager and an endless asynchronous iterator of sets.
    """

    def __init__(self, listeners: set[RouteChanges]) -> None:
        self._listeners = listeners
        self._topics: set[str] = set()
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        self._listeners.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._listeners.discard(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> frozenset[str]:
        await self._event.wait()
        self._event.clear()
        topics = frozenset(self._topics)
        self._topics.clear()
        return topics

    def _notify(self, topic: str) -> None:
        self._topics.add(topic)
        self._event.set()


class Routes:
    """The routes that one client knows."""

    def __init__(
        self,
        channels: Channels,
        nameservers: Nameservers,
        cluster: str,
        *,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._channels = channels
        self._nameservers = nameservers
        self._cluster = cluster
        self._clock = clock
        self._chance = chance
        self._epochs = NewestEpochs()
        self._known: dict[str, TopicRoute] = {}
        self._versions: dict[str, int] = {}
        self._suspect: set[str] = set()
        self._queries: dict[
            tuple[str, bool], asyncio.Future[TopicRoute | errors.AerobeeError | None]
        ]
        self._queries = {}
        """Questions under way, by topic and `create_missing`."""
        self._watched: dict[str, None] = {}
        self._watch_wanted = asyncio.Event()
        self._watch_stream: ServerStream[nameserver_pb2.QueryRouteResponse] | None = None
        self._watch_is_old = False
        self._silent_since_s: float | None = None
        """Since when no nameserver has answered; None: the last one that was asked did."""
        self._silence = ""
        self._listeners: set[RouteChanges] = set()
        self._callbacks: dict[Callable[[str], None], None] = {}

    def cached(self, topic: str) -> TopicRoute | None:
        """The last known route; never waits. The same object until the route changes."""
        return self._known.get(topic)

    def known(self, topic: str) -> TopicRoute | None:
        """What `route` would return without asking; None if it would ask."""
        return None if topic in self._suspect else self._known.get(topic)

    def changes(self) -> RouteChanges:
        """Subscribes to changes of any topic that this client has asked for, including deletion.

        Inside `with routes.changes() as changes`, `async for topics in changes` yields sets of
        names, endlessly.
        """
        return RouteChanges(self._listeners)

    @contextmanager
    def telling(self, callback: Callable[[str], None]) -> Iterator[None]:
        """Within this block, `callback` is called immediately, on the loop, with the name of each
        topic whose route changes. It must not block."""
        self._callbacks[callback] = None
        try:
            yield
        finally:
            del self._callbacks[callback]

    @property
    def is_silent(self) -> bool:
        """Whether the nameserver that was asked last did not answer."""
        return self._silent_since_s is not None

    def obstacles(self) -> list[str]:
        """That no nameserver answers, in a sentence, if that has been so for a second. Nobody knows
        before the first topic is asked for."""
        if self._silent_since_s is None:
            return []
        silent_s = self._clock.monotonic_s() - self._silent_since_s
        if silent_s < SILENT_S:
            return []
        return [f"no nameserver has answered for {silent_s:.0f} s: {self._silence}"]

    def _note_silence(self, error: errors.AerobeeError) -> None:
        self._silence = str(error)
        if self._silent_since_s is None:
            self._silent_since_s = self._clock.monotonic_s()

    async def changed(self, topic: str, since: TopicRoute | None) -> None:
        """Return once the known route of a topic is not the object `since`."""
        with self.changes() as changes:
            while self._known.get(topic) is since:
                await anext(changes)

    def invalidate(self, topic: str) -> None:
        """A broker contradicted the route: the next `route` asks a nameserver again."""
        self._suspect.add(topic)

    async def route(
        self, topic: str, *, create_missing: bool = False, timeout_ms: int = 3_000
    ) -> TopicRoute:
        """The route of a topic, from memory if it is known and was not invalidated.

        With `create_missing` the nameserver creates an unknown topic if its policy allows it.

        Raises:
            TopicNotFound: no such topic, and it was not to be created.
            IllegalName: no topic can have this name.
            Unreachable, RegistryUnavailable, DeadlineExceeded: no nameserver could answer and
                nothing is known.
        """
        known = self.known(topic)
        if known is not None:
            return known
        try:
            return await self.refresh(topic, create_missing=create_missing, timeout_ms=timeout_ms)
        except (errors.Unreachable, errors.RegistryUnavailable, errors.DeadlineExceeded):
            known = self._known.get(topic)
            if known is None:
                raise
            return known

    async def refresh(
        self, topic: str, *, create_missing: bool = False, timeout_ms: int = 3_000
    ) -> TopicRoute:
        """Asks the nameservers in turn, whatever is known. Concurrent calls share one question and
        its answer, and each waits for its own timeout.

        Raises: as `route`, even when an older route is known.
        """
        check_topic_name(topic)
        end_s = self._clock.monotonic_s() + timeout_ms / 1_000
        key = topic, create_missing
        while (query := self._queries.get(key)) is not None:
            left_s = end_s - self._clock.monotonic_s()
            await asyncio.wait((query,), timeout=max(0.0, left_s))
            if not query.done():
                raise errors.DeadlineExceeded(f"no nameserver said in time where {topic!r} is")
            outcome = query.result()
            if isinstance(outcome, errors.AerobeeError):
                # Each waiter gets its own exception: a traceback grows where an exception is
                # raised.
                raise copy.copy(outcome)
            if outcome is not None:
                return outcome
        query = self._queries[key] = SharedFuture()
        # A caller that gives up, or has less time than others, does not end the question for them.
        outcome = None
        try:
            left_ms = max(1, int((end_s - self._clock.monotonic_s()) * 1_000))
            outcome = await self._query(topic, create_missing, left_ms)
        except errors.AerobeeError as error:
            if self._clock.monotonic_s() < end_s - TIME_IS_OVER_S:
                outcome = error
            raise
        finally:
            del self._queries[key]
            query.set_result(outcome)
        return outcome

    async def planned(self, topic: str, *, timeout_ms: int) -> TopicRoute:
        """The route that a missing topic would get if a producer sent to it now, or its own if it
        is not missing. Nothing is created or remembered.

        Raises:
            TopicNotFound: it would not be created.
            NoBrokerAvailable, LimitReached: it could not be.
            IllegalName, Unreachable, RegistryUnavailable, DeadlineExceeded: as `route`.
        """
        request = nameserver_pb2.QueryRouteRequest(
            cluster=self._cluster, topics=[topic], plan_missing=True
        )
        response = await self._nameservers.call(QUERY_ROUTE, request, timeout_ms=timeout_ms)
        [answer] = response.routes
        if answer.status.code != common_pb2.OK:
            raise error_from_code(answer.status.code, answer.status.message)
        return TopicRoute.from_proto(answer)

    async def _query(self, topic: str, create_missing: bool, timeout_ms: int) -> TopicRoute:
        try:
            response = await self._nameservers.call(
                QUERY_ROUTE,
                nameserver_pb2.QueryRouteRequest(
                    cluster=self._cluster, topics=[topic], create_missing=create_missing
                ),
                timeout_ms=timeout_ms,
                attempt_max_ms=None if create_missing else ROUTE_ATTEMPT_MS,
            )
        except (errors.Unreachable, errors.DeadlineExceeded) as silence:
            self._note_silence(silence)
            raise
        finally:
            # Even if no nameserver answers: then the watch delivers the route as soon as one does.
            self._watch(topic)
        self._silent_since_s = None
        self._suspect.discard(topic)
        answer = response.routes[0]
        self._learn(topic, answer, response, is_watch_start=False)
        known = self._known.get(topic)
        if known is None:
            # An OK that is older than a deletion we know of counts as not found.
            code = answer.status.code
            error = error_from_code(
                common_pb2.TOPIC_NOT_FOUND if code == common_pb2.OK else code,
                answer.status.message or f"topic {topic!r} does not exist in {self._cluster!r}",
            )
            if isinstance(error, errors.Busy) and answer.status.retry_after_ms:
                error.retry_after_ms = answer.status.retry_after_ms
            raise error
        return known

    async def master(self, topic: str, broker_name: str, *, timeout_ms: int = 3_000) -> Endpoint:
        """The live master of a broker group that holds queues of the topic; waits for one.

        Raises:
            NoBrokerAvailable: none was elected within `timeout_ms`, or the topic has no queues in
                this group.
            AerobeeError: as `route`.
        """
        end_s = self._clock.monotonic_s() + timeout_ms / 1_000
        while True:
            left_ms = max(1, int((end_s - self._clock.monotonic_s()) * 1_000))
            route = await self.route(topic, timeout_ms=left_ms)
            endpoint = route.master(broker_name)
            if endpoint is not None:
                return endpoint
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0 or broker_name not in route.queues_by_broker:
                # Raises, and says what is known.
                route.master_address(broker_name)
            try:
                async with asyncio.timeout(min(left_s, MASTER_POLL_S)):
                    await self.changed(topic, route)
            except TimeoutError:
                self.invalidate(topic)

    @asynccontextmanager
    async def while_master(self, topic: str, endpoint: Endpoint) -> AsyncIterator[None]:
        """A block that is cancelled, and raises NotMaster, as soon as the route shows another
        master for the endpoint's group, or the same one under a newer epoch.

        A process that hangs or was cut off does not report by itself that it is no longer master.
        """
        loop = asyncio.get_running_loop()
        scope = asyncio.timeout(None)

        def look(changed_topic: str) -> None:
            is_ours = changed_topic == topic and not scope.expired()
            if is_ours and self._is_replaced(topic, endpoint):
                scope.reschedule(loop.time())

        try:
            async with scope:
                with self.telling(look):
                    look(topic)
                    yield
        except TimeoutError:
            if not scope.expired():
                raise
            raise errors.NotMaster(
                f"{endpoint.address} is no longer the master of {endpoint.broker_name}"
            ) from None

    def _is_replaced(self, topic: str, endpoint: Endpoint) -> bool:
        route = self._known.get(topic)
        master = None if route is None else route.master(endpoint.broker_name)
        if master is None:
            return False
        return master.address != endpoint.address or master.epoch > endpoint.epoch

    async def run(self) -> None:
        """Keeps the watch; never returns. The owner of this object runs it as a task."""
        failures = 0
        while True:
            await self._watch_wanted.wait()
            address = self._nameservers.address()
            try:
                if await self._follow(address):
                    failures = 0
            except errors.AerobeeError as error:
                log_event(
                    log,
                    "route watch ended",
                    level=logging.DEBUG,
                    nameserver=address,
                    reason=error,
                )
                self._note_silence(error)
            if self._watch_is_old:
                continue
            self._nameservers.pass_over(address)
            failures += 1
            await asyncio.sleep(WATCH_BACKOFF.delay_s(failures, self._chance))

    async def _follow(self, address: str) -> bool:
        """One watch stream from start to end; returns whether it delivered anything."""
        self._watch_is_old = False
        topics = sorted(list(self._watched)[-WATCHED_TOPICS_MAX:])
        stream = self._channels.open_server_stream(
            address,
            WATCH_ROUTES,
            nameserver_pb2.WatchRoutesRequest(cluster=self._cluster, topics=topics),
        )
        self._watch_stream = stream
        first = True
        try:
            while (response := await stream.read()) is not None:
                self._silent_since_s = None
                for topic, route in _named(topics, response):
                    self._learn(topic, route, response, is_watch_start=first)
                first = False
        except errors.AerobeeError:
            if first:
                raise
        finally:
            self._watch_stream = None
            stream.cancel()
        return not first

    def _learn(
        self,
        topic: str,
        answer: nameserver_pb2.TopicRoute,
        response: nameserver_pb2.QueryRouteResponse,
        *,
        is_watch_start: bool,
    ) -> bool:
        """Whether the answer was at least as new as what was known."""
        is_older = response.version < self._versions.get(topic, 0)
        if is_older and (response.stale or not is_watch_start):
            return False
        self._versions[topic] = response.version
        known = self._known.get(topic)
        is_newest = True
        if answer.status.code == common_pb2.OK:
            answered = TopicRoute.from_proto(answer)
            route = self._epochs.pass_on(answered)
            is_newest = route is answered
            if known == route:
                return is_newest
            self._known[topic] = route
        elif known is None or response.stale:
            return True
        else:
            del self._known[topic]
        for listener in self._listeners:
            listener._notify(topic)
        for callback in list(self._callbacks):
            callback(topic)
        return is_newest

    def _watch(self, topic: str) -> None:
        if topic in self._watched:
            return
        self._watched[topic] = None
        self._watch_wanted.set()
        stream = self._watch_stream
        if stream is not None and not self._watch_is_old:
            self._watch_is_old = True
            asyncio.get_running_loop().call_later(WATCH_RESTART_DELAY_S, stream.cancel)


def _named(
    topics: Sequence[str], response: nameserver_pb2.QueryRouteResponse
) -> list[tuple[str, nameserver_pb2.TopicRoute]]:
    """Routes with their topics' names; an answer "not found" may lack the name, and answers keep
    the order asked."""
    in_order = len(response.routes) == len(topics)
    return [
        (route.topic.name or topics[index], route)
        for index, route in enumerate(response.routes)
        if route.topic.name or in_order
    ]
