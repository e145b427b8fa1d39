"""The one place where a call is let in or refused: first who makes it, then whether everything it
needs is allowed.

A refusal says which right is missing, or which rule denies. It never depends on what exists, so it
reveals nothing about that. What a stream was allowed is judged again when users or policies change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import unquote

from aerobee.access.book import AccessBook
from aerobee.access.needs import MethodNeeds, NeedsTable, Who
from aerobee.access.node_certificates import NodeCertificates
from aerobee.access.nodes import BROKER, NAMESERVER, NODE_KEY, OPERATOR, NodeName, NodeVerifier
from aerobee.access.recorder import (
    FORWARDED_KEY,
    Facts,
    NotAnAct,
    RecordedAct,
    Recorder,
    facts_of,
    is_administrative,
)
from aerobee.access.request_text import shortened
from aerobee.access.resources import Need
from aerobee.access.signature import AUTHORIZATION_KEY, DATE_TIME_KEY, Signed, read_signature
from aerobee.access.table import KnownUser
from aerobee.runtime.errors import (
    AccessDenied,
    AerobeeError,
    InvalidArgument,
    RegistryUnavailable,
    Unauthenticated,
)
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

REFUSALS: Final = (Unauthenticated, AccessDenied)
NEEDS_PER_STREAM_MAX: Final = 20_000
PROVED_MAX: Final = 4_096
NAMESPACE_KEY: Final = "x-mq-namespace"


class CallContext(Protocol):
    """The context of a call, as far as the gate needs it."""

    def peer(self) -> str: ...

    def invocation_metadata(self) -> Any: ...


PeerIdentity = Callable[[Any], str]
"""Gives the name in the client certificate of a call's connection; empty: it has none."""


def certificate_name(context: Any) -> str:
    """The common name, or else the first alternative name. With an engine that does not report
    certificates, callers have none."""
    told = getattr(context, "peer_certificate", None)
    certificate = told() if told is not None else None
    if not certificate:
        return ""
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return next((str(value) for _, value in certificate.get("subjectAltName", ())), "")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call, and how they proved it."""

    name: str
    node: NodeName | None = None
    user: KnownUser | None = None
    """As of when the call came; None: a node."""
    signed: Signed | None = None
    peer_identity: str = ""

    @property
    def is_operator(self) -> bool:
        return self.node is not None and self.node.role == OPERATOR

    def __str__(self) -> str:
        return f"user {self.name}" if self.node is None else str(self.node)


class Gate:
    """The gate of one server."""

    def __init__(
        self,
        table: NeedsTable,
        book: AccessBook,
        verifier: NodeVerifier,
        *,
        recorder: Recorder | None = None,
        peer_identity: PeerIdentity = certificate_name,
        certificates: NodeCertificates | None = None,
    ) -> None:
        """`certificates`: the ones nodes must show; None: the cluster secret is enough."""
        self._table = table
        self.recorder = recorder or Recorder()
        self.book = book
        self.verifier = verifier
        self.peer_identity = peer_identity
        self._certificates = certificates
        self._proved: dict[tuple[Any, Any], Caller] = {}
        """Signatures that were valid: clients sign the time in seconds, so many calls share one.
        """
        self._proved_by = book.table

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when users or policies change."""
        self.book.on_change(listener)

    def method(self, path: str) -> MethodGate | None:
        """None: anyone may call it.

        Raises:
            InvalidArgument: no need is stated for this method, which is a bug.
        """
        needs = self._table.get(path)
        if needs is None:
            raise InvalidArgument(f"{path} has no entry in the table of what calls need")
        return None if needs.who is Who.ANYONE else MethodGate(self, path, needs)

    def caller_of(self, context: CallContext, metadata: dict[str, Any], path: str) -> Caller:
        """Who makes a call. Raises Unauthenticated, RegistryUnavailable."""
        proof = metadata.get(NODE_KEY)
        if proof is not None:
            node = self.verifier.check(proof, path)
            if self._certificates is not None:
                self._certificates.check(node, context)
            return Caller(node.name, node)
        if not self.book.is_known:
            # Clients retry on this error: a node that is starting must not look like a refusal.
            raise RegistryUnavailable(
                "this node has just started and does not know the users yet; try again in a moment"
            )
        said = (metadata.get(AUTHORIZATION_KEY), metadata.get(DATE_TIME_KEY))
        known = self._proved.get(said)
        if known is not None and self._proved_by is self.book.table:
            return known
        identity = self.peer_identity(context)
        owner = self.book.table.by_peer.get(identity) if identity else None
        try:
            signed = read_signature(metadata)
        except Unauthenticated:
            # Official clients without keys send a signature with an empty name.
            if owner is None:
                raise
            signed = None
        if signed is not None:
            user = self.book.table.users.get(signed.access_key)
            if user is None or not user.user.is_enabled or not signed.is_by(user.secrets):
                raise Unauthenticated(
                    f"the call's signature is not that of an enabled user {signed.access_key!r}; "
                    "check access key and secret"
                )
            caller = Caller(signed.access_key, user=user, signed=signed)
            self._remember(said, caller)
            return caller
        if owner is None:
            raise Unauthenticated(
                "the call does not say who makes it; set AEROBEE_CREDENTIALS_FILE, or access key "
                "and secret in the client"
            )
        if not owner.user.is_enabled:
            raise Unauthenticated(f"the certificate's user {owner.user.name!r} is disabled")
        return Caller(owner.user.name, user=owner, peer_identity=identity)

    def why_unproved(self, metadata: dict[str, Any], error: AerobeeError) -> AerobeeError:
        """The reason, without the name the call claims unless such a user exists: people put
        secrets into the wrong field."""
        with suppress(Unauthenticated):
            signed = read_signature(metadata)
            if signed is not None and signed.access_key not in self.book.table.users:
                return Unauthenticated("its access key is that of no user")
        return error

    def _remember(self, said: tuple[Any, Any], caller: Caller) -> None:
        if self._proved_by is not self.book.table or len(self._proved) >= PROVED_MAX:
            self._proved.clear()
            self._proved_by = self.book.table
        self._proved[said] = caller

    def user_of(self, caller: Caller) -> KnownUser:
        """The user as it is now. Raises Unauthenticated: its proof is no longer valid."""
        table = self.book.table
        if caller.peer_identity:
            user = table.by_peer.get(caller.peer_identity)
        else:
            user = table.users.get(caller.name)
        is_proved = (
            user is not None
            and user.user.name == caller.name
            and user.user.is_enabled
            and (caller.signed is None or caller.signed.is_by(user.secrets))
        )
        if user is None or not is_proved:
            raise Unauthenticated(
                f"user {caller.name!r} was deleted or disabled, or its secret was changed"
            )
        return user


class MethodGate:
    """The gate of one method."""

    __slots__ = ("gate", "needs", "path")

    def __init__(self, gate: Gate, path: str, needs: MethodNeeds) -> None:
        self.gate = gate
        self.path = path
        self.needs = needs

    @property
    def is_act(self) -> bool:
        return self.needs.is_act and self.gate.recorder.has_log

    @property
    def is_judged_again(self) -> bool:
        return self.needs.is_judged_again

    def admit(self, context: CallContext) -> Visit:
        """Raises Unauthenticated, AccessDenied."""
        metadata = dict(context.invocation_metadata() or ())
        gate = self.gate
        caller: Caller | None = None
        try:
            caller = gate.caller_of(context, metadata, self.path)
            self._check_who(caller, caller.user)
            if caller.node is None and FORWARDED_KEY in metadata:
                raise AccessDenied(
                    f"{caller} is not a node, and only nodes may forward the calls of others"
                )
        except REFUSALS as error:
            self.refused(context, metadata, caller, error)
            raise
        if self.needs.who is Who.SUPER_USERS:
            _log_administration(caller, self.path, "to be a super user")
        return Visit(self, caller, context, metadata)

    def refused(
        self,
        context: CallContext,
        metadata: dict[str, Any],
        caller: Caller | None,
        error: AerobeeError,
        need: Need | None = None,
    ) -> None:
        """Count and record a refusal. `need`: the missing right."""
        gate = self.gate

        def facts() -> Facts:
            found = self.facts(context, metadata, caller)
            return found if need is None else {**found, "needs": [shortened(str(need))]}

        if caller is None:
            error = gate.why_unproved(metadata, error)
        who = address_of(context.peer()) if caller is None else str(caller)
        gate.recorder.refused(facts, self.path, who, error, is_known=caller is not None)

    def act(
        self,
        context: CallContext,
        metadata: dict[str, Any],
        caller: Caller | None,
        needs: list[Need],
        request: Any,
    ) -> RecordedAct:
        """An act to be recorded. A change of master does not wait for the audit log's disk."""
        return self.gate.recorder.act(
            self.facts(context, metadata, caller),
            needs,
            request,
            is_awaited=self.needs.who is not Who.BROKERS,
        )

    def facts(self, context: CallContext, metadata: dict[str, Any], caller: Caller | None) -> Facts:
        """What the audit log says about the call; None: the caller is unknown."""
        certificate = self.gate.peer_identity(context)
        who = "anonymous" if caller is None else str(caller)
        return facts_of(context, metadata, self.path, who, certificate)

    def judge_caller(self, caller: Caller) -> KnownUser | None:
        """The caller as of now; None: a node, which has all rights of users. Raises as `admit`."""
        user = None if caller.node is not None else self.gate.user_of(caller)
        self._check_who(caller, user)
        return user

    def _check_who(self, caller: Caller, user: KnownUser | None) -> None:
        who, role = self.needs.who, "" if caller.node is None else caller.node.role
        if who is Who.BROKERS and role != BROKER:
            raise AccessDenied(
                f"{caller} is not a broker of this cluster, and only brokers may do this"
            )
        if who is Who.NODES and role not in (BROKER, NAMESERVER):
            raise AccessDenied(
                f"{caller} is not a node of this cluster, and only nodes may do this"
            )
        is_super = role == OPERATOR or (user is not None and user.user.is_super)
        if who is Who.SUPER_USERS and not is_super:
            raise AccessDenied(f"{caller} is not a super user, and only super users may do this")


class Visit:
    """One call that was let in, and what it was allowed to do."""

    __slots__ = (
        "_acts",
        "_allowed",
        "_caller",
        "_context",
        "_denied",
        "_metadata",
        "_method",
        "_names",
        "_namespace",
        "_source",
        "_table",
        "_user",
    )

    def __init__(
        self,
        method: MethodGate,
        caller: Caller,
        context: CallContext,
        metadata: dict[str, Any],
    ) -> None:
        self._method = method
        self._caller = caller
        self._user = caller.user
        self._context = context
        self._metadata = metadata
        self._source = address_of(context.peer()) if caller.node is None else ""
        namespace = metadata.get(NAMESPACE_KEY, "")
        self._namespace = namespace if isinstance(namespace, str) else ""
        self._denied: Need | None = None
        self._acts: list[Need] = []
        """Administrators' rights that it used."""
        self._allowed: set[Need] = set()
        self._names: set[str] = set()
        """Names for which every need is allowed."""
        self._table = method.gate.book.table

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
        if self._table is not self._method.gate.book.table:
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
            user = self._method.judge_caller(self._caller)
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
            user = self._method.judge_caller(self._caller)
        except REFUSALS:
            return True
        return user is not None and user.decide(need, self._source).is_denied

    def require_seen(self, need: Need) -> None:
        """For what only the work shows, such as the topic of a record. Raises as `check`."""
        try:
            user = self._method.judge_caller(self._caller)
            if user is not None and user.decide(need, self._source).is_denied:
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

    def act(self, request: Any) -> RecordedAct | NotAnAct:
        """The act, if it is to be recorded."""
        method, acts = self._method, self._acts
        if not acts and method.needs.who is Who.USERS:
            return NotAnAct()
        return method.act(self._context, self._metadata, self._caller, acts, request)

    def _judge_again(self) -> None:
        table = self._method.gate.book.table
        if table is self._table:
            return
        self._user = user = self._method.judge_caller(self._caller)
        if user is not None:
            for need in self._allowed:
                self._judge(need, user)
        self._table = table

    def _note(self, need: Need) -> None:
        """Each act of an administrator is a line of the log."""
        if is_administrative(need):
            self._acts.append(need)
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
        self._method.refused(self._context, self._metadata, self._caller, error, self._denied)
        self._denied = None


def _log_administration(caller: Caller, method: str, need: str) -> None:
    log_event(log, "administrative call", caller=caller, method=method, needs=need)


def address_of(peer: str) -> str:
    """`ipv4:10.0.0.1:5000` -> `10.0.0.1`; empty for anything else."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    host = rest.rpartition(":")[0]
    return unquote(host).strip("[]") if kind == "ipv6" else host
