"""The one place where a call is let in or refused: first who makes it, then whether everything it
needs is allowed.

A refusal says which right is missing, or which rule denies. It never depends on what exists, so it
reveals nothing about that. What a stream was allowed is judged again when users or policies change.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from aerobee.access.call_record import CallRecord
from aerobee.access.callers import Caller
from aerobee.access.needs import Who
from aerobee.access.nodes import BROKER, NAMESERVER, OPERATOR
from aerobee.access.recorder import FORWARDED_KEY, is_administrative
from aerobee.access.resources import Need
from aerobee.access.table import KnownUser
from aerobee.runtime.errors import AccessDenied, AerobeeError, InvalidArgument, Unauthenticated
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

REFUSALS: Final = (Unauthenticated, AccessDenied)
NEEDS_PER_STREAM_MAX: Final = 20_000
NAMESPACE_KEY: Final = "x-mq-namespace"


class Rights:
    """What the caller of one call may do, and what it was allowed to do. Refusals are recorded."""

    __slots__ = (
        "_allowed",
        "_caller",
        "_denied",
        "_method",
        "_names",
        "_namespace",
        "_record",
        "_source",
        "_table",
        "_user",
    )

    def __init__(self, record: CallRecord) -> None:
        """Raises Unauthenticated, AccessDenied, RegistryUnavailable."""
        method = record.method
        try:
            caller = record.proved()
            check_who(method.needs.who, caller, caller.user)
            if caller.node is None and FORWARDED_KEY in record.metadata:
                raise AccessDenied(
                    f"{caller} is not a node, and only nodes may forward the calls of others"
                )
        except REFUSALS as error:
            record.refused(error)
            raise
        if method.needs.who is Who.SUPER_USERS:
            _log_administration(caller, method.path, "to be a super user")
        self._method = method
        self._record = record
        self._caller = caller
        self._user = caller.user
        self._source = record.address if caller.node is None else ""
        namespace = record.metadata.get(NAMESPACE_KEY, "")
        self._namespace = namespace if isinstance(namespace, str) else ""
        self._denied: Need | None = None
        self._allowed: set[Need] = set()
        self._names: set[str] = set()
        """Names for which every need is allowed."""
        self._table = method.callers.book.table

    @property
    def user_name(self) -> str:
        """Empty: the caller is a node."""
        return "" if self._caller.node is not None else self._caller.name

    def check(self, request: Any) -> None:
        """Check that the call may do what a request, or one frame of a stream, asks for.

        Raises:
            AccessDenied, Unauthenticated; whatever reading the names raises.
        """
        try:
            self._check(request)
        except REFUSALS as error:
            self._refused(error)
            raise

    def _check(self, request: Any) -> None:
        if self._table is not self._method.callers.book.table:
            self._judge_again()
        user, needs = self._user, self._method.needs
        if user is None:
            self._check_speaker(request)
            if self._caller.is_operator or needs.is_act:
                for need in needs.of(request, self._namespace):
                    self._note(need)
            return
        names = None if needs.names is None else needs.names(request)
        if names is not None and names <= self._names:
            return
        allowed = self._allowed
        for need in needs.of(request, self._namespace):
            if need not in allowed:
                self._judge(need, user)
                if len(allowed) >= NEEDS_PER_STREAM_MAX:
                    raise InvalidArgument(
                        f"a call names at most {NEEDS_PER_STREAM_MAX} topics and groups; use "
                        "several"
                    )
                allowed.add(need)
                self._note(need)
        if names is not None:
            self._names |= names

    def _check_speaker(self, request: Any) -> None:
        """A node may speak only for itself."""
        speaker = self._method.needs.speaker
        said = None if speaker is None else speaker(request)
        if said is not None and said != self._caller.node:
            raise AccessDenied(
                f"{self._caller} may not speak for {said}: the call is proved by the one, and says "
                "that it comes from the other"
            )

    def may(self, need: Need) -> bool:
        """Whether the caller, as it is now, may do this. Nothing is recorded."""
        try:
            user = self._user_now()
        except REFUSALS:
            return False
        return user is None or user.decide(need, self._source).is_allowed

    @property
    def hides_nothing(self) -> bool:
        """No policy of the caller denies anything, so none of them need be asked."""
        user = self._user
        return user is None or user.user.is_super or not user.rules.denies

    def hides(self, need: Need) -> bool:
        """Whether a policy denies this to the caller, as it is now. Nothing is recorded."""
        try:
            user = self._user_now()
        except REFUSALS:
            return True
        return user is not None and user.decide(need, self._source).is_denied

    def require_seen(self, need: Need) -> None:
        """For what only the work shows, such as the topic of a record. Raises as `check`."""
        try:
            user = self._user_now()
            if user is not None and user.decide(need, self._source).is_denied:
                self._judge(need, user)
        except REFUSALS as error:
            self._refused(error)
            raise

    def require(self, need: Need) -> None:
        """For what only the work shows and no earlier check has covered: the caller, as it is now,
        has this right. Raises as `check`."""
        try:
            user = self._user_now()
            if user is not None:
                self._judge(need, user)
        except REFUSALS as error:
            self._refused(error)
            raise

    def check_again(self) -> None:
        """Repeat the checks for everything that was allowed, if users or policies have changed.
        Raises as `check`."""
        try:
            self._judge_again()
        except REFUSALS as error:
            self._refused(error)
            raise

    def _user_now(self) -> KnownUser | None:
        """The user as of now; None: a node, which has all rights of users. Raises Unauthenticated,
        AccessDenied."""
        method, caller = self._method, self._caller
        user = None if caller.node is not None else method.callers.user_of(caller)
        check_who(method.needs.who, caller, user)
        return user

    def _judge_again(self) -> None:
        table = self._method.callers.book.table
        if table is self._table:
            return
        self._user = user = self._user_now()
        if user is not None:
            for need in self._allowed:
                self._judge(need, user)
        self._table = table

    def _note(self, need: Need) -> None:
        """Each act of an administrator is a line of the log."""
        if is_administrative(need):
            self._record.acts.append(need)
            _log_administration(self._caller, self._method.path, str(need))

    def _judge(self, need: Need, user: KnownUser) -> None:
        ruling = user.decide(need, self._source)
        if not ruling.is_allowed:
            self._denied = need
            reason = ruling.why or f"the policy is: {ruling.rule}"
            raise AccessDenied(
                f"{self._caller} may not: this needs {need}; {reason}", resource=need.resource
            )

    def _refused(self, error: AerobeeError) -> None:
        self._record.refused(error, self._denied)
        self._denied = None


def check_who(who: Who, caller: Caller, user: KnownUser | None) -> None:
    """Whether it may make a call of this kind at all. Raises AccessDenied."""
    role = "" if caller.node is None else caller.node.role
    if who is Who.BROKERS and role != BROKER:
        raise AccessDenied(
            f"{caller} is not a broker of this cluster, and only brokers may do this"
        )
    if who is Who.NODES and role not in (BROKER, NAMESERVER):
        raise AccessDenied(f"{caller} is not a node of this cluster, and only nodes may do this")
    is_super = role == OPERATOR or (user is not None and user.user.is_super)
    if who is Who.SUPER_USERS and not is_super:
        raise AccessDenied(f"{caller} is not a super user, and only super users may do this")


def _log_administration(caller: Caller, method: str, need: str) -> None:
    log_event(log, "administrative call", caller=caller, method=method, needs=need)
