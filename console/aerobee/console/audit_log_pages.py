"""The audit logs of all nodes: who changed what, and who was refused. Nothing here changes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from aerobee.cli.moments import parse_time_ms
from aerobee.client_core.audit_logs import AuditLine
from aerobee.console.listing import ROWS_PER_PAGE, SEARCH_CHARACTERS_MAX
from aerobee.console.visit import Visit
from aerobee.runtime.errors import InvalidArgument

TEXTS: Final = ("caller", "method", "about")
PLACES_CHARACTERS_MAX: Final = 16_384
GOOD: Final = "ok"


async def last_lines(visit: Visit) -> Response:
    """A page of them; each broker and nameserver is asked once. It does not refresh itself: an
    older page would move, and reading costs nodes more than other pages do."""
    asked = {name: visit.query.get(name, "").strip()[:SEARCH_CHARACTERS_MAX] for name in TEXTS}
    times = {name: visit.query.get(name, "").strip()[:64] for name in ("since", "until")}
    only_refusals = visit.query.get("refused", "") == "1"
    found = await visit.admin.audit_log.last(
        **asked,
        only_refusals=only_refusals,
        begin_ms=_moment_ms(times["since"]),
        end_ms=_moment_ms(times["until"]),
        older=_places(visit.query.get("older", "")),
        max_lines=ROWS_PER_PAGE,
    )
    kept = {**asked, **times, "refused": "1" if only_refusals else ""}
    query = {name: value for name, value in kept.items() if value}
    older = urlencode({**query, "older": json.dumps(found.older)}) if found.older else ""
    return visit.render(
        "audit_log.html",
        found=found,
        asked={**asked, **times},
        only_refusals=only_refusals,
        is_filtered=bool(query),
        is_first=not visit.query.get("older"),
        older=older,
        newest=urlencode(query),
        told=_told,
        good=GOOD,
    )


def _told(line: AuditLine) -> str:
    """What the call was about: needed rights, request, and why it was refused."""
    names = ("needs", "request", "refused_parts", "refusals", "why")
    rest = [line.content.get(name) for name in names]
    return " · ".join(_text(each) for each in rest if each)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_text(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value)


def _moment_ms(text: str) -> int:
    """0: none is given. Raises InvalidArgument."""
    try:
        return parse_time_ms(text) if text else 0
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


def _places(text: str) -> Mapping[str, str] | None:
    """As an address has them. Raises InvalidArgument."""
    if not text:
        return None
    try:
        found = json.loads(text[:PLACES_CHARACTERS_MAX])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidArgument("this address is not whole: begin with the newest lines")
    return found
