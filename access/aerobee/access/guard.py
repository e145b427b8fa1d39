"""The guard of a server's calls: first whether the caller is allowed, then whose quotas pay.

A guard has the parts that its node's settings ask for: who calls and what that caller may do
(`Rights`), how much it uses (`Meter`), what is recorded (`CallRecord`). Nodes pay nothing: they act
for users who were admitted elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import Token
from typing import Any

from aerobee.access.call_record import CallRecord, Method
from aerobee.access.callers import CallContext, Callers, address_of
from aerobee.access.meter import CURRENT_METER, Meter
from aerobee.access.needs import ANYONE, NeedsTable, Who
from aerobee.access.quotas import Quotas
from aerobee.access.recorder import FORWARDED_KEY, NotAnAct, RecordedAct, Recorder
from aerobee.access.rights import Rights
from aerobee.access.running import CURRENT_RIGHTS
from aerobee.runtime.errors import AerobeeError, InvalidArgument


class CallGuard:
    """The guard of one server."""

    def __init__(
        self,
        table: NeedsTable,
        callers: Callers,
        recorder: Recorder,
        *,
        is_checked: bool = True,
        quotas: Quotas | None = None,
        counts_connections: bool = False,
    ) -> None:
        """Unless it `is_checked`, everyone may do everything, acts are recorded if there is an
        audit log, and callers are told apart by address. Without `quotas` nobody pays.
        `counts_connections`: the server calls `quotas.disconnected` for each connection that ends.
        """
        self._table = table
        self._callers = callers
        self._recorder = recorder
        self._is_checked = is_checked
        self._quotas = quotas
        self._counts_connections = counts_connections

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when users or policies change, unless nothing depends on them."""
        if self._is_checked:
            self._callers.book.on_change(listener)

    def method(self, path: str) -> MethodGuard | None:
        """None: anyone may call it, nobody pays, and nothing is recorded.

        Raises:
            InvalidArgument: no need is stated for this method, which is a bug.
        """
        needs = self._table.get(path)
        if needs is None:
            if self._is_checked or self._recorder.has_log:
                raise InvalidArgument(f"{path} has no entry in the table of what calls need")
            needs = ANYONE
        is_act = needs.is_act and self._recorder.has_log
        if self._is_checked:
            is_guarded = needs.who is not Who.ANYONE
        else:
            is_guarded = is_act or self._quotas is not None
        if not is_guarded:
            return None
        return MethodGuard(
            Method(path, needs, self._callers, self._recorder),
            is_act=is_act,
            is_checked=self._is_checked,
            quotas=self._quotas,
            counts_connections=self._counts_connections,
        )


class MethodGuard:
    """The guard of one method."""

    __slots__ = (
        "_counts_connections",
        "_is_checked",
        "_method",
        "_quotas",
        "is_act",
        "is_judged_again",
    )

    def __init__(
        self,
        method: Method,
        *,
        is_act: bool,
        is_checked: bool,
        quotas: Quotas | None,
        counts_connections: bool,
    ) -> None:
        self._method = method
        self._is_checked = is_checked
        self._quotas = quotas
        self._counts_connections = counts_connections
        self.is_act = is_act
        self.is_judged_again = is_checked and method.needs.is_judged_again

    def admit(self, context: CallContext) -> Visit:
        """Raises Unauthenticated, AccessDenied, QuotaExceeded, RegistryUnavailable."""
        record: CallRecord | None = None
        rights: Rights | None = None
        if self._is_checked:
            record = CallRecord(self._method, context)
            rights = Rights(record)
        elif self.is_act:
            record = CallRecord(self._method, context)
            with suppress(AerobeeError):  # without proof, a caller is anonymous
                record.proved()
        return Visit(rights, record, self._meter(context, rights))

    def _meter(self, context: CallContext, rights: Rights | None) -> Meter | None:
        """None: nobody pays. Raises QuotaExceeded."""
        quotas = self._quotas
        if quotas is None:
            return None
        peer = context.peer()
        if rights is None:
            account = quotas.of_peer(peer) or quotas.of_address(address_of(peer))
        elif user_name := rights.user_name:
            account = quotas.of_user(user_name)
        else:
            return None
        if self._counts_connections:
            quotas.connect(account, peer)
        if rights is None and account.rates and _is_forwarded(context):
            return None
        return Meter(quotas, account)


class Visit:
    """One call that was let in."""

    __slots__ = ("_meter", "_record", "_rights", "_tokens")

    def __init__(
        self, rights: Rights | None, record: CallRecord | None, meter: Meter | None
    ) -> None:
        """Without `rights` it is not checked: what the caller says of itself proves nothing."""
        self._rights = rights
        self._record = record
        self._meter = meter
        self._tokens: tuple[Token[Meter | None], Token[Rights | None]] | None = None

    def check(self, request: Any) -> None:
        """Check that the call may do what a request, or one frame of a stream, asks for.

        Raises:
            AccessDenied, Unauthenticated; whatever reading the names raises.
        """
        if self._rights is not None:
            self._rights.check(request)
        elif self._record is not None:
            self._record.learn(request)

    def check_again(self) -> None:
        """Repeat the checks for everything that was allowed, if users or policies have changed.
        Raises as `check`."""
        if self._rights is not None:
            self._rights.check_again()

    def act(self, request: Any) -> RecordedAct | NotAnAct:
        """The act, if it is to be recorded."""
        return NotAnAct() if self._record is None else self._record.act(request)

    def enter(self) -> None:
        """What runs from here until `leave` works for this call."""
        self._tokens = CURRENT_METER.set(self._meter), CURRENT_RIGHTS.set(self._rights)

    def leave(self) -> None:
        if self._tokens is not None:
            CURRENT_METER.reset(self._tokens[0])
            CURRENT_RIGHTS.reset(self._tokens[1])
            self._tokens = None

    def enter_stream(self) -> None:
        """The same for a long-lasting call with a task of its own."""
        CURRENT_RIGHTS.set(self._rights)
        if self._meter is not None:
            CURRENT_METER.set(self._meter)
            self._meter.began()

    def leave_stream(self) -> None:
        """It has ended; releases everything it held."""
        if self._meter is not None:
            self._meter.ended()


def _is_forwarded(context: CallContext) -> bool:
    """Forwarded by another node, in a cluster whose nodes do not prove themselves."""
    return any(key == FORWARDED_KEY for key, _ in context.invocation_metadata() or ())
