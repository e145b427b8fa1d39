"""Broker groups that an operator closes, reopens, or removes from the cluster.

A closed group takes no new messages: routes mark it, so producers send elsewhere, and its brokers
refuse whatever still comes. It is read to its end and finishes its work: delays, retries,
transactions. Removing a group first takes its queues out of all topics, so that a call that fails
midway can be repeated.
"""

from __future__ import annotations

from aerobee.nameserver.replica_sets import ReplicaSets
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.stored import ReplicaSet, SetState
from aerobee.nameserver.topics import Topics
from aerobee.runtime.errors import InvalidArgument

_NAMED_MAX = 3


class BrokerGroups:
    """The broker groups of one cluster."""

    def __init__(
        self, replica_sets: ReplicaSets, topics: Topics, cache: RouteCache, *, timeout_s: float
    ) -> None:
        """`timeout_s`: how long an answer waits for this nameserver's routes to show the change."""
        self._replica_sets = replica_sets
        self._topics = topics
        self._cache = cache
        self._timeout_s = timeout_s

    async def close(self, broker_name: str) -> ReplicaSet:
        """Raises GroupNotFound, InvalidArgument, RegistryUnavailable."""
        self._check_others(broker_name)
        return await self._set(broker_name, SetState.CLOSED, {SetState.OPEN})

    async def open(self, broker_name: str) -> ReplicaSet:
        """Raises GroupNotFound, InvalidArgument, RegistryUnavailable."""
        return await self._set(broker_name, SetState.OPEN, {SetState.CLOSED})

    async def remove(self, broker_name: str) -> int:
        """Remove the group; returns how many topics had queues there.

        Raises GroupNotFound, InvalidArgument, RegistryUnavailable.
        """
        replica_set = (await self._replica_sets.view(broker_name)).replica_set
        if replica_set is not None and replica_set.state is SetState.OPEN:
            raise InvalidArgument(
                f"broker group {broker_name!r} is open: close it, wait until nothing remains, and "
                "then remove it"
            )
        topics = self._cache.table.topics.values()
        names = [each.name for each in topics if broker_name in each.queues_by_broker]
        for name in names:
            await self._topics.take_queues(name, broker_name)
        await self._set(broker_name, SetState.REMOVED, {SetState.CLOSED})
        return len(names)

    async def _set(self, broker_name: str, state: SetState, may_be: set[SetState]) -> ReplicaSet:
        replica_set = await self._replica_sets.set_state(broker_name, state, may_be=may_be)
        await self._cache.wait_version(replica_set.revision, self._timeout_s)
        return replica_set

    def _check_others(self, broker_name: str) -> None:
        """A topic whose queues are all closed could not take messages."""
        table = self._cache.table
        stranded = [
            topic.name
            for topic in table.topics.values()
            if broker_name in topic.queues_by_broker
            and not any(
                table.is_open(each) and each not in topic.retired
                for each in topic.queues_by_broker
                if each != broker_name
            )
        ]
        if stranded:
            more = len(stranded) - _NAMED_MAX
            named = ", ".join(sorted(stranded)[:_NAMED_MAX]) + (f" and {more} more" * (more > 0))
            raise InvalidArgument(
                f"{named} would have no queue that takes messages: first give each of them queues "
                "on another group, with `aerobee topic update TOPIC --queues N`"
            )
