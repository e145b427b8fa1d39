"""Names of topics and groups in namespaces.

namespace `shop`, name `orders`             shop%orders
namespace `shop`, name `%DLQ%billing`       %DLQ%shop%billing
without a namespace                         the name

Owns: which names are refused. A plain name `shop%orders` is the same topic, as in Apache's brokers,
which do not interpret namespaces.
"""

from __future__ import annotations

import re
from typing import Final

from aerobee.domain.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    check_group_name,
    check_topic_name,
    is_system_topic,
)
from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.runtime.errors import IllegalName

NAMESPACE_LENGTH_MAX: Final = 64
_SHOWN: Final = 40

# Without `%`, so that a stored name can be read in only one way.
_NAMESPACE: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAMESPACE_LENGTH_MAX}}}")


def is_namespace(text: str) -> bool:
    """Whether a namespace may be called so."""
    return _NAMESPACE.fullmatch(text) is not None


def stored_name(namespace: str, name: str) -> str:
    """The name in a store. Without a namespace it is the name itself."""
    if not namespace:
        return name
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return f"{prefix}{namespace}%{name[len(prefix) :]}"
    return f"{namespace}%{name}"


def topic_of_clients(namespace: str, name: str) -> str:
    """The stored name of a topic that a client names. Raises Refused with ILLEGAL_TOPIC."""
    stored = _stored(namespace, name, Reason.ILLEGAL_TOPIC, "topic")
    try:
        check_topic_name(stored)
    except IllegalName as error:
        raise Refused(Reason.ILLEGAL_TOPIC, str(error)) from None
    if is_system_topic(name) or is_system_topic(stored):
        raise Refused(
            Reason.ILLEGAL_TOPIC,
            f"topic {name[:_SHOWN]!r} belongs to the brokers themselves: use another one",
        )
    return stored


def group_of_clients(namespace: str, name: str) -> str:
    """As `topic_of_clients`, for a consumer group. Raises Refused with ILLEGAL_GROUP."""
    stored = _stored(namespace, name, Reason.ILLEGAL_GROUP, "group")
    try:
        check_group_name(stored)
    except IllegalName as error:
        raise Refused(Reason.ILLEGAL_GROUP, str(error)) from None
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise Refused(
            Reason.ILLEGAL_GROUP,
            f"group {name[:_SHOWN]!r} belongs to the brokers themselves: its name may not begin "
            f"with {SYSTEM_GROUP_PREFIX}",
        )
    return stored


def _stored(namespace: str, name: str, reason: Reason, what: str) -> str:
    if not name:
        raise Refused(reason, f"the {what} has no name; give it one")
    if namespace and not is_namespace(namespace):
        raise Refused(
            reason,
            f"the namespace of {what} {name[:_SHOWN]!r} is illegal: use 1 to "
            f"{NAMESPACE_LENGTH_MAX} letters, digits, '_' and '-' only",
        )
    return stored_name(namespace, name)
