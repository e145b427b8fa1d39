"""The servicer for users, policies and quotas: translate and delegate; each change is logged."""

from __future__ import annotations

import logging
from typing import Any

import grpc

from aerobee.access.book import AccessBook
from aerobee.access.policies import Policy
from aerobee.access.quota import BUILT_IN, DEFAULT, Quota, Subject
from aerobee.access.resources import Need, Pattern, actions_text, parse_actions
from aerobee.access.users import User
from aerobee.nameserver.stored_quotas import StoredQuotas
from aerobee.nameserver.users import Users
from aerobee.runtime.errors import IllegalName, InvalidArgument
from aerobee.runtime.log import log_event
from aerobee.v1 import access_pb2 as pb
from aerobee.v1 import access_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

log = logging.getLogger(__name__)


class AccessService(access_pb2_grpc.AccessServiceServicer):
    """Serves aerobee.v1.AccessService for one cluster."""

    def __init__(self, users: Users, quotas: StoredQuotas, book: AccessBook) -> None:
        self.users = users
        """Remoting changes them, too."""
        self._quotas = quotas
        self._book = book

    async def CreateUser(self, request: pb.CreateUserRequest, context: Context) -> pb.UserSecret:
        user, secret = await self.users.create(
            request.name,
            is_super=request.super,
            peers=tuple(request.certificate_names),
            secret=request.secret,
        )
        log_event(log, "user created", user=user.name, super=user.is_super)
        return pb.UserSecret(user=_described(user), secret=secret)

    async def UpdateUser(
        self, request: pb.UpdateUserRequest, context: Context
    ) -> pb.UserDescription:
        user = await self.users.update(
            request.name,
            is_super=request.super if request.HasField("super") else None,
            is_enabled=request.enabled if request.HasField("enabled") else None,
            peers=tuple(request.certificate_names) if request.set_certificate_names else None,
            forget_former_secret=request.forget_former_secret,
        )
        log_event(log, "user changed", user=user.name, super=user.is_super, enabled=user.is_enabled)
        return _described(user)

    async def RotateUser(self, request: pb.RotateUserRequest, context: Context) -> pb.UserSecret:
        user, secret = await self.users.rotate(request.name, request.secret)
        log_event(log, "user has a new secret", user=user.name)
        return pb.UserSecret(user=_described(user), secret=secret)

    async def DeleteUser(
        self, request: pb.DeleteUserRequest, context: Context
    ) -> pb.DeleteUserResponse:
        await self.users.delete(request.name)
        log_event(log, "user deleted", user=request.name)
        return pb.DeleteUserResponse()

    async def ListUsers(
        self, request: pb.ListUsersRequest, context: Context
    ) -> pb.ListUsersResponse:
        return pb.ListUsersResponse(users=map(_described, self.users.listed()))

    async def PutPolicy(
        self, request: pb.PutPolicyRequest, context: Context
    ) -> pb.PutPolicyResponse:
        given = request.policy
        policy = Policy.parse(
            given.user,
            given.resource,
            given.actions,
            given.decision,
            sources=tuple(given.sources),
            is_default=given.default,
        )
        await self.users.put_policy(policy)
        log_event(log, "policy set", policy=policy)
        return pb.PutPolicyResponse()

    async def RemovePolicy(
        self, request: pb.RemovePolicyRequest, context: Context
    ) -> pb.RemovePolicyResponse:
        policy = Policy.parse(
            request.user, request.resource, "All", "Allow", is_default=request.default
        )
        await self.users.remove_policy(policy)
        log_event(log, "policy removed", user=policy.user, resource=policy.pattern)
        return pb.RemovePolicyResponse()

    async def ListPolicies(
        self, request: pb.ListPoliciesRequest, context: Context
    ) -> pb.ListPoliciesResponse:
        self.users.listed()
        return pb.ListPoliciesResponse(
            policies=[
                _policy(policy)
                for name, known in sorted(self._book.table.users.items())
                if request.user in ("", name)
                for policy in sorted(known.policies, key=str)
            ]
        )

    async def TestAccess(
        self, request: pb.TestAccessRequest, context: Context
    ) -> pb.TestAccessResponse:
        self.users.listed()
        known = self._book.table.users.get(request.user)
        if known is None:
            raise IllegalName(f"there is no user {request.user!r}; see `aerobee user list`")
        ruling = known.decide(_need(request.resource, request.actions), request.source)
        return pb.TestAccessResponse(
            allowed=ruling.is_allowed, reason=ruling.why or str(ruling.rule)
        )

    async def SetQuota(self, request: pb.SetQuotaRequest, context: Context) -> pb.Quota:
        given = request.quota
        changes: dict[str, int | None] = dict(given.limits)
        subject = Subject.checked(given.kind, given.name)
        quota = await self._quotas.change(subject, changes | dict.fromkeys(request.to_default))
        log_event(log, "quota set", subject=subject, limits=quota.said())
        return _quota(subject, quota)

    async def DeleteQuota(
        self, request: pb.DeleteQuotaRequest, context: Context
    ) -> pb.DeleteQuotaResponse:
        subject = Subject.checked(request.kind, request.name)
        await self._quotas.delete(subject)
        log_event(log, "quota deleted", subject=subject)
        return pb.DeleteQuotaResponse()

    async def ListQuotas(
        self, request: pb.ListQuotasRequest, context: Context
    ) -> pb.ListQuotasResponse:
        listed = self._quotas.listed()
        return pb.ListQuotasResponse(
            quotas=[_quota(subject, quota) for subject, quota in sorted(listed.items())],
            built_in=_quota(Subject(DEFAULT), BUILT_IN),
        )


def _need(resource: str, actions: str) -> Need:
    pattern = Pattern.parse(resource)
    if resource == "*":
        raise InvalidArgument("name one resource, such as Topic:orders")
    return Need(pattern.kind, pattern.text, parse_actions(actions))


def _described(user: User) -> pb.UserDescription:
    return pb.UserDescription(
        name=user.name,
        super=user.is_super,
        enabled=user.is_enabled,
        secrets=len(user.sealed),
        certificate_names=user.peers,
    )


def _policy(policy: Policy) -> pb.AccessPolicy:
    return pb.AccessPolicy(
        user=policy.user,
        resource=str(policy.pattern),
        actions=actions_text(policy.actions),
        decision=str(policy.decision),
        sources=map(str, policy.sources),
        default=policy.is_default,
    )


def _quota(subject: Subject, quota: Quota) -> pb.Quota:
    return pb.Quota(kind=subject.kind, name=subject.name, limits=quota.said())
