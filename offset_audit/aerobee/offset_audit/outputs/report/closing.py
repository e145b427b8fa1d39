"""The end of the page: what was checked, and what the page leaves out."""

from __future__ import annotations

from aerobee.offset_audit.outputs.report.data import SEVERITIES, ReportData
from aerobee.offset_audit.outputs.report.formats import counted, number
from aerobee.offset_audit.outputs.report.markup import Markup, joined, tag
from aerobee.offset_audit.outputs.report.overview import sign
from aerobee.offset_audit.outputs.verdict import page_of


def anchor_of(check: str) -> str:
    """Where a check is on this page."""
    return f"check-{check.lower()}"


def checks(data: ReportData) -> Markup:
    """Every check with its counts, including those that found nothing and those that did not
    run."""
    by_check: dict[str, dict[str, int]] = {}
    for count in data.counts:
        by_check.setdefault(count.check, {})[count.severity] = count.findings
    known = {check.name: check for check in data.run.checks}
    names = [*known, *sorted(set(by_check) - set(known))]
    rows = []
    for one in names:
        found = by_check.get(one, {})
        check = known.get(one)
        if found:
            result: object = joined(
                *(
                    tag("span", sign(severity), f" {number(found[severity])} ", class_="count")
                    for severity in SEVERITIES
                    if found.get(severity)
                )
            )
        elif check is not None and not check.ran:
            why = "needs --store" if data.run.depth == "deep" else "not asked in a snapshot"
            result = tag("span", why, class_="quiet")
        else:
            result = joined(sign("OK"), " nothing")
        rows.append(
            tag(
                "tr",
                tag("th", one, scope="row"),
                tag(
                    "td",
                    check.title if check is not None else None,
                    tag("code", page_of(one), class_="page"),
                ),
                tag("td", result),
                id=anchor_of(one),
            )
        )
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", head, scope="col") for head in _HEADS))),
            tag("tbody", *rows),
            class_="checks",
        ),
        class_="scrolls",
        tabindex="0",
        role="region",
        aria_label="Checks and what they found",
    )


_HEADS = ("check", "question, and where the documentation explains it", "found")


def left_out(data: ReportData) -> Markup:
    """How much more there is than this page shows."""
    pairs = data.totals.pairs
    queues_shown = sum(row.queues for row in data.heat)
    sets = (
        ("finding", data.findings_total, len(data.findings)),
        ("broker", data.totals.brokers, len(data.brokers)),
        ("group", data.totals.groups, len(data.groups)),
        ("topic", data.totals.topics, len(data.topics)),
        ("row of the heat map", pairs, len(data.heat)),
        ("queue in the heat map", data.totals.progress.queues, queues_shown),
    )
    parts = [
        tag("li", f"{counted(total - shown, what, _many(what))} of {number(total)}")
        for what, total, shown in sets
        if total > shown
    ]
    if not parts:
        return tag("p", "This page shows all findings, brokers, groups, topics and queues.")
    return joined(
        tag(
            "p",
            "The page stays small whatever the size of the cluster. It shows what needs "
            "attention first, and leaves out:",
        ),
        tag("ul", *parts),
        tag("p", "All of it is in the Parquet tables of this run."),
    )


def _many(what: str) -> str:
    first, *rest = what.split(" ", 1)
    return " ".join((f"{first}s", *rest))
