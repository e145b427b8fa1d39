"""What a client says of itself every 30 seconds: which groups it sends for and consumes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from aerobee.domain import names
from aerobee.rocketmq_remoting.json_bodies import read_object
from aerobee.runtime.errors import InvalidArgument

GROUPS_MAX: Final = 256
"""Of one client, of each kind."""
SUBSCRIPTIONS_MAX: Final = 1_024
"""Of one client in one group."""


class Beginning(StrEnum):
    """Where a group without an offset begins, by the client's own choice."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What a member wants of one topic."""

    topic: str
    expression: str = "*"
    is_sql: bool = False
    version: int = 0
    """Rises with each change of it."""


@dataclass(frozen=True, slots=True)
class Consuming:
    """A client's part in one consumer group."""

    group: str
    is_broadcasting: bool
    is_passive: bool
    """It is pushed to, from a user's view."""
    beginning: str
    subscriptions: Mapping[str, Subscribed]
    """By topic."""


@dataclass(frozen=True, slots=True)
class HeartBeat:
    """One client with all its groups."""

    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[Consuming, ...]
    fingerprint: int = 0
    """Of the subscriptions, for clients that send them only when they change; else 0."""
    lacks_subscriptions: bool = False
    """They are as they were."""


def read_heartbeat(body: bytes) -> HeartBeat:
    """Raises InvalidArgument."""
    found = read_object(body)
    client_id = _text(found, "clientID")
    names.check_client_id(client_id)
    producers, consumers = (_objects(found, f"{kind}DataSet") for kind in ("producer", "consumer"))
    if max(len(producers), len(consumers)) > GROUPS_MAX:
        raise InvalidArgument(
            f"client {client_id[:40]!r} is in more than {GROUPS_MAX} groups; use several clients"
        )
    fingerprint = found.get("heartbeatFingerprint")
    return HeartBeat(
        client_id,
        tuple(_text(each, "groupName") for each in producers),
        tuple(map(_consuming, consumers)),
        fingerprint if type(fingerprint) is int else 0,
        found.get("withoutSub") is True,
    )


def _consuming(found: Mapping[str, Any]) -> Consuming:
    group = _text(found, "groupName")
    names.check_group_name(group)
    wanted = _objects(found, "subscriptionDataSet")
    if len(wanted) > SUBSCRIPTIONS_MAX:
        raise InvalidArgument(
            f"a member of group {group} subscribes to {len(wanted)} topics; at most "
            f"{SUBSCRIPTIONS_MAX} are possible"
        )
    return Consuming(
        group,
        found.get("messageModel") == "BROADCASTING",
        found.get("consumeType") != "CONSUME_ACTIVELY",
        str(found.get("consumeFromWhere") or ""),
        {each.topic: each for each in map(_subscribed, wanted)},
    )


def _subscribed(found: Mapping[str, Any]) -> Subscribed:
    version = found.get("subVersion")
    return Subscribed(
        _text(found, "topic"),
        str(found.get("subString") or "*"),
        found.get("expressionType") == "SQL92",
        version if type(version) is int else 0,
    )


def _objects(found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = found.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InvalidArgument(f"{name} of the body is no list of objects")
    return value


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"the body lacks the text {name}")
    return value
