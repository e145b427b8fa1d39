"""A topic's queues as clients get them, and which of them a consumer polls.

Both lists are the same on every node and in every answer while the route is unchanged: clients hash
message groups onto positions in one, and stop and start their polls when the other changes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aerobee.cluster_view.route import PERM_READ, PERM_WRITE, MessageQueue, TopicRoute
from aerobee.rocketmq_api.routes.endpoints import endpoints_of
from aerobee.rocketmq_api.rules.message_types import accepted_types
from aerobee.rocketmq_api.sending.message_types import V2_TYPES
from aerobee.runtime.errors import NoBrokerAvailable, NotReadableTopic
from apache.rocketmq.v2 import definition_pb2 as v2

ALL_QUEUES: Final = -1
"""The queue id of an assignment that stands for all queues of a broker."""

_BOTH: Final = PERM_READ | PERM_WRITE
_PERMISSIONS: Final = {
    _BOTH: v2.READ_WRITE,
    PERM_READ: v2.READ,
    PERM_WRITE: v2.WRITE,
}
_MASTER_ID: Final = 0


def message_queues(
    route: TopicRoute, topic: v2.Resource, *, is_outside: bool = False
) -> list[v2.MessageQueue]:
    """Every queue whose broker has a master now, by broker name and queue id.

    Slaves are not shown, since some clients would send to them. A master that temporarily accepts
    no writes is: some clients fail permanently if they have no queue, and its refusal makes them
    try another one. The queues of a closed broker group are readable. `topic` is echoed. A topic
    that allows neither has no queues. `is_outside`: the caller came through the outside listener.

    Raises NoBrokerAvailable if all masters are being elected: a client then keeps its old route,
    whereas it would believe an empty one.
    """
    if not route.perm & _BOTH:
        return []
    accepted = [V2_TYPES[each] for each in accepted_types(route.attributes)]
    return [
        v2.MessageQueue(
            topic=topic,
            id=queue_id,
            permission=permission,
            broker=broker,
            accept_message_types=accepted,
        )
        for broker, count in _brokers(route, is_outside=is_outside)
        if (permission := _permission(route, broker.name)) is not None
        for queue_id in range(count)
    ]


def _permission(route: TopicRoute, broker_name: str) -> v2.Permission | None:
    """None: the topic can only be written to, and the broker group is closed."""
    allowed = PERM_READ if broker_name in route.closed else _BOTH
    return _PERMISSIONS.get(route.perm & allowed)


def assignments(
    route: TopicRoute,
    topic: v2.Resource,
    *,
    is_ordered: bool,
    is_outside: bool = False,
    waiting: Collection[MessageQueue] = (),
) -> list[v2.Assignment]:
    """What a consumer polls: each broker once, or each of its queues if the group is ordered, but
    for those `waiting`.

    Every member of a group gets the same: what one of them has is invisible to the others.

    Raises NotReadableTopic, and NoBrokerAvailable as `message_queues`.
    """
    if not route.perm & PERM_READ:
        raise NotReadableTopic(
            f"topic {route.topic} has no readable queue: its permission forbids reading"
        )
    permission = _PERMISSIONS[route.perm & _BOTH]
    return [
        v2.Assignment(
            message_queue=v2.MessageQueue(
                topic=topic, id=queue_id, permission=permission, broker=broker
            )
        )
        for broker, count in _brokers(route, is_outside=is_outside)
        for queue_id in (range(count) if is_ordered else (ALL_QUEUES,))
        if MessageQueue(route.topic, broker.name, queue_id) not in waiting
    ]


def _brokers(route: TopicRoute, *, is_outside: bool) -> list[tuple[v2.Broker, int]]:
    """Masters with queues of the topic, by name, and how many."""
    found = [
        (
            v2.Broker(
                name=name,
                id=_MASTER_ID,
                endpoints=endpoints_of(master.told_outside() if is_outside else master.address),
            ),
            count,
        )
        for name, count in sorted(route.queues_by_broker.items())
        if count and (master := route.master(name)) is not None
    ]
    if not found:
        raise NoBrokerAvailable(
            f"no broker of topic {route.topic} has a live master now: retry, or see `aerobee "
            "cluster show`"
        )
    return found
