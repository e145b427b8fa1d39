"""Users, policies and quotas among the keys of a cluster, as stored in etcd.

    users/NAME             one user
    policies/NAME/ID       one policy of that user
    quotas/user/NAME       a user's quota
    quotas/group/NAME      a consumer group's
    quotas/default         that of all users who have none

`aerobee.access` knows what they mean; here they are bytes, which brokers get a copy of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aerobee.access.quota import Subject
from aerobee.access.table import NO_RECORDS, Record, Records


# Not tuples, which would match the patterns of other keys.
@dataclass(frozen=True, slots=True)
class UserKey:
    name: str


@dataclass(frozen=True, slots=True)
class PolicyKey:
    user: str
    policy_id: str


@dataclass(frozen=True, slots=True)
class QuotaKey:
    path: str
    """The part after `quotas/`."""


AccessKey = UserKey | PolicyKey | QuotaKey


def quota_key(subject: Subject) -> QuotaKey:
    return QuotaKey(f"{subject.kind}/{subject.name}" if subject.name else subject.kind)


@dataclass(frozen=True, slots=True)
class StoredAccess:
    """Immutable; a change makes a new one."""

    values: Mapping[AccessKey, bytes] = field(default_factory=dict)
    records: Records = NO_RECORDS

    def changed(self, changes: Mapping[AccessKey, bytes | None]) -> StoredAccess:
        """With each value set, or removed where it is None."""
        values = dict(self.values)
        for key, value in changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        return StoredAccess(
            values,
            Records.of(
                (
                    Record(key.name, value)
                    for key, value in values.items()
                    if isinstance(key, UserKey)
                ),
                (
                    Record(key.user, value)
                    for key, value in values.items()
                    if isinstance(key, PolicyKey)
                ),
                (
                    Record(key.path, value)
                    for key, value in values.items()
                    if isinstance(key, QuotaKey)
                ),
            ),
        )

    def policies_of(self, user: str) -> tuple[PolicyKey, ...]:
        return tuple(key for key in self.values if isinstance(key, PolicyKey) and key.user == user)
