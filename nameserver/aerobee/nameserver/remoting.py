"""What remoting clients ask a nameserver: where topics are. It listens on the ports of gRPC."""

from __future__ import annotations

from aerobee.access.node import NodeAccess
from aerobee.access.running import topics_listed
from aerobee.nameserver.config import NameserverConfig
from aerobee.nameserver.rocketmq import KnownRoutes
from aerobee.nameserver.route_cache import RouteCache
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.remoting_core.server import RemotingServer
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting import json_bodies
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.rocketmq_remoting.dispatch import Dispatch, LoggedLimits, Serve, log_bug
from aerobee.rocketmq_remoting.guarding import guarded, peer_of
from aerobee.rocketmq_remoting.needs import remoting_needs
from aerobee.rocketmq_remoting.routes import replica_set_object, route_body, told_id
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.outside import OUTSIDE
from aerobee.runtime.clock import Clock


class RemotingRoutes:
    """On the loop."""

    def __init__(self, cluster: str, routes: KnownRoutes, cache: RouteCache) -> None:
        self._cluster = cluster
        self._cache = cache
        self._routes = routes

    async def route(self, connection: Connection, request: Command) -> Command:
        """Code 105. Raises TopicNotFound, RegistryUnavailable, InvalidArgument."""
        route = await self._routes.route(read.text(request.fields, "topic"))
        is_outside = connection.listener == OUTSIDE
        return request.answer(body=route_body(route, self._cluster, is_outside=is_outside))

    def brokers(self, connection: Connection, request: Command) -> Command:
        """Code 106: the live brokers. Raises RegistryUnavailable."""
        table, is_outside = self._cache.table, connection.listener == OUTSIDE
        found = {}
        for name, replicas in sorted(table.live_by_replica_set().items()):
            masters = (id for id, each in replicas.items() if table.is_master(each))
            master_id = next(masters, None)
            addresses = {
                told_id(broker_id, master_id): (
                    (is_outside and each.outside_address) or each.address
                )
                for broker_id, each in replicas.items()
            }
            found[name] = replica_set_object(name, self._cluster, addresses)
        body = {"brokerAddrTable": found, "clusterAddrTable": {self._cluster: list(found)}}
        return request.answer(body=json_bodies.write(body))

    def topics(self, connection: Connection, request: Command) -> Command:
        """Code 206. Raises RegistryUnavailable."""
        listed = sorted(filter(topics_listed(), self._cache.table.topics))
        return request.answer(body=json_bodies.write({"topicList": listed}))


def remoting_server(
    config: NameserverConfig,
    cache: RouteCache,
    memory: MemoryBudget,
    access: NodeAccess,
    clock: Clock,
) -> RemotingServer | None:
    """None: it is off."""
    if not config.remoting.enabled:
        return None
    answers = RemotingRoutes(config.cluster, KnownRoutes(config.cluster, cache), cache)
    table: dict[int, Serve] = {
        Ask.GET_ROUTEINFO_BY_TOPIC: answers.route,
        Ask.GET_BROKER_CLUSTER_INFO: answers.brokers,
        Ask.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: answers.topics,
    }
    return RemotingServer(
        Dispatch(
            guarded(table, remoting_needs(config.cluster), access),
            on_closed=lambda connection: access.quotas.disconnected(peer_of(connection)),
        ),
        LoggedLimits(),
        now=clock.monotonic_s,
        on_bug=log_bug,
        memory_bytes_max=memory.remoting_bytes,
    )
