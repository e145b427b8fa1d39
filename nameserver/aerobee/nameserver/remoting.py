"""What remoting clients ask a nameserver: where topics are. It listens on the ports of gRPC."""

from __future__ import annotations

from aerobee.access.node import NodeAccess
from aerobee.nameserver.config import NameserverConfig
from aerobee.nameserver.rocketmq import KnownRoutes
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.remoting_core.server import RemotingServer
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.rocketmq_remoting.dispatch import Dispatch, LoggedLimits, log_bug
from aerobee.rocketmq_remoting.guarding import guarded, peer_of
from aerobee.rocketmq_remoting.needs import remoting_needs
from aerobee.rocketmq_remoting.routes import route_body
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.outside import OUTSIDE
from aerobee.runtime.clock import Clock


class RemotingRoutes:
    """On the loop."""

    def __init__(self, cluster: str, routes: KnownRoutes) -> None:
        self._cluster = cluster
        self._routes = routes

    async def route(self, connection: Connection, request: Command) -> Command:
        """Code 105. Raises TopicNotFound, RegistryUnavailable, InvalidArgument."""
        route = await self._routes.route(read.text(request.fields, "topic"))
        is_outside = connection.listener == OUTSIDE
        return request.answer(body=route_body(route, self._cluster, is_outside=is_outside))


def remoting_server(
    config: NameserverConfig,
    routes: KnownRoutes,
    memory: MemoryBudget,
    access: NodeAccess,
    clock: Clock,
) -> RemotingServer | None:
    """None: it is off."""
    if not config.remoting.enabled:
        return None
    answers = RemotingRoutes(config.cluster, routes)
    return RemotingServer(
        Dispatch(
            guarded(
                {Ask.GET_ROUTEINFO_BY_TOPIC: answers.route}, remoting_needs(config.cluster), access
            ),
            on_closed=lambda connection: access.quotas.disconnected(peer_of(connection)),
        ),
        LoggedLimits(),
        now=clock.monotonic_s,
        on_bug=log_bug,
        memory_bytes_max=memory.remoting_bytes,
    )
