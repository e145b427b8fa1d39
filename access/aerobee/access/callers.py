"""Who makes a call: a node that proves itself, or a user by its signature or its certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import unquote

from aerobee.access.book import AccessBook
from aerobee.access.node_certificates import NodeCertificates
from aerobee.access.nodes import NODE_KEY, OPERATOR, NodeName, NodeVerifier
from aerobee.access.signature import (
    AUTHORIZATION_KEY,
    DATE_TIME_KEY,
    ByOneOf,
    Signed,
    read_signature,
)
from aerobee.access.table import KnownUser
from aerobee.runtime.errors import AerobeeError, RegistryUnavailable, Unauthenticated

PROVED_MAX: Final = 4_096


class CallContext(Protocol):
    """The context of a call, as far as its guard needs it."""

    def peer(self) -> str: ...

    def invocation_metadata(self) -> Any: ...


PeerIdentity = Callable[[Any], str]
"""Gives the name in the client certificate of a call's connection; empty: it has none."""


SignatureOf = Callable[[CallContext], Signed | None]
"""Reads the signature of a protocol whose requests are signed one by one. None: it has none. Raises
Unauthenticated."""


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
    signed: Signed | ByOneOf | None = None
    peer_identity: str = ""

    @property
    def is_operator(self) -> bool:
        return self.node is not None and self.node.role == OPERATOR

    def __str__(self) -> str:
        return f"user {self.name}" if self.node is None else str(self.node)


class Callers:
    """The callers of one server."""

    def __init__(
        self,
        book: AccessBook,
        verifier: NodeVerifier,
        *,
        peer_identity: PeerIdentity = certificate_name,
        certificates: NodeCertificates | None = None,
        signature_of: SignatureOf | None = None,
    ) -> None:
        """`certificates`: the ones nodes must show; None: the cluster secret is enough. Without
        `signature_of`, the signature of gRPC's metadata counts."""
        self.book = book
        self.peer_identity = peer_identity
        self._verifier = verifier
        self._certificates = certificates
        self._signature_of = signature_of
        self._proved: dict[tuple[Any, Any], Caller] = {}
        """Signatures that were valid: clients sign the time in seconds, so many calls share one.
        """
        self._proved_by = book.table

    def caller_of(self, context: CallContext, metadata: dict[str, Any], path: str) -> Caller:
        """Who makes a call. Raises Unauthenticated, RegistryUnavailable."""
        proof = metadata.get(NODE_KEY)
        if proof is not None:
            node = self._verifier.check(proof, path)
            if self._certificates is not None:
                self._certificates.check(node, context)
            return Caller(node.name, node)
        if not self.book.is_known:
            # Clients retry on this error: a node that is starting must not look like a refusal.
            raise RegistryUnavailable(
                "this node has just started and does not know the users yet; try again in a moment"
            )
        said = (metadata.get(AUTHORIZATION_KEY), metadata.get(DATE_TIME_KEY))
        known = None if self._signature_of is not None else self._proved.get(said)
        if known is not None and self._proved_by is self.book.table:
            return known
        identity = self.peer_identity(context)
        owner = self.book.table.by_peer.get(identity) if identity else None
        try:
            signed = self._read(context, metadata)
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
            if self._signature_of is not None:
                proof = signed.without_content(user.secrets)
                return Caller(signed.access_key, user=user, signed=proof)
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

    def _read(self, context: CallContext, metadata: Mapping[str, Any]) -> Signed | None:
        if self._signature_of is not None:
            return self._signature_of(context)
        return read_signature(metadata)

    def why_unproved(
        self, context: CallContext, metadata: dict[str, Any], error: AerobeeError
    ) -> AerobeeError:
        """The reason, without the name the call claims unless such a user exists: people put
        secrets into the wrong field."""
        with suppress(Unauthenticated):
            signed = self._read(context, metadata)
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


def address_of(peer: str) -> str:
    """`ipv4:10.0.0.1:5000` -> `10.0.0.1`; empty for anything else."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    host = rest.rpartition(":")[0]
    return unquote(host).strip("[]") if kind == "ipv6" else host
