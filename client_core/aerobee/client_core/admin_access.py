"""Users, policies and quotas, as `AdminClient` shows and changes them.

Every call may raise AccessDenied, RegistryUnavailable, Unreachable and DeadlineExceeded, and
InvalidArgument for invalid values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aerobee.client_core.access import Access
from aerobee.v1 import access_pb2 as pb


@dataclass(frozen=True, slots=True)
class User:
    """One user."""

    name: str
    """The access key."""
    is_super: bool
    is_enabled: bool
    secrets: int
    """Number of valid secrets: two while one is being replaced."""
    certificate_names: tuple[str, ...]
    """Names of client certificates that prove the user without a signature."""


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A new secret; it is shown only once."""

    user: User
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a user may do, or may not."""

    user: str
    resource: str
    """`Topic:NAME`, `Group:NAME`, `Cluster:NAME`, where NAME may end with `*`; or `*`."""
    actions: str
    """`All`, or a list of Pub, Sub, Create, Update, Delete, Get, List."""
    decision: Literal["Allow", "Deny"] = "Allow"
    sources: tuple[str, ...] = ()
    """Addresses or networks it applies to; none: all."""
    is_default: bool = False
    """It applies only where no other policy of the user does."""


@dataclass(frozen=True, slots=True)
class AccessAnswer:
    """Whether a user may do something."""

    allowed: bool
    reason: str
    """The policy, or why there is none."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a user or a group may use at each node."""

    kind: str
    """`user`, `group`, or `default`."""
    name: str
    limits: Mapping[str, int]
    """By field, see docs/quotas.md; 0: no limit."""


class UserAdmin:
    """Users: create, list, change, delete."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def create(
        self,
        name: str,
        *,
        is_super: bool = False,
        certificate_names: Sequence[str] = (),
        secret: str = "",
    ) -> NewSecret:
        """Create a user with a secret, which is generated if none is given."""
        return _new_secret(
            await self._access.create_user(
                name, is_super=is_super, certificate_names=certificate_names, secret=secret
            )
        )

    async def rotate(self, name: str, *, secret: str = "") -> NewSecret:
        """A new secret beside the current one; the previous one is no longer valid."""
        return _new_secret(await self._access.rotate_user(name, secret=secret))

    async def forget_former_secret(self, name: str) -> User:
        """The secret from before `rotate` is no longer valid."""
        return _user(await self._access.forget_former_secret(name))

    async def enable(self, name: str, is_enabled: bool = True) -> User:
        """Whether the user may do anything."""
        return _user(await self._access.enable_user(name, is_enabled))

    async def reseal(self, name: str) -> User:
        """Encrypt its secrets again, with the first line of the cluster secret's file."""
        return _user(await self._access.reseal_user(name))

    async def delete(self, name: str) -> None:
        """The user and its policies."""
        await self._access.delete_user(name)

    async def list(self) -> list[User]:
        """All users."""
        return [_user(each) for each in await self._access.users()]


class PolicyAdmin:
    """Policies: set, list, test, remove."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def put(self, policy: Policy) -> None:
        """Replaces the user's policy for the same resource, if there is one."""
        await self._access.put_policy(
            pb.AccessPolicy(
                user=policy.user,
                resource=policy.resource,
                actions=policy.actions,
                decision=policy.decision,
                sources=policy.sources,
                default=policy.is_default,
            )
        )

    async def remove(self, user: str, resource: str, *, is_default: bool = False) -> None:
        """A policy of a user."""
        await self._access.remove_policy(user, resource, is_default=is_default)

    async def list(self, user: str = "") -> list[Policy]:
        """Of all users if none is named."""
        return [_policy(each) for each in await self._access.policies(user)]

    async def test(
        self, user: str, resource: str, actions: str, *, source: str = ""
    ) -> AccessAnswer:
        """Whether the user may, and by which policy."""
        answer = await self._access.test(user, resource, actions, source=source)
        return AccessAnswer(answer.allowed, answer.reason)


class QuotaAdmin:
    """Quotas: set, list, delete."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def set(
        self,
        kind: Literal["user", "group", "default"],
        name: str,
        limits: Mapping[str, int],
        *,
        to_default: Sequence[str] = (),
    ) -> Quota:
        """Set these limits, 0 for none; those in `to_default` go back to the default."""
        return _quota(await self._access.set_quota(kind, name, limits, to_default))

    async def delete(self, kind: Literal["user", "group", "default"], name: str) -> None:
        """Delete what was set."""
        await self._access.delete_quota(kind, name)

    async def list(self) -> list[Quota]:
        """All quotas that were set."""
        return [_quota(each) for each in (await self._access.quotas()).quotas]

    async def built_in(self) -> Quota:
        """The defaults."""
        return _quota((await self._access.quotas()).built_in)


def _user(found: pb.UserDescription) -> User:
    return User(
        name=found.name,
        is_super=found.super,
        is_enabled=found.enabled,
        secrets=found.secrets,
        certificate_names=tuple(found.certificate_names),
    )


def _new_secret(found: pb.UserSecret) -> NewSecret:
    return NewSecret(_user(found.user), found.secret)


def _policy(found: pb.AccessPolicy) -> Policy:
    return Policy(
        user=found.user,
        resource=found.resource,
        actions=found.actions,
        decision="Deny" if found.decision == "Deny" else "Allow",
        sources=tuple(found.sources),
        is_default=found.default,
    )


def _quota(found: pb.Quota) -> Quota:
    return Quota(found.kind, found.name, dict(sorted(found.limits.items())))
