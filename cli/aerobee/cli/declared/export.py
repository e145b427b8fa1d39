"""The present state of a cluster as a file that `apply` takes without a change.

What a file cannot say, such as a setting that differs between brokers, is left out, which means
that `apply` leaves it as it is; a remark names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from aerobee.cli.declared.file import (
    ATTRIBUTE,
    BACK_OFFS,
    BY_DEFAULT,
    EXPONENTIAL,
    NO_LIMIT,
    PERMISSIONS,
)
from aerobee.cli.declared.plan import DECISION, QUEUES, TYPE, Fields, Key, Kind, State, Value
from aerobee.domain.topic_attributes import DECLARED_TYPES

_TIMES: Final = {"initialMs": "initial", "longestMs": "longest"}


class Export:
    """Sections of a file, and what they leave out."""

    def __init__(self, state: State) -> None:
        self.left_out: list[str] = []
        """Sentences."""
        things = sorted(state.things.items())
        self.sections: dict[str, list[dict[str, Any]]] = {
            "topics": [self._topic(key, fields) for key, fields in _of(things, Kind.TOPIC)],
            "groups": [self._group(key, fields) for key, fields in _of(things, Kind.GROUP)],
            "quotas": [_quota(key, fields) for key, fields in _of(things, Kind.QUOTA)],
            "policies": [_policy(key, fields) for key, fields in _of(things, Kind.POLICY)],
        }

    def text(self, users: Iterable[str]) -> str:
        """The file. `users` are named in its head, because a file cannot declare them."""
        head = "".join(
            f"# a user, whose secret only `aerobee user create` gives: {user}\n"
            for user in sorted(users)
        )
        return head + yaml.safe_dump(self.sections, sort_keys=False, allow_unicode=True)

    def _topic(self, key: Key, fields: Fields) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": key.words[0]}
        for name in (QUEUES, "permission", TYPE, "ordered"):
            value = fields.get(name)
            can_say = {"permission": PERMISSIONS, TYPE: DECLARED_TYPES}.get(name, (value,))
            if value in can_say:
                entry[name] = value
            else:
                self._leave_out(key, name, value)
        attributes = {
            name.removeprefix(ATTRIBUTE): value
            for name, value in fields.items()
            if name.startswith(ATTRIBUTE)
        }
        return entry | ({"attributes": attributes} if attributes else {})

    def _group(self, key: Key, fields: Fields) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": key.words[0]}
        retries, ordered, back_off = (
            fields.get(name) for name in ("retriesMax", "ordered", "backOff")
        )
        if isinstance(retries, int) and retries >= 0:
            entry["retriesMax"] = retries
        else:
            self._leave_out(key, "retriesMax", retries)
        if isinstance(ordered, bool):
            entry["ordered"] = ordered
        else:
            self._leave_out(key, "ordered", ordered)
        numbers = [fields.get(name) for name in (*_TIMES, "multiplier")]
        if back_off == EXPONENTIAL and all(isinstance(each, int) for each in numbers):
            entry["backOff"] = EXPONENTIAL
            entry |= {word: f"{fields[name]}ms" for name, word in _TIMES.items()}
            entry["multiplier"] = fields["multiplier"]
        elif back_off in BACK_OFFS and back_off != EXPONENTIAL:
            entry["backOff"] = back_off
        else:
            self._leave_out(key, "backOff", back_off)
        return entry

    def _leave_out(self, key: Key, name: str, value: Value) -> None:
        self.left_out.append(f"{key}: {name} is {value or 'not set'}, which no file can say")


def _of(things: Iterable[tuple[Key, Fields]], kind: Kind) -> list[tuple[Key, Fields]]:
    return [(key, fields) for key, fields in things if key.kind is kind]


def _quota(key: Key, fields: Fields) -> dict[str, Any]:
    kind, *name = key.words
    limits: Mapping[str, Value] = {
        field: value or NO_LIMIT for field, value in fields.items() if value is not None
    }
    return {kind: name[0] if name else True, "limits": dict(limits)}


def _policy(key: Key, fields: Fields) -> dict[str, Any]:
    user, resource, *rest = key.words
    entry: dict[str, Any] = {"user": user, "resource": resource}
    entry |= {"actions": str(fields["actions"]).split(","), DECISION: fields[DECISION]}
    if fields.get("sources"):
        entry["sources"] = str(fields["sources"]).split(",")
    return entry | ({"default": True} if rest == [BY_DEFAULT] else {})
