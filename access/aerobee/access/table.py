"""All users and policies as of one version: the value that a node queries.

Invariant: a policy that cannot be read might be one that denies, so its user has no rights until it
is repaired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from aerobee.access.policies import Policy, Ruling
from aerobee.access.records import UnreadableRecord, decode_policy, decode_user
from aerobee.access.resources import Need
from aerobee.access.rules import UserRules
from aerobee.access.sealing import ClusterSecrets, unseal
from aerobee.access.users import User

_NO_RULES = UserRules()


class Record(NamedTuple):
    """A user, a policy or a quota as stored in etcd."""

    user: str
    """For a quota: its subject, which may be a group."""
    value: bytes


class Records(NamedTuple):
    """The form in which nodes exchange them."""

    version: str
    """Equal for equal content; empty: there are none."""
    users: tuple[Record, ...]
    policies: tuple[Record, ...]
    quotas: tuple[Record, ...] = ()

    @classmethod
    def of(
        cls, users: Iterable[Record], policies: Iterable[Record], quotas: Iterable[Record] = ()
    ) -> Records:
        of_users, of_policies = tuple(sorted(users)), tuple(sorted(policies))
        of_quotas = tuple(sorted(quotas))
        digest, end = hashlib.sha256(), Record("", b"")
        for record in (*of_users, end, *of_policies, *((end, *of_quotas) if of_quotas else ())):
            digest.update(f"{len(record.user)} {len(record.value)} {record.user}".encode())
            digest.update(record.value)
        version = digest.hexdigest()[:32] if of_users or of_policies or of_quotas else ""
        return cls(version, of_users, of_policies, of_quotas)


NO_RECORDS = Records("", (), ())


@dataclass(frozen=True, slots=True)
class KnownUser:
    """A user with its secrets opened and its policies arranged."""

    user: User
    secrets: tuple[bytes, ...]
    rules: UserRules
    policies: tuple[Policy, ...] = ()
    unopened: int = 0
    """Secrets that no cluster secret of this node opens."""
    is_damaged: bool = False
    """At least one of its policies cannot be read."""

    def __repr__(self) -> str:
        return f"<KnownUser {self.user.name}>"

    def decide(self, need: Need, source: str) -> Ruling:
        name = self.user.name
        if not self.user.is_enabled:
            return Ruling(need, False, None, f"user {name} is disabled")
        if self.user.is_super:
            return Ruling(need, True, None, f"{name} is a super user")
        if self.is_damaged:
            why = f"a policy of {name} cannot be read; remove it and add it again"
            return Ruling(need, False, None, why)
        return self.rules.decide(need, source)


_Content = tuple[bytes, tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class AccessTable:
    """Immutable: a change makes a new table, which reuses everything that is unchanged."""

    version: str
    users: Mapping[str, KnownUser]
    by_peer: Mapping[str, KnownUser]
    """By the name in a client certificate."""
    unreadable: tuple[str, ...]
    """Users whose records cannot be read; they cannot authenticate."""
    contents: Mapping[str, _Content]
    """The records from which each user was made."""

    @classmethod
    def of(
        cls, records: Records, secrets: ClusterSecrets | None, before: AccessTable | None = None
    ) -> AccessTable:
        """`before`: a table made with the same secrets."""
        policies: dict[str, list[bytes]] = {}
        for record in records.policies:
            policies.setdefault(record.user, []).append(record.value)
        users: dict[str, KnownUser] = {}
        by_peer: dict[str, KnownUser] = {}
        unreadable: list[str] = []
        contents: dict[str, _Content] = {}
        for name, value in records.users:
            content = (value, tuple(policies.get(name, ())))
            contents[name] = content
            if before is not None and before.contents.get(name) == content:
                known = before.users.get(name)
            else:
                known = _known(name, content, secrets)
            if known is None:
                unreadable.append(name)
                continue
            users[name] = known
            for peer in known.user.peers:
                by_peer.setdefault(peer, known)
        return cls(
            records.version,
            MappingProxyType(users),
            MappingProxyType(by_peer),
            tuple(unreadable),
            MappingProxyType(contents),
        )

    @property
    def unopened(self) -> int:
        """Secrets that no cluster secret of this node opens."""
        return sum(known.unopened for known in self.users.values())


def _known(name: str, content: _Content, secrets: ClusterSecrets | None) -> KnownUser | None:
    value, values = content
    try:
        user = decode_user(value)
    except UnreadableRecord:
        return None
    if user.name != name:
        return None
    opened = [None if secrets is None else unseal(sealed, name, secrets) for sealed in user.sealed]
    policies: list[Policy] = []
    is_damaged = False
    for one in values:
        try:
            policies.append(decode_policy(one))
        except UnreadableRecord:
            is_damaged = True
    return KnownUser(
        user,
        tuple(one.encode() for one in opened if one is not None),
        UserRules(policies) if policies else _NO_RULES,
        tuple(policies),
        opened.count(None),
        is_damaged or any(policy.user != name for policy in policies),
    )


NOBODY = AccessTable.of(NO_RECORDS, None)
"""For the time before a node has received any user: nobody may do anything."""
