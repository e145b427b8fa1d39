"""Users and policies as RocketMQ's tools wish them. The format is that of Apache's `UserInfo` and
`AclInfo`, since 5.3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.access.policies import Policy
from aerobee.access.users import POLICIES_PER_USER_MAX
from aerobee.rocketmq_remoting.json_bodies import read_object
from aerobee.runtime.errors import InvalidArgument

SUBJECT: Final = "User:"
DEFAULT: Final = "Default"
CUSTOM: Final = "Custom"
_TYPES: Final = {"super": True, "normal": False}
_STATES: Final = {"enable": True, "disable": False}


@dataclass(frozen=True, slots=True)
class UserWish:
    """What a tool says of a user; None or empty: nothing."""

    password: str = field(default="", repr=False)
    is_super: bool | None = None
    is_enabled: bool | None = None


def read_user(body: bytes) -> UserWish:
    """Raises InvalidArgument."""
    found = read_object(body)
    return UserWish(
        _text(found, "password"),
        _chosen(found, "userType", _TYPES),
        _chosen(found, "userStatus", _STATES),
    )


def user_of(subject: str) -> str:
    """The user that a policy is for."""
    return subject.removeprefix(SUBJECT)


def is_default(policy_type: str) -> bool:
    """Raises InvalidArgument."""
    if policy_type.capitalize() not in ("", DEFAULT, CUSTOM):
        raise InvalidArgument(
            f"{policy_type[:40]!r} is no type of policy; choose Default or Custom"
        )
    return policy_type.capitalize() == DEFAULT


def read_policies(user: str, body: bytes) -> list[Policy]:
    """Raises InvalidArgument."""
    found: list[Policy] = []
    for policy in _objects(read_object(body), "policies"):
        by_default = is_default(_text(policy, "policyType"))
        for entry in _objects(policy, "entries"):
            if len(found) == POLICIES_PER_USER_MAX:
                raise InvalidArgument(
                    f"a user has at most {POLICIES_PER_USER_MAX} policies; use patterns"
                )
            found.append(
                Policy.parse(
                    user,
                    _text(entry, "resource"),
                    ",".join(_texts(entry, "actions")),
                    _text(entry, "decision"),
                    sources=tuple(_texts(entry, "sourceIps")),
                    is_default=by_default,
                )
            )
    if not found:
        raise InvalidArgument("the body names no policy")
    return found


def _chosen(found: Mapping[str, Any], name: str, known: Mapping[str, bool]) -> bool | None:
    text = _text(found, name).lower()
    if not text:
        return None
    if text not in known:
        raise InvalidArgument(f"{name} is {text[:40]!r}; choose {' or '.join(known)}")
    return known[text]


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} of the body is no text")
    return value


def _texts(found: Mapping[str, Any], name: str) -> Iterator[str]:
    value = found.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidArgument(f"{name} of the body is no list of texts")
    return iter(value)


def _objects(found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = found.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InvalidArgument(f"{name} of the body is no list of objects")
    return value
