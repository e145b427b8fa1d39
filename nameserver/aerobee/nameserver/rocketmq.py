"""What official clients' calls need from a nameserver: it has routes, and brokers do the rest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import DESCRIBE_GROUP
from aerobee.cluster_view.route import TopicRoute
from aerobee.domain.names import is_retry_topic
from aerobee.nameserver import convert
from aerobee.nameserver.route_cache import RouteCache
from aerobee.rocketmq_api.rules.group_rules import GroupRules
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, GroupNotFound, NoBrokerAvailable, TopicNotFound
from aerobee.v1 import broker_pb2

RULES_KEPT_S: Final = 10.0
RULES_KEPT_MAX: Final = 1_024
_ASK_TIMEOUT_MS: Final = 1_000


class KnownRoutes:
    """All topics, as the cache has them now."""

    def __init__(self, cluster: str, cache: RouteCache) -> None:
        self._cluster = cluster
        self._cache = cache

    async def route(self, topic: str) -> TopicRoute:
        """Raises TopicNotFound, RegistryUnavailable."""
        table = self._cache.table
        if topic not in table.topics and not is_retry_topic(topic):
            raise TopicNotFound(f"there is no topic {topic!r}; create it, or check the spelling")
        return TopicRoute.from_proto(convert.topic_route(self._cluster, table, topic, None))

    def known(self, topic: str) -> TopicRoute | None:
        """Calls to a nameserver are not urgent enough to skip the full path."""
        return None

    def invalidate(self, topic: str) -> None:
        """etcd reports changes; asking would give nothing newer."""

    def telling(self, callback: Callable[[str], None]) -> AbstractContextManager[None]:
        """A change does not say which topics it concerns."""
        return self._cache.changed.subscribed(lambda: callback(""))


class AskedGroups:
    """The rules of groups, as one master gives them: a change goes to all masters."""

    def __init__(self, cache: RouteCache, channels: Channels, clock: Clock) -> None:
        self._cache = cache
        self._channels = channels
        self._clock = clock
        self._kept: dict[str, tuple[GroupRules, float]] = {}
        """With the time until which they are kept; all members of a group ask every 30 s."""

    async def rules(self, group: str) -> GroupRules:
        """At most `RULES_KEPT_S` old. Raises NoBrokerAvailable."""
        now_s = self._clock.monotonic_s()
        rules, until_s = self._kept.get(group, (GroupRules(), 0.0))
        if now_s < until_s:
            return rules
        rules = await self._asked(group)
        if len(self._kept) >= RULES_KEPT_MAX:
            self._kept.clear()
        self._kept[group] = (rules, now_s + RULES_KEPT_S)
        return rules

    async def _asked(self, group: str) -> GroupRules:
        table = self._cache.table
        request = broker_pb2.DescribeGroupRequest(group=group)
        for record in table.brokers.values():
            if not table.is_master(record):
                continue
            try:
                answer = await self._channels.call(
                    record.address, DESCRIBE_GROUP, request, timeout_ms=_ASK_TIMEOUT_MS
                )
            except GroupNotFound:
                return GroupRules()
            except AerobeeError:
                continue  # another may answer
            return _rules(answer.retry)
        raise NoBrokerAvailable(
            f"no broker answered with the settings of group {group}: try again, or see `aerobee "
            "cluster show`"
        )


def _rules(told: broker_pb2.RetrySettings) -> GroupRules:
    growing = told.exponential
    return GroupRules.told(
        is_ordered=told.ordered,
        retries_max=told.retries_max,
        growing=(growing.initial_ms, growing.max_ms, growing.multiplier)
        if told.HasField("exponential")
        else None,
        steps_ms=told.steps.delays_ms,
    )
