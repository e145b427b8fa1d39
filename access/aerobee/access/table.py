"""All users and policies as of one version: what a node asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aerobee.access.policies import Policy, Ruling
from aerobee.access.resources import Need
from aerobee.access.rules import UserRules
from aerobee.access.sealing import ClusterSecrets, unseal
from aerobee.access.users import User

_NO_RULES = UserRules()


@dataclass(frozen=True, slots=True)
class KnownUser:
    """A user, its secrets opened, its policies arranged."""

    user: User
    secrets: tuple[bytes, ...]
    rules: UserRules

    def __repr__(self) -> str:
        return f"<KnownUser {self.user.name}>"

    def decide(self, need: Need, source: str) -> Ruling:
        if not self.user.is_enabled:
            return Ruling(need, False, None, f"user {self.user.name} is disabled")
        if self.user.is_super:
            return Ruling(need, True, None, f"{self.user.name} is a super user")
        return self.rules.decide(need, source)


@dataclass(frozen=True, slots=True)
class AccessTable:
    """Never changed: a change makes another."""

    version: int
    users: Mapping[str, KnownUser]
    by_peer: Mapping[str, KnownUser]
    """By the name of a client certificate."""
    unopened: int = 0
    """Secrets that no cluster secret of this node opens."""

    @classmethod
    def of(
        cls,
        version: int,
        users: Iterable[User],
        policies: Iterable[Policy],
        secrets: ClusterSecrets | None,
    ) -> AccessTable:
        by_user: dict[str, list[Policy]] = {}
        for policy in policies:
            by_user.setdefault(policy.user, []).append(policy)
        known: dict[str, KnownUser] = {}
        by_peer: dict[str, KnownUser] = {}
        unopened = 0
        for user in sorted(users, key=lambda user: user.name):
            opened = [
                unseal(sealed, user.name, secrets) if secrets is not None else None
                for sealed in user.sealed
            ]
            rules = UserRules(by_user[user.name]) if user.name in by_user else _NO_RULES
            entry = KnownUser(user, tuple(one.encode() for one in opened if one is not None), rules)
            unopened += opened.count(None)
            known[user.name] = entry
            for peer in user.peers:
                by_peer.setdefault(peer, entry)
        return cls(version, MappingProxyType(known), MappingProxyType(by_peer), unopened)


NOBODY = AccessTable(0, MappingProxyType({}), MappingProxyType({}))
"""Before a node has heard of any user: nobody may do anything."""
