"""The heat map: every queue of the groups furthest behind, coloured by the number of waiting
messages.

Colour is one hue from pale to strong, so it can be read without colour vision; trouble is a frame,
and unknown is hatched. Steps are powers of ten: 3 and 4 unread look alike, 3 and 3 million do not.
"""

from __future__ import annotations

import json
import math

from aerobee.offset_audit.outputs.report.data import HeatCell, HeatRow, ReportData
from aerobee.offset_audit.outputs.report.formats import age, counted, number, short
from aerobee.offset_audit.outputs.report.markup import Markup, joined, name, tag

STEPS = 7
_TROUBLED = frozenset({"STUCK", "STOPPED", "SLOW"})


def heat_map(data: ReportData) -> Markup:
    """Rows are a group on a topic, cells its queues in order of broker and queue id."""
    if not data.heat:
        return tag("p", "No group has committed an offset.", class_="nothing")
    more = data.totals.pairs - len(data.heat)
    return joined(
        _legend(),
        tag(
            "p",
            "Point at a cell, or go along a row with the arrow keys.",
            class_="readout",
            aria_live="polite",
        ),
        tag("div", *(_row(row, data) for row in data.heat), class_="heat"),
        tag("p", f"and {counted(more, 'more row')} with less to report.", class_="more")
        if more > 0
        else None,
    )


def step(lag: int | None) -> int | None:
    """0: nothing waits; then one step for each power of ten, up to `STEPS`."""
    if lag is None:
        return None
    return 0 if lag <= 0 else min(1 + int(math.log10(lag)), STEPS)


def _legend() -> Markup:
    labels = ["0", *(short(10**power) for power in range(STEPS))]
    scale = [
        tag("li", tag("i", class_=f"cell heat-{index}"), f"{label}{'+' if index else ''}")
        for index, label in enumerate(labels)
    ]
    return tag(
        "ul",
        tag("li", "unread messages in a queue:"),
        *scale,
        tag("li", tag("i", class_="cell heat-unknown"), "not known"),
        tag("li", tag("i", class_="cell heat-2 framed"), "stuck, stopped or slow"),
        class_="heat-legend",
    )


def _row(row: HeatRow, data: ReportData) -> Markup:
    lags = [cell.lag for cell in row.cells if cell.lag is not None]
    worst = max(lags, default=None)
    troubled = sum(cell.state in _TROUBLED for cell in row.cells)
    unknown = sum(cell.lag is None for cell in row.cells)
    said = f"{row.topic}, group {row.group}: {counted(row.queues, 'queue')}"
    said += f", at most {number(worst)} unread in one" if worst is not None else ""
    said += f", {counted(troubled, 'cell')} stuck, stopped or slow" if troubled else ""
    said += f", {counted(unknown, 'cell')} not known" if unknown else ""
    each = max((cell.queues for cell in row.cells), default=1)
    return tag(
        "div",
        tag(
            "div",
            name(row.topic),
            tag("span", name(row.group), class_="quiet"),
            tag("span", f" · up to {each} queues in a cell", class_="quiet") if each > 1 else None,
            class_="heat-name",
        ),
        tag(
            "div",
            *(tag("i", class_=_classes(cell)) for cell in row.cells),
            class_="heat-cells",
            tabindex="0",
            role="img",
            aria_label=said,
            data_cells=json.dumps([_said(cell, data) for cell in row.cells]),
        ),
        class_="heat-row",
    )


def _classes(cell: HeatCell) -> str:
    level = step(cell.lag)
    shade = "cell heat-unknown" if level is None else f"cell heat-{level}"
    return f"{shade} framed" if cell.state in _TROUBLED else shade


def _said(cell: HeatCell, data: ReportData) -> str:
    place = f"{cell.broker_name} queue {cell.queue_id}"
    if cell.queues > 1:
        place = f"{cell.queues} queues, worst {place}"
    lag = "lag not known" if cell.lag is None else f"{number(cell.lag)} unread"
    behind = ""
    if cell.first_unread_ms is not None and cell.lag:
        behind = f", {age(max(data.run.judged_at_ms - cell.first_unread_ms, 0))} behind"
    return f"{place}: {cell.state.lower()}, {lag}{behind}"
