"""Who makes a request, by Apache's signature, and whether it is let in.

    AccessKey: KEY    Signature: base64 of HMAC-SHA1 over the values of all other fields, in the
                      order of the fields' names, and the body

The signature has no time: anyone who sees a signed request on the network can repeat it until the
secret is changed. Only TLS prevents that.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import quote

from aerobee.access.guard import CallGuard, MethodGuard, Visit
from aerobee.access.needs import MethodNeeds
from aerobee.access.node import NodeAccess
from aerobee.access.signature import Signed
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.rocketmq_remoting.dispatch import Answered, Serve
from aerobee.runtime.errors import Unauthenticated

_ACCESS_KEY: Final = "AccessKey"
_SIGNATURE: Final = "Signature"
_LENGTH_MAX: Final = 1_024


class RemotingCall:
    """One request as its guard sees it. Implements `access.callers.CallContext`."""

    __slots__ = ("_connection", "request")

    def __init__(self, connection: Connection, request: Command) -> None:
        self._connection = connection
        self.request = request

    def peer(self) -> str:
        """In gRPC's notation."""
        return peer_of(self._connection)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """None: nodes prove themselves, and forward calls, by gRPC only."""
        return ()

    def is_encrypted(self) -> bool:
        return self._connection.is_encrypted

    def peer_certificate(self) -> dict[str, Any] | None:
        return self._connection.peer_certificate()


def peer_of(connection: Connection) -> str:
    """`ipv4:127.0.0.1:4711`, as gRPC names it."""
    peer = connection.peer
    if not peer.startswith("["):
        return f"ipv4:{peer}"
    host, _, port = peer.rpartition(":")
    return f"ipv6:{quote(host, safe=':')}:{port}"


def read_signature(call: Any) -> Signed | None:
    """What a request claims; None: it is not signed. Raises Unauthenticated: its signature cannot
    be read."""
    request: Command = call.request
    fields = request.fields
    access_key, signature = fields.get(_ACCESS_KEY, ""), fields.get(_SIGNATURE, "")
    if not access_key and not signature:
        return None
    if not access_key or not signature or max(len(access_key), len(signature)) > _LENGTH_MAX:
        raise _unreadable(f"{_ACCESS_KEY} or {_SIGNATURE} is missing or too long")
    try:
        digest = base64.b64decode(signature.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise _unreadable(f"{_SIGNATURE} is not base64") from None
    return Signed(access_key, signed_content(fields, request.body), digest)


def signed_content(fields: Mapping[str, str], body: bytes) -> bytes:
    """What a request's signature signs."""
    values = "".join(fields[name] for name in sorted(fields) if name != _SIGNATURE)
    return values.encode("utf-8", "replace") + body


def _unreadable(why: str) -> Unauthenticated:
    return Unauthenticated(f"the request's signature cannot be read: {why}; see docs/access.md")


# ------------------------------------------------------------------------------ the guard


def path_of(code: int) -> str:
    """How a request is named in audit logs and metrics."""
    return f"/remoting/{Ask(code).name}"


def guarded(
    table: Mapping[int, Serve], needs: Mapping[int, MethodNeeds], access: NodeAccess
) -> dict[int, Serve]:
    """The same table behind the node's access control and quotas.

    Raises:
        InvalidArgument: the need of a code is not stated, which is a bug.
    """
    guard = access.guard(
        {path_of(code): each for code, each in needs.items()},
        counts_connections=True,
        signature_of=read_signature,
    )
    return {code: _guarded(serve, guard, path_of(code)) for code, serve in table.items()}


def _guarded(serve: Serve, guard: CallGuard, path: str) -> Serve:
    found = guard.method(path)
    if found is None:
        return serve
    method: MethodGuard = found

    def serve_guarded(connection: Connection, request: Command) -> Answered:
        visit = method.admit(RemotingCall(connection, request))
        visit.check(request)
        if method.is_act:
            return _recorded(visit, serve, connection, request)
        visit.enter()
        try:
            answered = serve(connection, request)
        finally:
            visit.leave()
        if answered is None or isinstance(answered, Command):
            return answered
        return _within(visit, answered)

    return serve_guarded


class SaidFields:
    """The fields of a request as the audit log reads them from a protobuf message. A body may hold
    a secret, so it is left out."""

    def __init__(self, request: Command) -> None:
        self._request = request

    def ListFields(self) -> list[tuple[Any, str]]:
        return [
            (SimpleNamespace(name=name, enum_type=None), value)
            for name, value in sorted(self._request.fields.items())
            if name not in (_ACCESS_KEY, _SIGNATURE)
        ]


async def _recorded(
    visit: Visit, serve: Serve, connection: Connection, request: Command
) -> Command | None:
    """An act: its answer waits until it is recorded."""
    visit.enter()
    try:
        async with visit.act(SaidFields(request)):
            answered = serve(connection, request)
            if answered is None or isinstance(answered, Command):
                return answered
            return await answered
    finally:
        visit.leave()


async def _within(visit: Visit, work: Coroutine[Any, Any, Command | None]) -> Command | None:
    """In a task of its own."""
    visit.enter()
    try:
        return await work
    finally:
        visit.leave()
