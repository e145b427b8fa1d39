"""Users and policies as RocketMQ's tools show them, at any node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aerobee.access.book import AccessBook
from aerobee.access.policies import Policy
from aerobee.access.resources import actions_text
from aerobee.access.table import KnownUser
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting import json_bodies
from aerobee.rocketmq_remoting.codes import Code
from aerobee.rocketmq_remoting.user_bodies import CUSTOM, DEFAULT, SUBJECT, user_of

LISTED_MAX: Final = 1_000


class RemotingUsers:
    """On the loop. Secrets are never shown."""

    def __init__(self, book: AccessBook) -> None:
        self._book = book

    def users(self, connection: Connection, request: Command) -> Command:
        """Code 3005: those whose names contain the filter."""
        found = [_user_object(each) for each in self._named(request.fields.get("filter", ""))]
        return request.answer(body=json_bodies.write(found))

    def user(self, connection: Connection, request: Command) -> Command:
        """Code 3004. Raises InvalidArgument."""
        name = read.text(request.fields, "username")
        known = self._book.table.users.get(name)
        if known is None:
            return _nobody(request, name)
        return request.answer(body=json_bodies.write(_user_object(known)))

    def policies(self, connection: Connection, request: Command) -> Command:
        """Code 3010: of users whose names contain the filter."""
        wanted = user_of(request.fields.get("subjectFilter", ""))
        resource = request.fields.get("resourceFilter", "")
        found = []
        for known in self._named(wanted):
            policies = [each for each in known.policies if resource in str(each.pattern)]
            if policies:
                found.append(_policies_object(known.user.name, policies))
        return request.answer(body=json_bodies.write(found))

    def policies_of_user(self, connection: Connection, request: Command) -> Command:
        """Code 3009. Raises InvalidArgument."""
        name = user_of(read.text(request.fields, "subject"))
        known = self._book.table.users.get(name)
        if known is None:
            return _nobody(request, name)
        return request.answer(body=json_bodies.write(_policies_object(name, known.policies)))

    def _named(self, part: str) -> Iterator[KnownUser]:
        users = self._book.table.users
        names = [name for name in sorted(users) if part in name]
        return (users[name] for name in names[:LISTED_MAX])


def _nobody(request: Command, name: str) -> Command:
    return request.answer(Code.SYSTEM_ERROR, remark=f"there is no user {name[:64]!r}")


def _user_object(known: KnownUser) -> dict[str, Any]:
    user = known.user
    return {
        "userStatus": "enable" if user.is_enabled else "disable",
        "userType": "Super" if user.is_super else "Normal",
        "username": user.name,
    }


def _policies_object(name: str, policies: list[Policy] | tuple[Policy, ...]) -> dict[str, Any]:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for policy in sorted(policies, key=str):
        entry = {
            "actions": actions_text(policy.actions).split(","),
            "decision": str(policy.decision),
            "resource": str(policy.pattern),
            "sourceIps": [str(source) for source in policy.sources],
        }
        kinds.setdefault(DEFAULT if policy.is_default else CUSTOM, []).append(entry)
    return {
        "policies": [{"entries": entries, "policyType": kind} for kind, entries in kinds.items()],
        "subject": SUBJECT + name,
    }
