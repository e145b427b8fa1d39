"""The last offset audit, as `aerobee audit --out` left it: what is open, new and cured.

The console makes no audit: it reads the file, for visitors that could make one themselves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from aerobee.console.visit import Visit
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import NoBrokerAvailable

FILE: Final = "summary.json"
BYTES_MAX: Final = 16 * 1_024 * 1_024
SCHEMA_VERSION: Final = 1
_PLACE: Final = ("check", "cluster", "broker_name", "broker_id", "topic", "queue_id", "group")

Finding = Mapping[str, Any]


class UnreadableSummary(Exception):
    """The file cannot be read; says why."""


@dataclass(frozen=True, slots=True)
class LastAudit:
    """One run."""

    run_id: str
    run_at_ms: int
    depth: str
    verdict: str
    counts: Mapping[str, int]
    findings: Sequence[tuple[Finding, bool | None]]
    """The worst, with whether each is new; None: there is no earlier run, or it is not known."""
    findings_total: int
    earlier_run_id: str
    """Empty: there is none to compare with."""
    cured: Sequence[Finding]
    unknown: Sequence[Finding]
    """The earlier run's, which this one could not have found again."""
    notes: Sequence[str]


class OffsetAuditPage:
    """The page."""

    def __init__(self, folder: str) -> None:
        """`folder`: what `--out` named; empty: none is shown."""
        self._folder = folder

    async def show(self, visit: Visit) -> Response:
        found, problem = None, ""
        if self._folder:
            await _check_allowed(visit)
            try:
                found = await asyncio.to_thread(read_summary, Path(self._folder) / FILE)
            except UnreadableSummary as error:
                problem = str(error)
        now_ms = SystemClock().now_ms()
        return visit.render(
            "offset_audit.html",
            found=found,
            problem=problem,
            has_folder=bool(self._folder),
            age_ms=None if found is None else max(0, now_ms - found.run_at_ms),
        )


def read_summary(path: Path) -> LastAudit:
    """Blocks. Raises UnreadableSummary."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        raise UnreadableSummary(
            f"There is no {FILE} in the folder yet: no audit with this --out has ended."
        ) from None
    except OSError as error:
        raise UnreadableSummary(f"{FILE} cannot be read: {error.strerror or error}.") from None
    if len(data) > BYTES_MAX:
        raise UnreadableSummary(f"{FILE} is too large to be the summary of an audit.")
    try:
        return _last_audit(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableSummary(f"{FILE} is not the summary of an audit of this version.") from None


def _last_audit(document: Mapping[str, Any]) -> LastAudit:
    """Raises ValueError, KeyError, TypeError, AttributeError."""
    if document["schema_version"] != SCHEMA_VERSION:
        raise ValueError("another version")
    after = document["after"] or {}
    new = after.get("new")
    places = None if new is None else {_place(each) for each in new}
    return LastAudit(
        run_id=str(document["run_id"]),
        run_at_ms=int(document["run_at_ms"]),
        depth=str(document["depth"]),
        verdict=str(document["verdict"]),
        counts={str(name): int(count) for name, count in document["counts"].items()},
        findings=[
            (_finding(each), None if places is None else _place(each) in places)
            for each in document["findings"]
        ],
        findings_total=int(document["findings_total"]),
        earlier_run_id=str(after.get("run_id", "")),
        cured=list(map(_finding, after.get("cured", ()))),
        unknown=list(map(_finding, after.get("unknown", ()))),
        notes=[str(each) for each in document["notes"]],
    )


def _finding(found: Mapping[str, Any]) -> Finding:
    return {
        "severity": str(found["severity"]),
        "check": str(found["check"]),
        "evidence": str(found["evidence"]),
        "command": str(found.get("command") or ""),
        "group": str(found.get("group") or ""),
        "topic": str(found.get("topic") or ""),
        "since_ms": found["first_seen_ms"] if isinstance(found.get("first_seen_ms"), int) else None,
    }


def _place(found: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(found.get(each)) for each in _PLACE)


async def _check_allowed(visit: Visit) -> None:
    """An audit is about all topics and groups. Raises AccessDenied, NoBrokerAvailable, or as a call
    does: the visitor could not make one now."""
    brokers = (await visit.admin.cluster()).brokers
    if not brokers:
        raise NoBrokerAvailable("no broker is there to say whether you may see audits")
    await visit.admin.brokers.check_audit(brokers[0].address)
