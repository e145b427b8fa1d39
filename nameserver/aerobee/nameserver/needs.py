"""What calls of aerobee.v1 need at a nameserver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aerobee.access.needs import (
    SUPER_USERS,
    NeedsTable,
    Resources,
    administering,
    needing,
    of_broker,
)
from aerobee.access.nodes import NodeName
from aerobee.access.resources import Action, Need

_USE = Action.PUB | Action.SUB | Action.GET
_ACCESS = (
    "CreateUser",
    "UpdateUser",
    "RotateUser",
    "DeleteUser",
    "ListUsers",
    "PutPolicy",
    "RemovePolicy",
    "ListPolicies",
    "TestAccess",
    "SetQuota",
    "DeleteQuota",
    "ListQuotas",
)


def _registering(heartbeat: Any) -> NodeName:
    who = heartbeat.identity
    return NodeName.broker(who.cluster, who.broker_name, who.broker_id)


def _master(request: Any) -> NodeName:
    return NodeName.broker(request.cluster, request.broker_name, request.master_id)


def nameserver_needs(cluster_name: str) -> NeedsTable:
    """The needs by path."""
    resources = Resources(cluster_name)

    def routes(request: Any, _: str) -> Iterable[Need]:
        return resources.topics(request.topics, _USE)

    def routes_or_new(request: Any, _: str) -> Iterable[Need]:
        """A user who may send to a topic may have it created by sending, as in Apache's brokers."""
        is_new = request.create_missing or request.plan_missing
        return resources.topics(request.topics, Action.PUB if is_new else _USE)

    def topic(action: Action) -> Any:
        return lambda request, _: (resources.topic(request.name, action),)

    def all_topics(request: Any, _: str) -> Iterable[Need]:
        return (resources.all_topics(Action.LIST),)

    def cluster(action: Action) -> Any:
        return lambda request, _: (resources.cluster(action),)

    service, access = "/aerobee.v1.NameserverService/", "/aerobee.v1.AccessService/"
    return {
        service + "Register": of_broker(_registering, is_act=True),
        service + "AlterInSyncSet": of_broker(_master, is_act=True),
        service + "QueryRoute": needing(routes_or_new),
        service + "WatchRoutes": needing(routes),
        service + "CreateTopic": administering(topic(Action.CREATE)),
        service + "UpdateTopic": administering(topic(Action.UPDATE)),
        service + "SpreadTopic": administering(topic(Action.UPDATE)),
        service + "RemoveRetired": administering(topic(Action.UPDATE)),
        service + "DeleteTopic": administering(topic(Action.DELETE)),
        service + "ListTopics": needing(all_topics),
        service + "DescribeCluster": needing(cluster(Action.GET)),
        service + "RemoveReplica": administering(cluster(Action.UPDATE)),
        service + "CloseBrokerGroup": administering(cluster(Action.UPDATE)),
        service + "OpenBrokerGroup": administering(cluster(Action.UPDATE)),
        service + "RemoveBrokerGroup": administering(cluster(Action.UPDATE)),
        **{access + method: SUPER_USERS for method in _ACCESS},
    }
