"""Bodies by which RocketMQ's tools learn of topics, groups and clients, and change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aerobee.domain import names
from aerobee.rocketmq_remoting.heartbeats import Subscribed
from aerobee.rocketmq_remoting.json_bodies import ObjectKeys, read_object
from aerobee.runtime.errors import InvalidArgument

DATA_VERSION: Final = {"counter": 0, "stateVersion": 0, "timestamp": 0}
"""Of tables that Apache's brokers copy from each other by it."""
_I32: Final = 1 << 32
_JAVA_HASH: Final = 31
_EXPONENTIAL_MEMBERS: Final = 3
_TAGS_SEPARATOR: Final = "||"


# ------------------------------------------------------------------------------ topics


def topic_object(
    name: str,
    *,
    read_queues: int,
    write_queues: int,
    perm: int,
    order: bool,
    attributes: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "attributes": dict(attributes),
        "order": order,
        "perm": perm,
        "readQueueNums": read_queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": write_queues,
    }


def read_attributes(text: str) -> dict[str, str]:
    """`+name=value,-name` as changes: an empty value removes. Raises InvalidArgument."""
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, separator, value = part[1:].partition("=")
        if part[0] == "+" and separator and value:
            found[name] = value
        elif part[0] == "-" and not separator:
            found[name] = ""
        else:
            raise InvalidArgument(
                f"attribute {part[:80]!r} is neither +name=value, which sets it, nor -name, which "
                "removes it"
            )
    return found


# ------------------------------------------------------------------------------ groups


@dataclass(frozen=True, slots=True)
class GroupWish:
    """A group's settings as a tool wants them. None: as they are."""

    group: str
    retries_max: int | None
    is_ordered: bool
    uses_levels: bool
    exponential: tuple[int, int, int] | None
    """First and longest delay in ms, and the multiplier."""


def group_object(
    group: str,
    *,
    retries_max: int,
    is_ordered: bool,
    exponential: tuple[int, int, int] | None,
    steps_ms: Iterable[int] = (),
    attributes: Mapping[str, str],
) -> dict[str, Any]:
    """What has no meaning here is told as its default."""
    steps = list(steps_ms)
    policy: dict[str, Any] = {"type": "CUSTOMIZED"}
    if exponential is not None:
        initial, longest, multiplier = exponential
        policy = {
            "exponentialRetryPolicy": {
                "initial": initial,
                "max": longest,
                "multiplier": multiplier,
            },
            "type": "EXPONENTIAL",
        }
    elif steps:
        policy["customizedRetryPolicy"] = {"next": steps}
    return {
        "attributes": dict(attributes),
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": is_ordered,
        "consumeTimeoutMinute": 15,
        "groupName": group,
        "groupRetryPolicy": policy,
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": retries_max,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


def group_name_in(body: bytes) -> str:
    """Raises InvalidArgument."""
    group = read_object(body).get("groupName")
    if not isinstance(group, str):
        raise InvalidArgument("the body names no group")
    names.check_group_name(group)
    return group


def read_group(body: bytes) -> GroupWish:
    """Raises InvalidArgument."""
    found = read_object(body)
    if found.get("consumeEnable") is False:
        raise InvalidArgument(
            "a group cannot be switched off by a setting; deny its users Sub on it: aerobee acl"
        )
    retries_max = found.get("retryMaxTimes")
    policy = _object(found.get("groupRetryPolicy"))
    exponential: tuple[int, ...] = ()
    if policy.get("type") == "EXPONENTIAL":
        told = _object(policy.get("exponentialRetryPolicy"))
        exponential = tuple(
            value
            for name in ("initial", "max", "multiplier")
            if type(value := told.get(name)) is int
        )
        if len(exponential) != _EXPONENTIAL_MEMBERS:
            raise InvalidArgument(
                "an exponential retry policy needs the numbers initial, max and multiplier"
            )
    elif _object(policy.get("customizedRetryPolicy")).get("next"):
        raise InvalidArgument(
            "a list of delays is read-only; choose the delay levels or exponential delays"
        )
    return GroupWish(
        group_name_in(body),
        retries_max if type(retries_max) is int else None,
        found.get("consumeMessageOrderly") is True,
        policy.get("type") == "CUSTOMIZED",
        (exponential[0], exponential[1], exponential[2]) if exponential else None,
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ------------------------------------------------------------------------------ clients


def client_object(address: str, client_id: str, language: str, version: int) -> dict[str, Any]:
    return {
        "clientAddr": address,
        "clientId": client_id,
        "language": known_language(language),
        "version": version,
    }


def subscription_object(subscribed: Subscribed) -> dict[str, Any]:
    tags: list[str] = []
    if not subscribed.is_sql and subscribed.expression != "*":
        parts = (each.strip() for each in subscribed.expression.split(_TAGS_SEPARATOR))
        tags = [each for each in parts if each]
    return {
        "classFilterMode": False,
        "codeSet": [java_hash(tag) for tag in tags],
        "expressionType": "SQL92" if subscribed.is_sql else "TAG",
        "subString": subscribed.expression,
        "subVersion": subscribed.version,
        "tagsSet": tags,
        "topic": subscribed.topic,
    }


def java_hash(text: str) -> int:
    """`String.hashCode`."""
    found = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        found = (found * _JAVA_HASH + int.from_bytes(data[at : at + 2], "big")) % _I32
    return found - _I32 if found >= _I32 // 2 else found


_LANGUAGES: Final = frozenset(
    (
        *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO"),
        *("PHP", "OMS", "RUST", "NODE_JS"),
    )
)


def known_language(name: str) -> str:
    """Java reads it as a member of an enum."""
    return name if name in _LANGUAGES else "OTHER"


# ------------------------------------------------------------------------------ statistics


def rates_object(sums: Mapping[str, tuple[int, float]]) -> dict[str, Any]:
    """`sums`: what was counted in how many seconds, by `Minute`, `Hour` and `Day`."""
    return {
        f"stats{name}": {"avgpt": 0.0, "sum": count, "tps": round(count / max(1.0, seconds), 3)}
        for name, (count, seconds) in sums.items()
    }


def properties_text(settings: Mapping[str, object]) -> bytes:
    """A file of Java properties."""
    lines = (f"{name}={_shown(value)}\n" for name, value in sorted(settings.items()))
    return "".join(lines).encode()


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def offsets_body(offsets: Iterable[tuple[Mapping[str, Any], int]]) -> dict[str, Any]:
    return {"offsetTable": ObjectKeys(offsets)}
