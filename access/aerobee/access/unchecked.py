"""The gate of a node without access control: everyone may do everything, and acts are recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aerobee.access.gate import CallContext, Caller, Gate, MethodGate
from aerobee.access.needs import Who
from aerobee.access.recorder import NotAnAct, RecordedAct, is_administrative
from aerobee.access.resources import Need
from aerobee.runtime.errors import AerobeeError


class UncheckedGate:
    """The gate of one server."""

    def __init__(self, gate: Gate) -> None:
        """`gate` knows the needs of calls, and checks proofs of identity."""
        self._gate = gate

    def on_change(self, listener: Callable[[], None]) -> None:
        """No change makes a difference."""

    def method(self, path: str) -> UncheckedMethod | None:
        """None: its calls are not acts. Raises InvalidArgument as Gate's."""
        method = self._gate.method(path)
        return UncheckedMethod(method) if method is not None and method.is_act else None


class UncheckedMethod:
    """One method whose calls may be acts."""

    is_act = True
    is_judged_again = False

    def __init__(self, method: MethodGate) -> None:
        self._method = method

    def admit(self, context: CallContext) -> UncheckedVisit:
        metadata = dict(context.invocation_metadata() or ())
        caller: Caller | None = None
        with suppress(AerobeeError):  # without proof, a caller is anonymous
            caller = self._method.gate.caller_of(context, metadata, self._method.path)
        return UncheckedVisit(self._method, caller, context, metadata)


class UncheckedVisit:
    """One call."""

    __slots__ = ("_acts", "_caller", "_context", "_metadata", "_method")

    def __init__(
        self,
        method: MethodGate,
        caller: Caller | None,
        context: CallContext,
        metadata: dict[str, Any],
    ) -> None:
        self._method = method
        self._caller = caller
        self._context = context
        self._metadata = metadata
        self._acts: list[Need] = []

    def check(self, request: Any) -> None:
        with suppress(AerobeeError):  # illegal names are the servicer's to refuse
            needs = self._method.needs.of(request, "")
            self._acts += filter(is_administrative, needs)

    def check_again(self) -> None: ...

    def act(self, request: Any) -> RecordedAct | NotAnAct:
        method = self._method
        if not self._acts and method.needs.who is Who.USERS:
            return NotAnAct()
        return method.act(self._context, self._metadata, self._caller, self._acts, request)
