"""Users and policies as JSON, for etcd and for telling nodes.

Unknown fields are ignored, so that an older node can read what a newer one wrote. A policy with an
unknown decision, action or resource is refused: part of a rule is a different rule.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from aerobee.access.policies import Policy
from aerobee.access.resources import actions_text
from aerobee.access.users import User, check_user_name
from aerobee.runtime.errors import AerobeeError


class UnreadableRecord(ValueError):
    """Bytes that are not a record of this version."""


def encode_user(user: User) -> bytes:
    return _json(
        {
            "name": user.name,
            "super": user.is_super,
            "enabled": user.is_enabled,
            "sealed": list(user.sealed),
            "peers": list(user.peers),
        }
    )


def decode_user(value: bytes) -> User:
    """Raises UnreadableRecord."""
    found = _object(value)
    try:
        name = str(found["name"])
        check_user_name(name)
        return User(
            name,
            is_super=found["super"] is True,
            is_enabled=found["enabled"] is True,
            sealed=_texts(found.get("sealed", [])),
            peers=_texts(found.get("peers", [])),
        )
    except (KeyError, TypeError, AerobeeError) as error:
        raise UnreadableRecord(f"no record of a user: {error}") from None


def encode_policy(policy: Policy) -> bytes:
    return _json(
        {
            "user": policy.user,
            "resource": str(policy.pattern),
            "actions": actions_text(policy.actions),
            "decision": str(policy.decision),
            "sources": [str(source) for source in policy.sources],
            "default": policy.is_default,
        }
    )


def decode_policy(value: bytes) -> Policy:
    """Raises UnreadableRecord."""
    found = _object(value)
    try:
        return Policy.parse(
            str(found["user"]),
            str(found["resource"]),
            str(found["actions"]),
            str(found["decision"]),
            sources=_texts(found.get("sources", [])),
            is_default=found.get("default", False) is True,
        )
    except (KeyError, TypeError, AerobeeError) as error:
        raise UnreadableRecord(f"no record of a policy: {error}") from None


def policy_id(policy: Policy) -> str:
    """Equal for two policies that cannot both exist: same user, resource and kind of policy."""
    words = json.dumps([policy.user, str(policy.pattern), policy.is_default])
    return hashlib.sha256(words.encode()).hexdigest()[:24]


def _json(record: dict[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _object(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise UnreadableRecord("no JSON") from None
    if not isinstance(found, dict):
        raise UnreadableRecord("no JSON object")
    return found


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TypeError("a list of texts was expected")
    return tuple(value)
