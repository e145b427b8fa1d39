"""Users, policies and quotas, as `AdminClient` shows and changes them.

Every call may raise AccessDenied, RegistryUnavailable, Unreachable and DeadlineExceeded, and
InvalidArgument for invalid values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.methods import (
    CREATE_USER,
    DELETE_QUOTA,
    DELETE_USER,
    LIST_POLICIES,
    LIST_QUOTAS,
    LIST_USERS,
    PUT_POLICY,
    REMOVE_POLICY,
    ROTATE_USER,
    SET_QUOTA,
    TEST_ACCESS,
    UPDATE_USER,
)
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
    """`Topic:NAME`, `Group:NAME`, `Cluster:NAME` or `AuditLog:NAME`, where NAME may end with `*`;
    or `*`."""
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

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._nameservers = connection.nameservers
        self._timeout_ms = timeout_ms

    async def create(
        self,
        name: str,
        *,
        is_super: bool = False,
        certificate_names: Sequence[str] = (),
        secret: str = "",
    ) -> NewSecret:
        """Create a user with a secret, which is generated if none is given."""
        request = pb.CreateUserRequest(
            name=name, super=is_super, certificate_names=certificate_names, secret=secret
        )
        made = await self._nameservers.call(CREATE_USER, request, timeout_ms=self._timeout_ms)
        return _new_secret(made)

    async def rotate(self, name: str, *, secret: str = "") -> NewSecret:
        """A new secret beside the current one; the previous one is no longer valid."""
        request = pb.RotateUserRequest(name=name, secret=secret)
        made = await self._nameservers.call(ROTATE_USER, request, timeout_ms=self._timeout_ms)
        return _new_secret(made)

    async def forget_former_secret(self, name: str) -> User:
        """The secret from before `rotate` is no longer valid."""
        return await self._update(pb.UpdateUserRequest(name=name, forget_former_secret=True))

    async def enable(self, name: str, is_enabled: bool = True) -> User:
        """Whether the user may do anything."""
        return await self._update(pb.UpdateUserRequest(name=name, enabled=is_enabled))

    async def reseal(self, name: str) -> User:
        """Encrypt its secrets again, with the first line of the cluster secret's file."""
        return await self._update(pb.UpdateUserRequest(name=name))

    async def delete(self, name: str) -> None:
        """The user and its policies."""
        request = pb.DeleteUserRequest(name=name)
        await self._nameservers.call(DELETE_USER, request, timeout_ms=self._timeout_ms)

    async def list(self) -> list[User]:
        """All users."""
        request = pb.ListUsersRequest()
        found = await self._nameservers.call(LIST_USERS, request, timeout_ms=self._timeout_ms)
        return [_user(each) for each in found.users]

    async def _update(self, request: pb.UpdateUserRequest) -> User:
        return _user(
            await self._nameservers.call(UPDATE_USER, request, timeout_ms=self._timeout_ms)
        )


class PolicyAdmin:
    """Policies: set, list, test, remove."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._nameservers = connection.nameservers
        self._timeout_ms = timeout_ms

    async def put(self, policy: Policy) -> None:
        """Replaces the user's policy for the same resource, if there is one."""
        wanted = pb.AccessPolicy(
            user=policy.user,
            resource=policy.resource,
            actions=policy.actions,
            decision=policy.decision,
            sources=policy.sources,
            default=policy.is_default,
        )
        request = pb.PutPolicyRequest(policy=wanted)
        await self._nameservers.call(PUT_POLICY, request, timeout_ms=self._timeout_ms)

    async def remove(self, user: str, resource: str, *, is_default: bool = False) -> None:
        """A policy of a user."""
        request = pb.RemovePolicyRequest(user=user, resource=resource, default=is_default)
        await self._nameservers.call(REMOVE_POLICY, request, timeout_ms=self._timeout_ms)

    async def list(self, user: str = "") -> list[Policy]:
        """Of all users if none is named."""
        request = pb.ListPoliciesRequest(user=user)
        found = await self._nameservers.call(LIST_POLICIES, request, timeout_ms=self._timeout_ms)
        return [_policy(each) for each in found.policies]

    async def test(
        self, user: str, resource: str, actions: str, *, source: str = ""
    ) -> AccessAnswer:
        """Whether the user may, and by which policy."""
        request = pb.TestAccessRequest(user=user, resource=resource, actions=actions, source=source)
        answer = await self._nameservers.call(TEST_ACCESS, request, timeout_ms=self._timeout_ms)
        return AccessAnswer(answer.allowed, answer.reason)


class QuotaAdmin:
    """Quotas: set, list, delete."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._nameservers = connection.nameservers
        self._timeout_ms = timeout_ms

    async def set(
        self,
        kind: Literal["user", "group", "default"],
        name: str,
        limits: Mapping[str, int],
        *,
        to_default: Sequence[str] = (),
    ) -> Quota:
        """Set these limits, 0 for none; those in `to_default` go back to the default."""
        request = pb.SetQuotaRequest(
            quota=pb.Quota(kind=kind, name=name, limits=limits), to_default=to_default
        )
        return _quota(await self._nameservers.call(SET_QUOTA, request, timeout_ms=self._timeout_ms))

    async def delete(self, kind: Literal["user", "group", "default"], name: str) -> None:
        """Delete what was set."""
        request = pb.DeleteQuotaRequest(kind=kind, name=name)
        await self._nameservers.call(DELETE_QUOTA, request, timeout_ms=self._timeout_ms)

    async def list(self) -> list[Quota]:
        """All quotas that were set."""
        return [_quota(each) for each in (await self._list()).quotas]

    async def built_in(self) -> Quota:
        """The defaults."""
        return _quota((await self._list()).built_in)

    async def _list(self) -> pb.ListQuotasResponse:
        request = pb.ListQuotasRequest()
        return await self._nameservers.call(LIST_QUOTAS, request, timeout_ms=self._timeout_ms)


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
