"""What official clients' calls need of a nameserver: it has routes, and brokers do the rest."""

from __future__ import annotations

from aerobee.cluster_view.route import TopicRoute
from aerobee.nameserver import convert
from aerobee.nameserver.route_cache import RouteCache
from aerobee.runtime.errors import TopicNotFound
from aerobee.runtime.names import is_retry_topic


class KnownRoutes:
    """Of all topics, as the cache has them now."""

    def __init__(self, cluster: str, cache: RouteCache) -> None:
        self._cluster = cluster
        self._cache = cache

    async def route(self, topic: str) -> TopicRoute:
        """Raises TopicNotFound, RegistryUnavailable."""
        table = self._cache.table
        if topic not in table.topics and not is_retry_topic(topic):
            raise TopicNotFound(f"there is no topic {topic!r}; create it, or check the spelling")
        return TopicRoute.from_proto(convert.topic_route(self._cluster, table, topic, None))

    def invalidate(self, topic: str) -> None:
        """etcd tells of changes; nothing is known better by asking."""
