"""What remoting clients ask a nameserver: where topics are, and where new ones may begin.

RocketMQ's tools also change the cluster by it. It listens on the ports of gRPC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from aerobee.access.node import NodeAccess
from aerobee.access.running import topics_listed
from aerobee.domain.names import is_retry_topic
from aerobee.nameserver.broker_groups import BrokerGroups
from aerobee.nameserver.config import NameserverConfig
from aerobee.nameserver.remoting_users import RemotingUserChanges
from aerobee.nameserver.rocketmq import KnownRoutes
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.service import NameserverService
from aerobee.nameserver.users import Users
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.remoting_core.server import RemotingServer
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting import json_bodies
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.rocketmq_remoting.dispatch import Dispatch, LoggedLimits, Serve, log_bug
from aerobee.rocketmq_remoting.guarding import guarded, peer_of
from aerobee.rocketmq_remoting.needs import remoting_needs
from aerobee.rocketmq_remoting.routes import (
    DEFAULT_TOPIC,
    replica_set_object,
    reply_topic,
    route_body,
    told_id,
)
from aerobee.rocketmq_remoting.users import RemotingUsers
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.outside import OUTSIDE
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import TopicNotFound

_PERM: Final = 7
"""To read, to write, and to be the model of new topics."""
_QUEUES_NAMED: Final = 1
"""Of the routes that names of the cluster and of broker groups have."""


class RemotingRoutes:
    """On the loop."""

    def __init__(
        self,
        config: NameserverConfig,
        cache: RouteCache,
        service: NameserverService,
        broker_groups: BrokerGroups,
    ) -> None:
        """The last two make changes."""
        self._cluster = config.cluster
        self._policy = config.topics
        self._cache = cache
        self._service = service
        self._broker_groups = broker_groups
        self._routes = KnownRoutes(config.cluster, cache)

    async def route(self, connection: Connection, request: Command) -> Command:
        """Code 105. Raises TopicNotFound, RegistryUnavailable, InvalidArgument."""
        topic, is_outside = read.text(request.fields, "topic"), connection.listener == OUTSIDE
        if topic == DEFAULT_TOPIC:
            if not self._policy.auto_create:
                raise TopicNotFound("topics are not created by sending to them here")
            queues = self._policy.default_queues_per_group
            return request.answer(body=self._everywhere(queues, is_outside=is_outside))
        if topic == reply_topic(self._cluster):
            return request.answer(body=self._everywhere(1, is_outside=is_outside))
        if topic not in self._cache.table.topics:
            named = self._named(topic, is_outside=is_outside)
            if named:
                return request.answer(body=_to_each(named, _QUEUES_NAMED))
        route = await self._routes.route(topic)
        return request.answer(body=route_body(route, self._cluster, is_outside=is_outside))

    def _everywhere(self, queues: int, *, is_outside: bool) -> bytes:
        """The route of a name that is no topic, but leads to each open broker."""
        found, table = self._replica_sets(is_outside=is_outside), self._cache.table
        return _to_each([found[name] for name in found if table.is_open(name)], queues)

    def _named(self, name: str, *, is_outside: bool) -> list[dict[str, Any]]:
        """The live brokers that a name means which is no topic: the cluster's is all of them, a
        broker group's is that group. Tools give such a name where they create topics, and ask for
        its route to learn who is there."""
        found = self._replica_sets(is_outside=is_outside)
        if name == self._cluster:
            return list(found.values())
        return [found[name]] if name in found else []

    def brokers(self, connection: Connection, request: Command) -> Command:
        """Code 106: the live brokers. Raises RegistryUnavailable."""
        found = self._replica_sets(is_outside=connection.listener == OUTSIDE)
        body = {"brokerAddrTable": found, "clusterAddrTable": {self._cluster: list(found)}}
        return request.answer(body=json_bodies.write(body))

    def _replica_sets(self, *, is_outside: bool) -> dict[str, dict[str, Any]]:
        """The live ones by name. Raises RegistryUnavailable."""
        table = self._cache.table
        found: dict[str, dict[str, Any]] = {}
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
        return found

    def topics(self, connection: Connection, request: Command) -> Command:
        """Code 206. Raises RegistryUnavailable."""
        return request.answer(body=_topic_list(self._cache.table.topics))

    def topics_of_cluster(self, connection: Connection, request: Command) -> Command:
        """Code 224. Raises RegistryUnavailable."""
        known = self._cache.table.topics
        is_ours = request.fields.get("cluster", self._cluster) == self._cluster
        return request.answer(body=_topic_list(known if is_ours else ()))

    def system_topics(self, connection: Connection, request: Command) -> Command:
        """Code 304: what tools hide from lists. Here no list has such topics."""
        return request.answer(body=_topic_list(()))

    async def delete_topic(self, connection: Connection, request: Command) -> Command:
        """Code 216. A broker may have done it already. Raises AerobeeError."""
        name = read.text(request.fields, "topic")
        if not is_retry_topic(name):  # which goes with its group
            with suppress(TopicNotFound):
                await self._service.delete_topic(name)
        return request.answer()

    def delete_setting(self, connection: Connection, request: Command) -> Command:
        """Code 102: what tools ask after they have deleted a topic. There are none to delete."""
        return request.answer()

    async def close(self, connection: Connection, request: Command) -> Command:
        """Code 205: a broker takes no new messages. Raises AerobeeError."""
        name = read.text(request.fields, "brokerName")
        await self._broker_groups.close(name)
        return request.answer(fields={"wipeTopicCount": str(self._topics_on(name))})

    async def open(self, connection: Connection, request: Command) -> Command:
        """Code 327: it takes them again. Raises AerobeeError."""
        name = read.text(request.fields, "brokerName")
        await self._broker_groups.open(name)
        return request.answer(fields={"addTopicCount": str(self._topics_on(name))})

    def _topics_on(self, broker_name: str) -> int:
        topics = self._cache.table.topics.values()
        return sum(broker_name in each.queues_by_broker for each in topics)


def _to_each(brokers: Sequence[Mapping[str, Any]], queues: int) -> bytes:
    return json_bodies.write(
        {
            "brokerDatas": brokers,
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": each["brokerName"],
                    "perm": _PERM,
                    "readQueueNums": queues,
                    "topicSysFlag": 0,
                    "writeQueueNums": queues,
                }
                for each in brokers
            ],
        }
    )


def _topic_list(names: Iterable[str]) -> bytes:
    """Those that the caller may see."""
    return json_bodies.write({"topicList": sorted(filter(topics_listed(), names))})


def remoting_server(
    config: NameserverConfig,
    cache: RouteCache,
    service: NameserverService,
    users: Users,
    memory: MemoryBudget,
    access: NodeAccess,
    clock: Clock,
) -> RemotingServer | None:
    """None: it is off."""
    if not config.remoting.enabled:
        return None
    answers = RemotingRoutes(config, cache, service, service.broker_groups)
    shown, changes = RemotingUsers(access.book), RemotingUserChanges(users, access.book)
    table: dict[int, Serve] = {
        Ask.GET_ROUTEINFO_BY_TOPIC: answers.route,
        Ask.GET_BROKER_CLUSTER_INFO: answers.brokers,
        Ask.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: answers.topics,
        Ask.GET_TOPICS_BY_CLUSTER: answers.topics_of_cluster,
        Ask.GET_SYSTEM_TOPIC_LIST_FROM_NS: answers.system_topics,
        Ask.DELETE_TOPIC_IN_NAMESRV: answers.delete_topic,
        Ask.DELETE_KV_CONFIG: answers.delete_setting,
        Ask.WIPE_WRITE_PERM_OF_BROKER: answers.close,
        Ask.ADD_WRITE_PERM_OF_BROKER: answers.open,
        Ask.AUTH_CREATE_USER: changes.create,
        Ask.AUTH_UPDATE_USER: changes.update,
        Ask.AUTH_DELETE_USER: changes.delete,
        Ask.AUTH_GET_USER: shown.user,
        Ask.AUTH_LIST_USER: shown.users,
        Ask.AUTH_CREATE_ACL: changes.put_policies,
        Ask.AUTH_UPDATE_ACL: changes.put_policies,
        Ask.AUTH_DELETE_ACL: changes.remove_policies,
        Ask.AUTH_GET_ACL: shown.policies_of_user,
        Ask.AUTH_LIST_ACL: shown.policies,
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
