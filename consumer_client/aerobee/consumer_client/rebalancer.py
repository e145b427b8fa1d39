"""Which queues belong to this member, and how it gets them: request, start, stop, give back
(clustering).

Owns: the list of requested queues. It follows from the members of the group, the routes and the
strategy; leases then decide what is really owned. A topic's members are taken from the first
reachable broker in name order, so that all members compute from one view.
Invariants: a queue is released only after its listeners have ended and its offset is committed, or
after it was lost; a topic whose members are unknown keeps the queues it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.route import MessageQueue, TopicRoute
from aerobee.cluster_view.succession import AGAIN_S, Succession
from aerobee.consumer_client.background_tasks import BackgroundTasks, keep_in_step
from aerobee.consumer_client.consumption import Consumption
from aerobee.consumer_client.lease_table import HeldQueue, QueueKey
from aerobee.consumer_client.membership import Grant, Identity, Member
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.consumer_client.owned_queue import Assignment
from aerobee.consumer_client.sessions import Sessions
from aerobee.consumer_client.strategies import Averagely, RebalanceStrategy
from aerobee.domain.names import is_retry_topic
from aerobee.runtime import errors
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

NAMED_MAX = 3
"""Members that a sentence names."""


class Rebalancer:
    """Keeps what is owned in line with members and routes."""

    def __init__(
        self,
        connection: ClusterConnection,
        consumption: Consumption,
        identity: Identity,
        strategy: RebalanceStrategy,
        *,
        options: ConsumerConfig,
        tasks: BackgroundTasks,
    ) -> None:
        self._routes = connection.routes
        self._consumption = consumption
        self._group = identity.group
        self._client_id = identity.client_id
        self._subscriptions = dict(identity.subscriptions)
        self._strategy = strategy
        self._options = options
        self._tasks = tasks
        self.sessions = Sessions(connection, identity, self, options=options, tasks=tasks)
        self._members: dict[str, Sequence[Member]] = {}
        self._wanted: set[MessageQueue] = set()
        self._releasing: set[MessageQueue] = set()
        self._succession = Succession(connection.channels, connection.clock)
        self._unfinished: Mapping[MessageQueue, MessageQueue] = {}
        """Queues that the group does not read yet, and what it has to finish first."""
        self._looks_again: asyncio.TimerHandle | None = None
        self._shared: set[str] = set()
        """Topics of which this member knows its share."""
        self._changed = asyncio.Event()
        self._is_closing = False
        self.queues_lost = 0

    def __repr__(self) -> str:
        return f"Rebalancer(wanted={len(self._wanted)}, releasing={len(self._releasing)})"

    @property
    def member_ids(self) -> list[str]:
        """All members known to the brokers, as far as these can be reached."""
        found: set[str] = set()
        for broker_name, view in self._members.items():
            session = self.sessions.get(broker_name)
            if session is not None and session.is_joined:
                found.update(member.client_id for member in view)
        return sorted(found)

    def obstacles(self) -> list[str]:
        """What prevents delivery now, in sentences."""
        found = self.sessions.obstacles()
        for topic in sorted(self._subscriptions):
            route = self._routes.cached(topic)
            if route is None or is_retry_topic(topic):
                continue
            others = [
                each for each in self._members_of(topic, route) or () if each != self._client_id
            ]
            if others and (held := self._held_elsewhere(topic)):
                names = ", ".join(others[:NAMED_MAX])
                more = f" and {len(others) - NAMED_MAX} more" if len(others) > NAMED_MAX else ""
                found.append(f"{held} by other members of group {self._group!r}: {names}{more}")
        for successor, queue in sorted(self._unfinished.items())[:NAMED_MAX]:
            found.append(f"{successor} is read once group {self._group!r} has finished {queue}")
        return found

    def missing(self) -> list[str]:
        """What this member is still to get, in sentences; empty if it has its share of the queues,
        which may be none."""
        found = self.sessions.obstacles()
        found += [
            f"the queues of {topic} are not shared out yet"
            for topic in sorted(self._subscriptions)
            if topic not in self._shared and not is_retry_topic(topic)
        ]
        wanted = [queue for queue in sorted(self._wanted) if not is_retry_topic(queue.topic)]
        late = [queue for queue in wanted if self._consumption.owned(queue) is None]
        if late:
            found.append(
                f"{len(late)} of {len(wanted)} queues are not this member's yet, the first is "
                f"{late[0]}"
            )
        return found

    def _held_elsewhere(self, topic: str) -> str:
        """How the sentence about a topic begins; empty if this member has its share."""
        mine = [queue for queue in self._wanted if queue.topic == topic]
        missing = sum(not self._consumption.has(queue) for queue in mine)
        if not mine:
            return f"all queues of {topic} are read"
        if not missing:
            return ""
        timeout_s = self._options.session_timeout_ms / 1_000
        return (
            f"{missing} of the {len(mine)} queues of {topic} that this member is to read are still "
            f"held, for up to a session timeout ({timeout_s:g} s) if their member has died,"
        )

    async def run(self) -> None:
        """Rebalance at every change, and at intervals; never returns."""
        await keep_in_step(
            self._rebalance,
            changed=self._changed,
            routes=self._routes,
            topics=self._subscriptions,
            interval_ms=self._options.rebalance_interval_ms,
        )

    async def close(self) -> None:
        """Give back all queues, commit their offsets, and leave the group."""
        self._is_closing = True
        self._consumption.begin_close()
        async with asyncio.TaskGroup() as tasks:
            for queue in self._consumption.queues:
                if queue not in self._releasing:
                    tasks.create_task(self._release(queue), name=f"release:{queue}")
        while self._releasing:
            self._changed.clear()
            await self._changed.wait()
        await self.sessions.close_all()

    # -------------------------------------------------------------------------- sessions' news

    def on_joined(self, broker_name: str) -> None:
        self.sessions.on_joined()
        self._consumption.on_confirmed(broker_name)

    def on_members(self, broker_name: str, members: Sequence[Member]) -> None:
        self._members[broker_name] = members
        self._changed.set()

    def on_granted(self, broker_name: str, grant: Grant) -> None:
        queue = MessageQueue(grant.key.topic, broker_name, grant.key.queue_id)
        session = self.sessions.get(broker_name)
        if self._is_closing or session is None or queue in self._releasing:
            # The release in progress returns this grant too.
            return
        assignment = Assignment(
            queue,
            self._subscriptions[queue.topic],
            grant.epoch,
            session,
            grant.tried_offset,
            grant.attempts,
        )
        self._consumption.take(assignment, grant.committed_offset)

    def on_lost(self, broker_name: str, held: HeldQueue, reason: str) -> None:
        queue = MessageQueue(held.key.topic, broker_name, held.key.queue_id)
        self._consumption.drop(queue)
        self.queues_lost += 1
        log_event(
            log,
            "queue lost",
            level=logging.WARNING,
            group=self._group,
            queue=queue,
            lease_epoch=held.epoch,
            reason=reason,
        )
        self._changed.set()

    def on_group_deleted(self, broker_name: str) -> None:
        self._consumption.on_group_deleted(broker_name, self._subscriptions)

    # ------------------------------------------------------------------------------ rebalancing

    async def _rebalance(self) -> None:
        routes = {topic: await self._route(topic) for topic in sorted(self._subscriptions)}
        waiting = await self._waiting(routes)
        if self._is_closing:
            return
        self._open_sessions(routes)
        target: set[MessageQueue] = set()
        for topic, route in routes.items():
            share = self._share(topic, route, waiting)
            self._shared.discard(topic)
            if share is not None:
                self._shared.add(topic)
            else:
                share = {queue for queue in self._wanted if queue.topic == topic}
            target |= share
        for queue in sorted(self._wanted - target - self._releasing):
            self._give_up(queue)
        for queue in sorted(target - self._wanted - self._releasing):
            self._ask_for(queue)
        await self._close_sessions(routes)

    async def _route(self, topic: str) -> TopicRoute | None:
        """The topic's route; None if it has none (any more) or it is unknown."""
        try:
            return await self._routes.route(topic, timeout_ms=self._options.request_timeout_ms)
        except errors.AerobeeError as error:
            log_event(
                log, "no route", level=logging.DEBUG, group=self._group, topic=topic, reason=error
            )
            return self._routes.cached(topic)

    async def _waiting(
        self, routes: Mapping[str, TopicRoute | None]
    ) -> Mapping[MessageQueue, MessageQueue]:
        """Queues that the group does not read yet; this member looks again soon."""
        found: dict[MessageQueue, MessageQueue] = {}
        for route in routes.values():
            if route is not None:
                found.update(await self._succession.waiting(route, self._group))
        self._unfinished = found
        if self._looks_again is not None:
            self._looks_again.cancel()
            self._looks_again = None
        if found:
            loop = asyncio.get_running_loop()
            self._looks_again = loop.call_later(AGAIN_S, self._changed.set)
        return found

    def _open_sessions(self, routes: Mapping[str, TopicRoute | None]) -> None:
        self.sessions.open(
            {
                broker_name: topic
                for topic, route in routes.items()
                if route is not None
                for broker_name in route.queues_by_broker
            }
        )

    async def _close_sessions(self, routes: Mapping[str, TopicRoute | None]) -> None:
        """Leave brokers that have no queues of ours and appear in no route (any more)."""
        needed = {
            broker_name
            for route in routes.values()
            if route is not None
            for broker_name in route.queues_by_broker
        }
        needed |= {queue.broker_name for queue in self._wanted | self._releasing}
        for broker_name in self.sessions.broker_names:
            if broker_name not in needed:
                await self.sessions.close(broker_name)
                self._members.pop(broker_name, None)

    def _share(
        self,
        topic: str,
        route: TopicRoute | None,
        waiting: Collection[MessageQueue],
    ) -> set[MessageQueue] | None:
        """This member's queues of a topic; None while they cannot be determined."""
        if route is None:
            return set()
        members = self._members_of(topic, route)
        if members is None or self._client_id not in members:
            return None
        # Rooms and lists apply to the user's topics; failed messages must be read whatever these
        # say.
        strategy = Averagely() if is_retry_topic(topic) else self._strategy
        queues = [queue for queue in route.readable_queues if queue not in waiting]
        return set(strategy.allocate(queues, members, self._client_id))

    def _members_of(self, topic: str, route: TopicRoute) -> list[str] | None:
        for broker_name in sorted(route.queues_by_broker):
            session = self.sessions.get(broker_name)
            view = self._members.get(broker_name)
            if session is not None and session.is_joined and view is not None:
                return sorted(member.client_id for member in view if topic in member.topics)
        return None

    def _ask_for(self, queue: MessageQueue) -> None:
        session = self.sessions.get(queue.broker_name)
        if session is not None:
            self._wanted.add(queue)
            session.acquire(QueueKey(queue.topic, queue.queue_id))

    def _give_up(self, queue: MessageQueue) -> None:
        if self._consumption.has(queue):
            self._releasing.add(queue)
            self._tasks.create_task(self._release(queue), name=f"release:{queue}")
        else:
            self._give_back(queue)

    async def _release(self, queue: MessageQueue) -> None:
        self._releasing.add(queue)
        try:
            await self._consumption.stop(queue)
        finally:
            self._releasing.discard(queue)
            self._give_back(queue)
            self._changed.set()

    def _give_back(self, queue: MessageQueue) -> None:
        self._wanted.discard(queue)
        session = self.sessions.get(queue.broker_name)
        if session is not None:
            session.release(QueueKey(queue.topic, queue.queue_id))
