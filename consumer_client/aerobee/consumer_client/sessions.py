"""One consumer's sessions with all brokers that have queues of its topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from aerobee.client_core.cluster import ClusterConnection
from aerobee.consumer_client.background_tasks import BackgroundTasks, wait_event
from aerobee.consumer_client.group_route import GroupRoute
from aerobee.consumer_client.group_session import GroupSession
from aerobee.consumer_client.membership import Identity, SessionEvents
from aerobee.consumer_client.options import ConsumerConfig

LOOK_AGAIN_S = 0.2
"""How often a caller waiting for sessions checks whether masters are still there."""


class Sessions:
    """Group sessions by broker name, each with its task."""

    def __init__(
        self,
        connection: ClusterConnection,
        identity: Identity,
        events: SessionEvents,
        *,
        options: ConsumerConfig,
        tasks: BackgroundTasks,
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._events = events
        self._options = options
        self._tasks = tasks
        self._sessions: dict[str, tuple[GroupSession, GroupRoute, asyncio.Task[None]]] = {}
        self._is_closed = False
        self._news = asyncio.Event()

    def get(self, broker_name: str) -> GroupSession | None:
        known = self._sessions.get(broker_name)
        return None if known is None else known[0]

    @property
    def broker_names(self) -> list[str]:
        return sorted(self._sessions)

    def on_joined(self) -> None:
        """A broker counts this member in: wakes what waits for that."""
        self._news.set()

    async def joined(self, broker_names: Iterable[str]) -> None:
        """Return once this member is counted in by each of these brokers that has a master."""
        names = set(broker_names)
        while not all(self._is_in(name) for name in names):
            self._news.clear()
            await wait_event(self._news, LOOK_AGAIN_S)

    def _is_in(self, broker_name: str) -> bool:
        known = self._sessions.get(broker_name)
        if known is None:
            return self._is_closed
        session, route, _ = known
        return session.is_joined or route.master() is None

    def obstacles(self) -> list[str]:
        """Why brokers do not count this member in, one sentence for each."""
        return [
            route.obstacle()
            for _, (session, route, _) in sorted(self._sessions.items())
            if not session.is_joined
        ]

    def open(self, brokers: Mapping[str, str]) -> None:
        """Have a session with each of these brokers: name -> a topic with queues there."""
        for broker_name, topic in brokers.items():
            if broker_name in self._sessions or self._is_closed:
                continue
            route = GroupRoute(self._connection.routes, topic, broker_name)
            session = GroupSession(
                route,
                self._identity,
                self._events,
                channels=self._connection.channels,
                clock=self._connection.clock,
                chance=self._connection.random,
                backoff=self._options.backoff,
            )
            task = self._tasks.create_task(session.run(), name=f"group-session:{broker_name}")
            self._sessions[broker_name] = session, route, task

    async def close(self, broker_name: str, *, timeout_s: float = 2.0) -> None:
        """Leave a broker, taking at most `timeout_s`."""
        known = self._sessions.pop(broker_name, None)
        if known is None:
            return
        session, _, task = known
        session.leave()
        await asyncio.wait([task], timeout=timeout_s)
        task.cancel()

    async def close_all(self, *, timeout_s: float = 2.0) -> None:
        """Leave all brokers at the same time; none is joined again."""
        self._is_closed = True
        async with asyncio.TaskGroup() as tasks:
            for broker_name in self.broker_names:
                tasks.create_task(
                    self.close(broker_name, timeout_s=timeout_s), name=f"leave:{broker_name}"
                )
