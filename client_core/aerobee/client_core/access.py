"""Users, policies and quotas as an administrator sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


class Access:
    """For super users, and operators with the cluster secret.

    Every call raises AccessDenied for others, InvalidArgument for invalid values,
    RegistryUnavailable and Unreachable.
    """

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._nameservers = connection.nameservers
        self._timeout_ms = timeout_ms

    async def create_user(
        self,
        name: str,
        *,
        is_super: bool = False,
        certificate_names: Sequence[str] = (),
        secret: str = "",
    ) -> pb.UserSecret:
        """Create a user with a secret, which is generated if it is empty and returned only here."""
        request = pb.CreateUserRequest(
            name=name, super=is_super, certificate_names=certificate_names, secret=secret
        )
        return await self._nameservers.call(CREATE_USER, request, timeout_ms=self._timeout_ms)

    async def rotate_user(self, name: str, *, secret: str = "") -> pb.UserSecret:
        """A new secret beside the current one; the previous one is no longer valid."""
        request = pb.RotateUserRequest(name=name, secret=secret)
        return await self._nameservers.call(ROTATE_USER, request, timeout_ms=self._timeout_ms)

    async def forget_former_secret(self, name: str) -> pb.UserDescription:
        return await self._update(pb.UpdateUserRequest(name=name, forget_former_secret=True))

    async def enable_user(self, name: str, is_enabled: bool) -> pb.UserDescription:
        return await self._update(pb.UpdateUserRequest(name=name, enabled=is_enabled))

    async def reseal_user(self, name: str) -> pb.UserDescription:
        """Seal its secrets with the cluster secret that comes first in the nameserver's file."""
        return await self._update(pb.UpdateUserRequest(name=name))

    async def _update(self, request: pb.UpdateUserRequest) -> pb.UserDescription:
        return await self._nameservers.call(UPDATE_USER, request, timeout_ms=self._timeout_ms)

    async def delete_user(self, name: str) -> None:
        """Delete the user and its policies."""
        request = pb.DeleteUserRequest(name=name)
        await self._nameservers.call(DELETE_USER, request, timeout_ms=self._timeout_ms)

    async def users(self) -> Sequence[pb.UserDescription]:
        request = pb.ListUsersRequest()
        answer = await self._nameservers.call(LIST_USERS, request, timeout_ms=self._timeout_ms)
        return answer.users

    async def put_policy(self, policy: pb.AccessPolicy) -> None:
        """Replaces the user's policy for the same resource, if there is one."""
        request = pb.PutPolicyRequest(policy=policy)
        await self._nameservers.call(PUT_POLICY, request, timeout_ms=self._timeout_ms)

    async def remove_policy(self, user: str, resource: str, *, is_default: bool = False) -> None:
        request = pb.RemovePolicyRequest(user=user, resource=resource, default=is_default)
        await self._nameservers.call(REMOVE_POLICY, request, timeout_ms=self._timeout_ms)

    async def policies(self, user: str = "") -> Sequence[pb.AccessPolicy]:
        """Of all users if none is named."""
        request = pb.ListPoliciesRequest(user=user)
        answer = await self._nameservers.call(LIST_POLICIES, request, timeout_ms=self._timeout_ms)
        return answer.policies

    async def test(
        self, user: str, resource: str, actions: str, *, source: str = ""
    ) -> pb.TestAccessResponse:
        """Whether the user may, and by which policy."""
        request = pb.TestAccessRequest(user=user, resource=resource, actions=actions, source=source)
        return await self._nameservers.call(TEST_ACCESS, request, timeout_ms=self._timeout_ms)

    async def set_quota(
        self, kind: str, name: str, limits: Mapping[str, int], to_default: Sequence[str] = ()
    ) -> pb.Quota:
        """Set the whole quota: these limits, 0 for none; all others are left to the default.
        `kind`: user, group, or default without a name."""
        request = pb.SetQuotaRequest(
            quota=pb.Quota(kind=kind, name=name, limits=limits), to_default=to_default
        )
        return await self._nameservers.call(SET_QUOTA, request, timeout_ms=self._timeout_ms)

    async def delete_quota(self, kind: str, name: str) -> None:
        request = pb.DeleteQuotaRequest(kind=kind, name=name)
        await self._nameservers.call(DELETE_QUOTA, request, timeout_ms=self._timeout_ms)

    async def quotas(self) -> pb.ListQuotasResponse:
        """All quotas that were set, and the defaults."""
        request = pb.ListQuotasRequest()
        return await self._nameservers.call(LIST_QUOTAS, request, timeout_ms=self._timeout_ms)
