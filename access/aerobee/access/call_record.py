"""What is recorded of one call: that it was refused, or, if it is an act, who did what."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from aerobee.access.callers import CallContext, Caller, Callers, address_of
from aerobee.access.needs import MethodNeeds, Who
from aerobee.access.recorder import (
    Facts,
    NotAnAct,
    RecordedAct,
    Recorder,
    facts_of,
    is_administrative,
)
from aerobee.access.request_text import shortened
from aerobee.access.resources import Need
from aerobee.runtime.errors import AerobeeError


@dataclass(frozen=True, slots=True)
class Method:
    """One method of one server, and who is asked about its calls."""

    path: str
    needs: MethodNeeds
    callers: Callers
    recorder: Recorder


class CallRecord:
    """One call, as far as it is known."""

    __slots__ = ("_context", "acts", "caller", "metadata", "method")

    def __init__(self, method: Method, context: CallContext) -> None:
        self.method = method
        self.metadata = dict(context.invocation_metadata() or ())
        self.caller: Caller | None = None
        """None: nobody, as long as nothing is proved."""
        self.acts: list[Need] = []
        """Administrators' rights that it used."""
        self._context = context

    @property
    def address(self) -> str:
        """Where the call comes from; empty: not from an IP address."""
        return address_of(self._context.peer())

    def proved(self) -> Caller:
        """Who makes the call. Raises Unauthenticated, RegistryUnavailable."""
        method = self.method
        self.caller = method.callers.caller_of(self._context, self.metadata, method.path)
        return self.caller

    def learn(self, request: object) -> None:
        """For a call that is not checked: what the request would need, if it can be read."""
        with suppress(AerobeeError):  # illegal names are the servicer's to refuse
            self.acts += filter(is_administrative, self.method.needs.of(request, ""))

    def refused(self, error: AerobeeError, need: Need | None = None) -> None:
        """Count and record a refusal. `need`: the missing right."""
        method, caller = self.method, self.caller

        def facts() -> Facts:
            found = self._facts()
            return found if need is None else {**found, "needs": [shortened(str(need))]}

        if caller is None:
            error = method.callers.why_unproved(self._context, self.metadata, error)
        who = self.address if caller is None else str(caller)
        method.recorder.refused(facts, method.path, who, error, is_known=caller is not None)

    def act(self, request: object) -> RecordedAct | NotAnAct:
        """The act, if it is to be recorded. A change of master does not wait for the audit log's
        disk. `request`: None for a stream of requests."""
        method = self.method
        if not self.acts and method.needs.who is Who.USERS:
            return NotAnAct()
        return method.recorder.act(
            self._facts(),
            self.acts,
            request,
            is_awaited=method.needs.who is not Who.BROKERS,
        )

    def _facts(self) -> Facts:
        """What the audit log says about the call."""
        method, context, caller = self.method, self._context, self.caller
        certificate = method.callers.peer_identity(context)
        who = "anonymous" if caller is None else str(caller)
        return facts_of(context, self.metadata, method.path, who, certificate)
