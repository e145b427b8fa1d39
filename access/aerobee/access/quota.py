"""How much a user or a consumer group may use, and the defaults.

A field is None if it is not set, and 0 if there is no limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

from aerobee.access.records import UnreadableRecord
from aerobee.access.users import check_user_name
from aerobee.domain.names import check_group_name
from aerobee.runtime.errors import AerobeeError, InvalidArgument

QUOTAS_MAX: Final = 5_000
LIMIT_MAX: Final = 2**53
"""All JSON readers handle integers up to this exactly."""

CONNECTIONS: Final = "connections"
SUBSCRIPTIONS: Final = "subscriptions"
TOPICS_CREATED: Final = "topics_created"
GROUPS_CREATED: Final = "groups_created"

DEFAULT: Final = "default"
USER: Final = "user"
GROUP: Final = "group"


class Traffic(Enum):
    """What is limited in requests and bytes per second."""

    SEND = "send"
    READ = "read"
    """From memory: the newest messages."""
    COLD_READ = "cold_read"
    """By a reader that is far behind and takes turns, or from the disk."""

    @property
    def requests(self) -> str:
        """The field of a quota."""
        return f"{self.value}_requests"

    @property
    def bytes(self) -> str:
        return f"{self.value}_bytes"


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one user or group at one node."""

    send_requests: int | None = None
    """Per second, as for every field up to `cold_read_bytes`."""
    send_bytes: int | None = None
    read_requests: int | None = None
    read_bytes: int | None = None
    cold_read_requests: int | None = None
    cold_read_bytes: int | None = None
    connections: int | None = None
    """At the same time."""
    subscriptions: int | None = None
    """Queues that are pulled, and topics that members and official clients subscribe to, at the
    same time."""
    topics_created: int | None = None
    """Per hour."""
    groups_created: int | None = None
    """Per hour."""

    def said(self) -> dict[str, int]:
        """The fields that are set."""
        found = {name: getattr(self, name) for name in QUOTA_FIELDS}
        return {name: value for name, value in found.items() if value is not None}

    def or_else(self, default: Quota) -> Quota:
        """This quota, with `default` for the fields that are not set."""
        return Quota(**(default.said() | self.said()))

    def changed(self, changes: Mapping[str, int | None]) -> Quota:
        """A copy with some fields set, or unset by None. Raises InvalidArgument."""
        values: dict[str, int | None] = dict(self.said())
        for name, value in changes.items():
            if name not in QUOTA_FIELDS:
                raise InvalidArgument(f"there is no quota {name[:40]!r}")
            if value is not None and not 0 <= value <= LIMIT_MAX:
                raise InvalidArgument(
                    f"{name} cannot be {value}: a limit is at least 1, 0 for none"
                )
            values[name] = value
        return Quota(**values)


QUOTA_FIELDS: Final = tuple(one.name for one in fields(Quota))
RATES: Final = tuple(name for kind in Traffic for name in (kind.requests, kind.bytes))
OF_GROUPS: Final = tuple(
    name for kind in (Traffic.READ, Traffic.COLD_READ) for name in (kind.requests, kind.bytes)
)
"""The fields that a group's quota may have."""

UNLIMITED: Final = Quota()
BUILT_IN: Final = Quota(
    connections=20_000, subscriptions=200_000, topics_created=15_000, groups_created=15_000
)
"""Keeps one caller from using up what everyone needs: a cluster has at most 20,000 topics and a
broker as many groups, unless settings say otherwise. Rates have no limit until one is set."""


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """Whose quota it is: a user's, a consumer group's, or the default of all users without their
    own."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind

    @classmethod
    def checked(cls, kind: str, name: str) -> Subject:
        """Raises InvalidArgument, IllegalName."""
        if kind == DEFAULT and not name:
            return cls(DEFAULT)
        if kind == USER:
            check_user_name(name)
        elif kind == GROUP:
            check_group_name(name)
        else:
            raise InvalidArgument(
                f"quotas are for a user, a group or default, not for {kind[:40]!r} {name[:40]!r}"
            )
        return cls(kind, name)


def check_fields(subject: Subject, quota: Quota) -> None:
    """Raises InvalidArgument: a group cannot have this quota."""
    others = quota.said().keys() - set(OF_GROUPS)
    if subject.kind == GROUP and others:
        raise InvalidArgument(
            f"a group has no quota of {', '.join(sorted(others))}: only of {', '.join(OF_GROUPS)}"
        )


def encode_quota(subject: Subject, quota: Quota) -> bytes:
    """The form stored in etcd."""
    record = {"kind": subject.kind, "name": subject.name, **quota.said()}
    return json.dumps(record, separators=(",", ":")).encode()


def decode_quota(value: bytes) -> tuple[Subject, Quota]:
    """Unknown fields are ignored. Raises UnreadableRecord."""
    try:
        found: dict[str, Any] = dict(json.loads(value))
        subject = Subject.checked(str(found["kind"]), str(found["name"]))
        known = {name: found[name] for name in QUOTA_FIELDS if name in found}
        if any(type(limit) is not int for limit in known.values()):
            raise TypeError("a limit is a whole number")
        quota = UNLIMITED.changed(known)
        check_fields(subject, quota)
    except (ValueError, KeyError, TypeError, RecursionError, AerobeeError) as error:
        raise UnreadableRecord(f"no record of a quota: {error}") from None
    return subject, quota
