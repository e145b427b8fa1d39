"""Names of topics and groups as clients of this protocol write them, and in a store.

Answers carry the resource as it was received, never one made from the stored name: a client adopts
a namespace that differs from its own.
"""

from __future__ import annotations

from aerobee.rocketmq_api.rules.names import group_of_clients, topic_of_clients
from apache.rocketmq.v2 import definition_pb2 as v2


def stored_topic(resource: v2.Resource, caller_namespace: str = "") -> str:
    """The topic's name in the store. Raises Refused with ILLEGAL_TOPIC.

    `caller_namespace` is from the call's metadata; it is used if the resource has none, because
    some clients send it only there.
    """
    return topic_of_clients(resource.resource_namespace or caller_namespace, resource.name)


def stored_group(resource: v2.Resource, caller_namespace: str = "") -> str:
    """As `stored_topic`, for a consumer group. Raises Refused with ILLEGAL_GROUP."""
    return group_of_clients(resource.resource_namespace or caller_namespace, resource.name)
