"""Names of topics and groups: what clients call them, and their names in a store (`rules.names`).

A plain name `shop%orders` is the same topic, as in Apache's brokers, which do not interpret
namespaces.

Owns: which names are refused, and with which code. Answers carry the resource as it was received,
never one made from the stored name: a client adopts a namespace that differs from its own.
"""

from __future__ import annotations

from aerobee.domain.names import (
    SYSTEM_GROUP_PREFIX,
    check_group_name,
    check_topic_name,
    is_system_topic,
)
from aerobee.rocketmq_api.codes import Refused
from aerobee.rocketmq_api.rules.names import NAMESPACE_LENGTH_MAX, is_namespace, stored_name
from aerobee.runtime.errors import IllegalName
from apache.rocketmq.v2 import definition_pb2 as v2


def stored_topic(resource: v2.Resource, caller_namespace: str = "") -> str:
    """The topic's name in the store. Raises Refused with ILLEGAL_TOPIC.

    `caller_namespace` is from the call's metadata; it is used if the resource has none, because
    some clients send it only there.
    """
    name = _stored(resource, caller_namespace, v2.ILLEGAL_TOPIC, "topic")
    try:
        check_topic_name(name)
    except IllegalName as error:
        raise Refused(v2.ILLEGAL_TOPIC, str(error)) from None
    if is_system_topic(resource.name) or is_system_topic(name):
        raise Refused(
            v2.ILLEGAL_TOPIC,
            f"topic {resource.name[:40]!r} belongs to the brokers themselves: use another one",
        )
    return name


def stored_group(resource: v2.Resource, caller_namespace: str = "") -> str:
    """As `stored_topic`, for a consumer group. Raises Refused with ILLEGAL_CONSUMER_GROUP."""
    name = _stored(resource, caller_namespace, v2.ILLEGAL_CONSUMER_GROUP, "group")
    try:
        check_group_name(name)
    except IllegalName as error:
        raise Refused(v2.ILLEGAL_CONSUMER_GROUP, str(error)) from None
    if resource.name.startswith(SYSTEM_GROUP_PREFIX):
        raise Refused(
            v2.ILLEGAL_CONSUMER_GROUP,
            f"group {resource.name[:40]!r} belongs to the brokers themselves: its name may not "
            f"begin with {SYSTEM_GROUP_PREFIX}",
        )
    return name


def _stored(resource: v2.Resource, caller_namespace: str, code: v2.Code, what: str) -> str:
    namespace = resource.resource_namespace or caller_namespace
    name = resource.name
    if not name:
        raise Refused(code, f"the {what} has no name; give it one")
    if namespace and not is_namespace(namespace):
        raise Refused(
            code,
            f"the namespace of {what} {name[:40]!r} is illegal: use 1 to {NAMESPACE_LENGTH_MAX} "
            "letters, digits, '_' and '-' only",
        )
    return stored_name(namespace, name)
