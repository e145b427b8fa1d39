"""Users and policies as RocketMQ's tools change them, if they ask a nameserver.

A tool proves its super user to the node that it asks, by a signature over the request. Nameservers
keep users, so they take such a request from nobody but the user itself: a broker that could pass it
on could make itself a super user.
"""

from __future__ import annotations

import logging

from aerobee.access.book import AccessBook
from aerobee.access.policies import Policy
from aerobee.nameserver.users import Users
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.user_bodies import is_default, read_policies, read_user, user_of
from aerobee.runtime.errors import IllegalName, InvalidArgument
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class RemotingUserChanges:
    """On the loop."""

    def __init__(self, users: Users, book: AccessBook) -> None:
        self._users = users
        self._book = book

    async def create(self, connection: Connection, request: Command) -> Command:
        """Code 3001. Raises AerobeeError."""
        name, wish = read.text(request.fields, "username"), read_user(request.body)
        if not wish.password:
            raise InvalidArgument(
                "the request has no password; the tool would not show one that is made here"
            )
        if wish.is_enabled is False:
            raise InvalidArgument("a user begins enabled; disable it afterwards")
        user, _ = await self._users.create(
            name, is_super=wish.is_super is True, peers=(), secret=wish.password
        )
        log_event(log, "user created", user=user.name, super=user.is_super)
        return request.answer()

    async def update(self, connection: Connection, request: Command) -> Command:
        """Code 3002: what the request gives. A new password replaces all that there were. Raises
        AerobeeError."""
        name, wish = read.text(request.fields, "username"), read_user(request.body)
        if wish.password:
            await self._users.rotate(name, wish.password)
        user = await self._users.update(
            name,
            is_super=wish.is_super,
            is_enabled=wish.is_enabled,
            forget_former_secret=bool(wish.password),
        )
        log_event(log, "user changed", user=user.name, super=user.is_super, enabled=user.is_enabled)
        return request.answer()

    async def delete(self, connection: Connection, request: Command) -> Command:
        """Code 3003: with its policies and its quota. Raises AerobeeError."""
        name = read.text(request.fields, "username")
        await self._users.delete(name)
        log_event(log, "user deleted", user=name)
        return request.answer()

    async def put_policies(self, connection: Connection, request: Command) -> Command:
        """Codes 3006 and 3007: each policy is added, or replaces the one for its resource. Raises
        AerobeeError; those before the one that fails are set then."""
        for policy in read_policies(_user(request), request.body):
            await self._users.put_policy(policy)
            log_event(log, "policy set", policy=policy)
        return request.answer()

    async def remove_policies(self, connection: Connection, request: Command) -> Command:
        """Code 3008: that for a resource, or all of the user. Raises AerobeeError."""
        name, resource = _user(request), request.fields.get("resource", "")
        if resource:
            by_default = is_default(request.fields.get("policyType", ""))
            gone = [Policy.parse(name, resource, "All", "Allow", is_default=by_default)]
        else:
            known = self._book.table.users.get(name)
            if known is None:
                raise IllegalName(f"there is no user {name!r}; see `aerobee user list`")
            gone = list(known.policies)
        for policy in gone:
            await self._users.remove_policy(policy)
            log_event(log, "policy removed", user=name, resource=policy.pattern)
        return request.answer()


def _user(request: Command) -> str:
    return user_of(read.text(request.fields, "subject"))
