"""From `ReportData` to one HTML file: the template, style and script, and what they need.

The page loads nothing from outside, and tells the browser so: its content policy allows its own
style and its own script (by their hash) and no address at all. Names of topics, groups and clients
are arbitrary: the template escapes all that is not markup, and marks where a name has its own
direction of writing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from aerobee.offset_audit.outputs.report import charts
from aerobee.offset_audit.outputs.report.data import (
    SEVERITIES,
    STATES,
    FindingRow,
    GroupRow,
    HeatCell,
    HeatRow,
    ReportData,
)
from aerobee.offset_audit.outputs.report.formats import age, counted, number, short, utc, volume
from aerobee.offset_audit.outputs.verdict import effect_of, found, lost, not_read, page_of

_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
HEAT_STEPS: Final = 7
_TROUBLED: Final = frozenset({"STUCK", "STOPPED", "SLOW"})
_LINES: Final = 6
"""Groups in the charts of all groups."""
_ALIKE_MAX: Final = 3
"""How many findings of one check and severity are shown before the rest is folded away."""
SIGNS: Final[Mapping[str, str]] = {
    "CRITICAL": "M5 1h6l4 4v6l-4 4H5l-4-4V5z",
    "ERROR": "M8 1l7 7-7 7-7-7z",
    "WARNING": "M8 1.5l7 13H1z",
    "INFO": "M8 1a7 7 0 100 14A7 7 0 108 1z",
    "OK": "M6.2 14L1 8.8l2.1-2.1 3.1 3L13 2.9 15 5z",
}
"""A shape for each severity, so that none is distinguished by colour alone."""


def render(data: ReportData) -> str:
    """The whole page, as text to be written in UTF-8."""
    folder = resources.files("aerobee.offset_audit.outputs.report")
    style = (folder / "report.css").read_text("utf-8")
    script = (folder / "report.js").read_text("utf-8")
    pages = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    pages.filters |= {"age": age, "number": number, "short": short, "volume": volume, "utc": utc}
    template = pages.from_string((folder / "page.html").read_text("utf-8"))
    return template.render(
        data=data,
        run=data.run,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        verdict=_verdict(data),
        waited=lambda since_ms: age(max(data.run.judged_at_ms - since_ms, 0)),
        alike=_alike(data),
        tally=_tally(data),
        charted=_charted(data),
        lag_chart=_lag_chart,
        age_chart=_age_chart,
        spark=lambda group: charts.sparkline([(one.run_at_ms, one.lag) for one in group.points]),
        charts=charts,
        heat_step=heat_step,
        titles={check.name: check.title for check in data.run.checks},
        said_of_row=_said_of_row,
        said_of_cells=lambda row: json.dumps([_said_of_cell(cell, data) for cell in row.cells]),
        left_out=_left_out(data),
        counted=counted,
        effect_of=effect_of,
        page_of=page_of,
        SEVERITIES=SEVERITIES,
        STATES=STATES,
        SIGNS=SIGNS,
        HEAT_STEPS=HEAT_STEPS,
        TROUBLED=_TROUBLED,
    )


def _printable(value: object) -> object:
    """None is nothing; a character that no page may contain is replaced."""
    if value is None:
        return ""
    is_plain = isinstance(value, str) and not isinstance(value, Markup)
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value)) if is_plain else value


def _policy(style: str, script: str) -> str:
    """Nothing but this page's own style and script, even if markup got in somewhere."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _verdict(data: ReportData) -> dict[str, str]:
    """What was found, and what was not checked."""
    worst = data.worst_severity
    checks = sum(check.ran for check in data.run.checks)
    not_asked = [check.name for check in data.run.checks if not check.ran]
    losses = {one.check: one.affected for one in data.counts if one.severity == "CRITICAL"}
    asked = f"{counted(checks, 'check')} over {counted(data.totals.progress.queues, 'queue')}"
    if not_asked:
        asked += f" of groups; not asked: {', '.join(not_asked)}"
    else:
        asked += " of groups"
    return {
        "shown": "OK" if worst is None or worst == "INFO" else worst,
        "found": found({one: data.of_severity(one) for one in SEVERITIES}),
        "told": f"{lost(losses)}{not_read(data.run.depth, not_asked)} {asked}.",
    }


def _alike(data: ReportData) -> list[dict[str, Any]]:
    """Findings with their places in the list, check by check: those that are shown, and the rest,
    with the topics, groups and brokers that it names."""
    together: dict[tuple[str, str], list[tuple[int, FindingRow]]] = {}
    for place, one in enumerate(data.findings):
        together.setdefault((one.severity, one.check), []).append((place, one))
    return [
        {
            "check": check,
            "shown": same[:_ALIKE_MAX],
            "folded": same[_ALIKE_MAX:],
            "named": _named([one for _, one in same[_ALIKE_MAX:]]),
        }
        for (_, check), same in together.items()
    ]


def _named(findings: Sequence[FindingRow]) -> list[tuple[str, list[str]]]:
    names = {
        "topic": [one.topic for one in findings],
        "group": [one.group for one in findings],
        "broker": [one.broker_name for one in findings],
    }
    different = {noun: list(dict.fromkeys(filter(None, each))) for noun, each in names.items()}
    return [(noun, each) for noun, each in different.items() if each]


def _tally(data: ReportData) -> dict[str, dict[str, int]]:
    """Findings by check and severity; all known checks, and others that found something."""
    found: dict[str, dict[str, int]] = {check.name: {} for check in data.run.checks}
    others = sorted({one.check for one in data.counts} - found.keys())
    found |= {check: {} for check in others}
    for one in data.counts:
        found[one.check][one.severity] = one.findings
    return found


# ---------------------------------------------------------------------- progress


def _charted(data: ReportData) -> list[GroupRow]:
    """The groups that were furthest behind."""

    def greatest_lag(group: GroupRow) -> tuple[int, int]:
        known = [point.lag for point in group.points if point.lag is not None]
        return max(known, default=-1), group.progress.lag or 0

    ordered = sorted(data.groups, key=greatest_lag, reverse=True)
    return [group for group in ordered if group.points][:_LINES]


def _lag_chart(groups: Sequence[GroupRow]) -> charts.Chart:
    return charts.line_chart(
        [
            charts.Series(one.group, tuple((point.run_at_ms, point.lag) for point in one.points))
            for one in groups
        ],
        scale_of=charts.nice_scale,
        write=short,
        axis="unread messages",
    )


def _age_chart(groups: Sequence[GroupRow]) -> charts.Chart:
    return charts.line_chart(
        [
            charts.Series(one.group, tuple((point.run_at_ms, point.age_ms) for point in one.points))
            for one in groups
        ],
        scale_of=charts.age_scale,
        write=age,
        axis="age of the oldest unread",
    )


def heat_step(lag: int | None) -> int | None:
    """0: nothing waits; then one step for each power of ten: 3 and 4 unread look alike, 3 and 3
    million do not."""
    if lag is None:
        return None
    return 0 if lag <= 0 else min(1 + int(math.log10(lag)), HEAT_STEPS)


def _said_of_row(row: HeatRow) -> str:
    """For screen readers."""
    lags = [cell.lag for cell in row.cells if cell.lag is not None]
    troubled = sum(cell.state in _TROUBLED for cell in row.cells)
    unknown = len(row.cells) - len(lags)
    said = f"{row.topic}, group {row.group}: {counted(row.queues, 'queue')}"
    said += f", at most {number(max(lags))} unread in one" if lags else ""
    said += f", {counted(troubled, 'cell')} stuck, stopped or slow" if troubled else ""
    return said + (f", {counted(unknown, 'cell')} not known" if unknown else "")


def _said_of_cell(cell: HeatCell, data: ReportData) -> str:
    place = f"{cell.broker_name} queue {cell.queue_id}"
    if cell.queues > 1:
        place = f"{cell.queues} queues, worst {place}"
    lag = "lag not known" if cell.lag is None else f"{number(cell.lag)} unread"
    behind = ""
    if cell.first_unread_ms is not None and cell.lag:
        behind = f", {age(max(data.run.judged_at_ms - cell.first_unread_ms, 0))} behind"
    return f"{place}: {cell.state.lower()}, {lag}{behind}"


def _left_out(data: ReportData) -> list[str]:
    """How much more there is than this page shows."""
    totals = data.totals
    queues_shown = sum(row.queues for row in data.heat)
    sets = (
        ("finding", "findings", data.findings_total, len(data.findings)),
        ("broker", "brokers", totals.brokers, len(data.brokers)),
        ("group", "groups", totals.groups, len(data.groups)),
        ("topic", "topics", totals.topics, len(data.topics)),
        ("row of the heat map", "rows of the heat map", totals.pairs, len(data.heat)),
        ("queue in the heat map", "queues in the heat map", totals.progress.queues, queues_shown),
    )
    return [
        f"{counted(total - shown, one, many)} of {number(total)}"
        for one, many, total, shown in sets
        if total > shown
    ]
