"""Every member reads every queue and keeps its own offsets (broadcasting).

Owns: following the routes. No leases and no sharing; the member still joins the group at each
broker, so that operators see it and a second live process with the same client id, which would
write the same offset file, is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.route import MessageQueue, TopicRoute
from aerobee.consumer_client.background_tasks import BackgroundTasks, keep_in_step
from aerobee.consumer_client.committing import OffsetStore
from aerobee.consumer_client.consumption import Consumption
from aerobee.consumer_client.lease_table import HeldQueue
from aerobee.consumer_client.membership import Grant, Identity, Member
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.consumer_client.owned_queue import Assignment, Unleased
from aerobee.consumer_client.sessions import Sessions
from aerobee.runtime import errors


class Broadcasting:
    """Keeps all queues of the subscribed topics owned."""

    def __init__(
        self,
        connection: ClusterConnection,
        consumption: Consumption,
        identity: Identity,
        store: OffsetStore,
        *,
        options: ConsumerConfig,
        tasks: BackgroundTasks,
    ) -> None:
        self._routes = connection.routes
        self._consumption = consumption
        self._subscriptions = dict(identity.subscriptions)
        self._store = store
        self._options = options
        self._deleted_at_ms: dict[str, int] = {}
        """By topic, when one of its name had been deleted last when its queues were taken."""
        self.sessions = Sessions(connection, identity, self, options=options, tasks=tasks)

    async def run(self) -> None:
        """Take queues as they appear in routes; never returns.

        Raises:
            InvalidArgument: the local offsets cannot be read.
        """
        await keep_in_step(
            self._follow_all,
            changed=asyncio.Event(),
            routes=self._routes,
            topics=self._subscriptions,
            interval_ms=self._options.rebalance_interval_ms,
        )

    def missing(self) -> list[str]:
        """What this member is still to get, in sentences."""
        found = self.sessions.obstacles()
        for topic in sorted(self._subscriptions):
            route = self._routes.cached(topic)
            queues = () if route is None else route.readable_queues
            late = sum(self._consumption.owned(queue) is None for queue in queues)
            if late:
                found.append(f"{late} of the {len(queues)} queues of {topic} are not read yet")
        return found

    async def close(self) -> None:
        """Stop all queues, commit their offsets, and leave the group."""
        self._consumption.begin_close()
        async with asyncio.TaskGroup() as tasks:
            for queue in self._consumption.queues:
                tasks.create_task(self._consumption.stop(queue), name=f"stop:{queue}")
        await self.sessions.close_all()

    async def _follow_all(self) -> None:
        for topic in sorted(self._subscriptions):
            await self._follow(topic)

    async def _follow(self, topic: str) -> None:
        try:
            route: TopicRoute | None = await self._routes.route(
                topic, timeout_ms=self._options.request_timeout_ms
            )
        except errors.TopicNotFound:
            route = None
        except errors.AerobeeError:
            return
        queues: Sequence[MessageQueue] = ()
        is_new = False
        if route is not None:
            queues = route.readable_queues
            is_new = route.deleted_at_ms > self._deleted_at_ms.setdefault(
                topic, route.deleted_at_ms
            )
            self._deleted_at_ms[topic] = max(route.deleted_at_ms, self._deleted_at_ms[topic])
            self.sessions.open(dict.fromkeys(route.queues_by_broker, topic))
        for queue in self._consumption.queues:
            if queue.topic == topic and (is_new or queue not in queues):
                await self._consumption.stop(queue)
        fresh = [queue for queue in queues if not self._consumption.has(queue)]
        committed = await self._store.read(fresh) if fresh else {}
        for queue in fresh:
            assignment = Assignment(queue, self._subscriptions[topic], 0, Unleased())
            self._consumption.take(assignment, committed.get(queue))

    # -------------------------------------------------------------------------- sessions' news

    def on_joined(self, broker_name: str) -> None:
        """Offsets are local: they cannot be lost with a broker."""
        self.sessions.on_joined()

    def on_members(self, broker_name: str, members: Sequence[Member]) -> None:
        """Queues are not shared here."""

    def on_granted(self, broker_name: str, grant: Grant) -> None:
        raise AssertionError("a broadcasting member asks for no lease")

    def on_lost(self, broker_name: str, held: HeldQueue, reason: str) -> None:
        raise AssertionError("a broadcasting member holds no lease")

    def on_group_deleted(self, broker_name: str) -> None:
        """Offsets are local: they stay."""
