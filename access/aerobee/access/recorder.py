"""What one process records about calls: how many were refused, and the lines of the audit log.

Owns: the content of a line. From a request, it takes only what cannot be a secret (`request_text`).
From an unproved caller, it takes a name only if that name exists: people put secrets into the wrong
fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import unquote

from aerobee.access.request_text import ITEMS_MAX, request_text, shortened
from aerobee.access.resources import Action, Need
from aerobee.runtime.audit_log.reading import LogPart, WantedLines
from aerobee.runtime.call_context import REQUEST_ID_KEY, ids_from
from aerobee.runtime.errors import AerobeeError, NotWritable, error_name
from aerobee.runtime.metrics.families import AnyFamily, Gathered, counter
from aerobee.runtime.task_groups import sole_cause

ADMINISTRATIVE: Final = Action.CREATE | Action.UPDATE | Action.DELETE
FORWARDED_KEY: Final = "x-mq-forwarded"
"""The address of a client whose call another node forwards."""
OFFICIAL_REQUEST_ID_KEY: Final = "x-mq-request-id"

Facts = dict[str, Any]


def is_administrative(need: Need) -> bool:
    return not need.actions & ~ADMINISTRATIVE


class Lines(Protocol):
    """The lines of an audit log; see AuditLog."""

    @property
    def is_strict(self) -> bool: ...

    def takes_refusal(self, who: str, *, is_known: bool) -> bool: ...

    def note(self, content: Mapping[str, Any]) -> None: ...

    async def record(self, content: Mapping[str, Any]) -> bool: ...

    async def read_back(self, before: str, wanted: WantedLines, lines_max: int) -> LogPart: ...

    def families(self) -> list[AnyFamily]: ...


class Recorder:
    """The recorder of one process. On the loop."""

    def __init__(self, lines: Lines | None = None) -> None:
        """Without `lines` there is no audit log, and refusals are only counted."""
        self._lines = lines
        self._refusals: dict[tuple[str, str], int] = {}

    @property
    def has_log(self) -> bool:
        return self._lines is not None

    async def read_back(self, before: str, wanted: WantedLines, lines_max: int) -> LogPart | None:
        """The last lines; None: this node keeps no log. Raises Busy, InvalidArgument."""
        if self._lines is None:
            return None
        return await self._lines.read_back(before, wanted, lines_max)

    def refused(
        self,
        facts: Callable[[], Facts],
        path: str,
        who: str,
        error: AerobeeError,
        *,
        is_known: bool,
    ) -> None:
        """`who`: the caller's name if `is_known`, else its address. `facts` is called only if there
        is a line to write."""
        code = error_name(error)
        counted = (path.rpartition("/")[2], code)
        self._refusals[counted] = self._refusals.get(counted, 0) + 1
        if self._lines is not None and self._lines.takes_refusal(who, is_known=is_known):
            self._lines.note(
                {"event": "refusal", "result": code, "why": shortened(str(error)), **facts()}
            )

    def act(
        self, facts: Facts, needs: Iterable[Need], request: Any, *, is_awaited: bool
    ) -> RecordedAct:
        """`request`: None for a stream of requests. Unless the act `is_awaited`, its answer waits
        for a line only if nothing may be done without one."""
        assert self._lines is not None, "without a log nothing is an act"
        wanted = [shortened(str(need)) for need in needs]
        said: Facts = {"needs": wanted[:ITEMS_MAX]} if wanted else {}
        if request is not None:
            said["request"] = request_text(request)
        content = {"event": "act", **facts, **said}
        return RecordedAct(self._lines, content, is_long=request is None, is_awaited=is_awaited)

    async def gather(self, cluster: str, node_type: str) -> Gathered:
        """The counts, as metrics."""
        refusals = counter(
            "aerobee_access_refusals_total",
            "Calls, and requests of streams, that were refused for lack of credentials or rights.",
            "method",
            "code",
        )
        for (method, code), count in self._refusals.items():
            refusals.add(count, method, code)
        families = [] if self._lines is None else self._lines.families()
        return Gathered({"cluster": cluster, "node_type": node_type}, [refusals, *families])


class RecordedAct:
    """One act, from before it begins until its line is written."""

    __slots__ = ("_content", "_is_awaited", "_is_long", "_lines")

    def __init__(self, lines: Lines, content: Facts, *, is_long: bool, is_awaited: bool) -> None:
        self._lines = lines
        self._content = content
        self._is_long = is_long
        self._is_awaited = is_awaited or lines.is_strict

    async def __aenter__(self) -> Self:
        lines = self._lines
        if self._is_long or lines.is_strict:
            is_written = await self._write({**self._content, "result": "begun"})
            if not is_written and lines.is_strict:
                raise NotWritable(
                    "nothing was done, because this node's audit log cannot be written; its log "
                    "says why"
                )
        return self

    def answered(self, answer: Any) -> None:
        """An answer about several things may refuse some of them."""
        results = getattr(answer, "results", ())
        refused = sum(getattr(each, "status", each).code > 1 for each in results)
        if refused:
            self._content["refused_parts"] = f"{refused} of {len(results)}"

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        line = {**self._content, "result": _result(error)}
        if error is not None and not isinstance(error, Exception):
            self._lines.note(line)  # the caller is gone, or this node stops
            return
        if not await self._write(line) and self._lines.is_strict and error is None:
            raise NotWritable(
                "it was done, but this node's audit log could no longer be written; its log says "
                "why"
            )

    async def _write(self, line: Facts) -> bool:
        if self._is_awaited:
            return await self._lines.record(line)
        self._lines.note(line)
        return True


class NotAnAct:
    """A call that turned out not to be an act."""

    async def __aenter__(self) -> Self:
        return self

    def answered(self, answer: Any) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


def facts_of(
    context: Any, metadata: Mapping[str, Any], path: str, caller: str, certificate: str
) -> Facts:
    """Who calls what, and from where."""
    told = getattr(context, "is_encrypted", None)
    facts: Facts = {
        "caller": caller,
        "from": source_of(context.peer()),
        "tls": told is not None and told(),
        "method": path,
    }
    if certificate:
        facts["certificate"] = shortened(certificate)
    if FORWARDED_KEY in metadata:
        facts["forwarded_for"] = shortened(str(metadata[FORWARDED_KEY]))
    said = metadata.get(REQUEST_ID_KEY) or metadata.get(OFFICIAL_REQUEST_ID_KEY, "")
    request_id = ids_from([(REQUEST_ID_KEY, said)]).request_id
    if request_id:
        facts["request_id"] = request_id
    return facts


def source_of(peer: str) -> str:
    """`ipv4:10.0.0.1:5000` -> `10.0.0.1:5000`, `ipv6:%5B::1%5D:5000` -> `[::1]:5000`."""
    return unquote(peer.partition(":")[2]) or peer


def _result(error: BaseException | None) -> str:
    if error is None:
        return "ok"
    if not isinstance(error, Exception):
        return "cancelled"
    cause = sole_cause(error)
    return error_name(cause) if isinstance(cause, AerobeeError) else "internal"
