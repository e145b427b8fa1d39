"""The guard of a server's calls: first whether the caller is allowed, then whose quotas pay.

Nodes pay nothing: they act for users who were admitted elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Token
from typing import Any

from aerobee.access.gate import Gate, MethodGate, Visit, address_of
from aerobee.access.meter import CURRENT_METER, Meter
from aerobee.access.quotas import Quotas
from aerobee.access.recorder import FORWARDED_KEY, NotAnAct, RecordedAct
from aerobee.access.running import CURRENT_JUDGE, Judge
from aerobee.access.unchecked import UncheckedGate, UncheckedMethod, UncheckedVisit


class QuotaGuard:
    """The guard of one server."""

    def __init__(
        self, gate: Gate | UncheckedGate | None, quotas: Quotas, *, counts_connections: bool
    ) -> None:
        """Without a `Gate` everyone may do everything, and callers are told apart by address.
        `counts_connections`: the server calls `quotas.disconnected` for each connection that ends.
        """
        self._gate = gate
        self._quotas = quotas
        self._counts_connections = counts_connections

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when users or policies change."""
        if self._gate is not None:
            self._gate.on_change(listener)

    def method(self, path: str) -> MeteredMethod | None:
        """None: anyone may call it, and nobody pays. Raises InvalidArgument as `Gate.method`."""
        gate = None if self._gate is None else self._gate.method(path)
        if isinstance(self._gate, Gate) and gate is None:
            return None
        return MeteredMethod(gate, self._quotas, counts_connections=self._counts_connections)


class MeteredMethod:
    """The guard of one method."""

    __slots__ = ("_counts_connections", "_gate", "_quotas")

    def __init__(
        self,
        gate: MethodGate | UncheckedMethod | None,
        quotas: Quotas,
        *,
        counts_connections: bool,
    ) -> None:
        self._gate = gate
        self._quotas = quotas
        self._counts_connections = counts_connections

    @property
    def is_act(self) -> bool:
        return self._gate is not None and self._gate.is_act

    @property
    def is_judged_again(self) -> bool:
        return self._gate is not None and self._gate.is_judged_again

    def admit(self, context: Any) -> MeteredVisit:
        """Raises Unauthenticated, AccessDenied, QuotaExceeded."""
        quotas, peer = self._quotas, context.peer()
        visit = None if self._gate is None else self._gate.admit(context)
        if not isinstance(visit, Visit):
            account = quotas.of_address(address_of(peer))
        elif visit.user_name:
            account = quotas.of_user(visit.user_name)
        else:
            return MeteredVisit(visit, None)
        if self._counts_connections:
            quotas.connect(account, peer)
        if not isinstance(visit, Visit) and account.rates and _is_forwarded(context):
            return MeteredVisit(visit, None)
        return MeteredVisit(visit, Meter(quotas, account))


class MeteredVisit:
    """One call that was let in."""

    __slots__ = ("_meter", "_tokens", "_visit")

    def __init__(self, visit: Visit | UncheckedVisit | None, meter: Meter | None) -> None:
        self._visit = visit
        self._meter = meter
        self._tokens: tuple[Token[Meter | None], Token[Judge | None]] | None = None

    def check(self, request: Any) -> None:
        if self._visit is not None:
            self._visit.check(request)

    def check_again(self) -> None:
        if self._visit is not None:
            self._visit.check_again()

    def act(self, request: Any) -> RecordedAct | NotAnAct:
        return NotAnAct() if self._visit is None else self._visit.act(request)

    def enter(self) -> None:
        self._tokens = CURRENT_METER.set(self._meter), CURRENT_JUDGE.set(self._judge())

    def leave(self) -> None:
        if self._tokens is not None:
            CURRENT_METER.reset(self._tokens[0])
            CURRENT_JUDGE.reset(self._tokens[1])
            self._tokens = None

    def enter_stream(self) -> None:
        CURRENT_JUDGE.set(self._judge())
        if self._meter is not None:
            CURRENT_METER.set(self._meter)
            self._meter.began()

    def leave_stream(self) -> None:
        if self._meter is not None:
            self._meter.ended()

    def _judge(self) -> Judge | None:
        """None: there is no access control, so whatever a caller says of itself proves nothing."""
        return self._visit if isinstance(self._visit, Visit) else None


def _is_forwarded(context: Any) -> bool:
    """Forwarded by another node, in a cluster whose nodes do not prove themselves."""
    return any(key == FORWARDED_KEY for key, _ in context.invocation_metadata() or ())
