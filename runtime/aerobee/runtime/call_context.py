"""The call for which the running code works: the ids that connect its log lines across processes.

Owns: one context variable. A server sets it once for each call that it serves; a client or service
may set it around work with one purpose (`request_scope`); tasks started inside inherit it. Nothing
is read or formatted until a line is logged or another service is called, so a call that does
neither pays only for setting the variable.

    aerobee-request-id: 5f3a9c12-17          one id for a request and for all it brings about
    traceparent: 00-<trace id>-<span id>-01  W3C Trace Context, where a caller gives it

Both come from outside: anything that does not look like an id is ignored, so that no client can
write into a foreign log.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

REQUEST_ID_KEY = "aerobee-request-id"
TRACEPARENT_KEY = "traceparent"

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RequestIds:
    """The ids of a request; empty: it has none."""

    request_id: str = ""
    traceparent: str = ""

    def fields(self) -> dict[str, str]:
        """The fields of log lines."""
        found = {"request_id": self.request_id} if self.request_id else {}
        trace = _TRACEPARENT.fullmatch(self.traceparent)
        if trace is not None:
            found["trace_id"], found["span_id"] = trace.groups()
        return found

    def metadata(self) -> Metadata:
        """The metadata of calls."""
        given = ((REQUEST_ID_KEY, self.request_id), (TRACEPARENT_KEY, self.traceparent))
        return tuple((key, value) for key, value in given if value)


class CallInfo(Protocol):
    """A call as its log lines describe it; asked only when a line is written."""

    def ids(self) -> RequestIds: ...

    def fields(self) -> Mapping[str, object]: ...


@dataclass(frozen=True, slots=True)
class _Request:
    """Work that a program does for a purpose of its own."""

    request_ids: RequestIds

    def ids(self) -> RequestIds:
        return self.request_ids

    def fields(self) -> Mapping[str, object]:
        return self.request_ids.fields()


CURRENT_CALL: ContextVar[CallInfo | None] = ContextVar("aerobee_call", default=None)
"""Set by the error border of a server (`aerobee.rpc.serving`) and by `request_scope`."""


class RequestNames:
    """Makes request ids: a prefix that identifies the caller, and a number.

    All requests of one client or service share the prefix, so a search for it finds all of them.
    """

    __slots__ = ("_number", "prefix")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._number = 0

    def __repr__(self) -> str:
        return f"RequestNames({self.prefix!r})"

    @classmethod
    def of_chance(cls, chance: random.Random) -> RequestNames:
        """With a random prefix that no other client has."""
        return cls(f"{chance.getrandbits(32):08x}")

    def next(self) -> str:
        self._number += 1
        return f"{self.prefix}-{self._number}"


def current_ids() -> RequestIds:
    """The ids of the call or request on whose behalf the caller works."""
    call = CURRENT_CALL.get()
    return RequestIds() if call is None else call.ids()


def current_fields() -> Mapping[str, object]:
    """The fields of log lines about it; empty outside of all calls."""
    call = CURRENT_CALL.get()
    return {} if call is None else call.fields()


@contextmanager
def request_scope(request_id: str, *, traceparent: str = "") -> Iterator[None]:
    """Everything inside is done for this request: log lines show its ids, and calls pass them on.

    Ids that are too long or contain other characters are left out.
    """
    ids = ids_from([(REQUEST_ID_KEY, request_id), (TRACEPARENT_KEY, traceparent)])
    token = CURRENT_CALL.set(_Request(ids))
    try:
        yield
    finally:
        CURRENT_CALL.reset(token)


def outgoing_ids(names: RequestNames) -> RequestIds:
    """The ids for a call made now: those of the request it is made for, or new ones."""
    ids = current_ids()
    return ids if ids.request_id else RequestIds(names.next(), ids.traceparent)


def ids_from(metadata: Iterable[tuple[str, str | bytes]]) -> RequestIds:
    """The ids in a call's metadata; malformed ones count as absent."""
    request_id = traceparent = ""
    for key, value in metadata:
        if key == REQUEST_ID_KEY and _matches(_REQUEST_ID, value):
            request_id = str(value)
        elif key == TRACEPARENT_KEY and _matches(_TRACEPARENT, value):
            traceparent = str(value)
    return RequestIds(request_id, traceparent)


def _matches(pattern: re.Pattern[str], value: str | bytes) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
