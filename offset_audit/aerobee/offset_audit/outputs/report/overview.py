"""The top of the page: what was audited, the verdict, the key figures, the brokers."""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.offset_audit.outputs.report.data import (
    SEVERITIES,
    STATES,
    BrokerRow,
    Progress,
    ReportData,
)
from aerobee.offset_audit.outputs.report.formats import (
    NOT_KNOWN,
    age,
    counted,
    moment,
    number,
    short,
    volume,
)
from aerobee.offset_audit.outputs.report.markup import Markup, joined, name, tag
from aerobee.offset_audit.outputs.verdict import found, lost, not_read

SIGNS: Mapping[str, str] = {
    "CRITICAL": "M5 1h6l4 4v6l-4 4H5l-4-4V5z",
    "ERROR": "M8 1l7 7-7 7-7-7z",
    "WARNING": "M8 1.5l7 13H1z",
    "INFO": "M8 1a7 7 0 100 14A7 7 0 108 1z",
    "OK": "M6.2 14L1 8.8l2.1-2.1 3.1 3L13 2.9 15 5z",
}
"""A shape for each severity, so that none is distinguished by colour alone."""


def sign(severity: str) -> Markup:
    """The shape of a severity; the word is beside it."""
    return tag(
        "svg",
        tag("path", d=SIGNS[severity]),
        class_=f"sign {severity.lower()}",
        viewBox="0 0 16 16",
        width="16",
        height="16",
        aria_hidden="true",
    )


def state_chip(state: str) -> Markup:
    """A queue's or group's state, as a word in a box."""
    return tag("span", state.lower(), class_=f"state state-{state.lower()}")


def masthead(data: ReportData) -> Markup:
    run = data.run
    took = "" if run.took_ms is None else f", took {age(run.took_ms)}"
    sources = run.sources[:4]
    more = len(run.sources) - len(sources)
    return joined(
        tag("p", "Offset audit", class_="kind"),
        tag("h1", name(run.cluster) if run.cluster else "Stores at rest"),
        tag(
            "p",
            moment(run.run_at_ms),
            f" · {run.depth}{took} · read from ",
            *(joined(", " if place else None, name(one)) for place, one in enumerate(sources)),
            f" and {number(more)} more" if more > 0 else None,
            class_="run",
        ),
    )


def verdict(data: ReportData) -> Markup:
    """What was found, and what was not checked."""
    worst = data.worst_severity
    shown = "OK" if worst in (None, "INFO") else str(worst)
    checks = sum(check.ran for check in data.run.checks)
    not_asked = [check.name for check in data.run.checks if not check.ran]
    losses = {one.check: one.affected for one in data.counts if one.severity == "CRITICAL"}
    scope = counted(data.totals.progress.queues, "queue")
    asked = f"{counted(checks, 'check')} over {scope} of groups"
    if not_asked:
        asked += f"; not asked: {', '.join(not_asked)}"
    return tag(
        "div",
        tag("div", sign(shown), class_="verdict-sign"),
        tag(
            "div",
            tag("h2", found({one: data.of_severity(one) for one in SEVERITIES}), id="verdict"),
            tag("p", f"{lost(losses)}{not_read(data.run.depth, not_asked)} {asked}."),
        ),
        class_=f"verdict {shown.lower()}",
        role="status",
    )


def tiles(data: ReportData) -> Markup:
    """The figures of the whole cluster."""
    totals = data.totals
    progress = totals.progress
    silent = totals.brokers - totals.brokers_answered
    troubled = sum(1 for group in data.groups if group.progress.worst_state != "OK")
    behind = (
        None
        if progress.first_unread_ms is None
        else max(data.run.judged_at_ms - progress.first_unread_ms, 0)
    )
    oldest = "none" if behind is None and progress.lag == 0 else age(behind)
    return tag(
        "dl",
        _tile(
            "Brokers",
            f"{number(totals.brokers_answered)} of {number(totals.brokers)}",
            "all answered" if not silent else f"{number(silent)} did not answer",
            is_bad=silent > 0,
        ),
        _tile(
            "Groups",
            number(totals.groups),
            f"{number(troubled)}{'+' if totals.groups > len(data.groups) else ''} behind or unknown"
            if troubled
            else "all up to date",
        ),
        _tile(
            "Topics",
            number(totals.topics),
            counted(totals.pairs, "group on a topic", "groups on topics"),
        ),
        _tile(
            "Unread messages",
            NOT_KNOWN if progress.lag is None else short(progress.lag),
            "of all groups"
            if progress.matching_lag is None
            else f"{short(progress.matching_lag)} match a filter",
        ),
        _tile("Oldest unread", oldest, "waiting since then" if behind else "store time"),
        _tile(
            "Not known",
            number(progress.unknown),
            "queues without a lag",
            is_bad=progress.unknown > 0,
        ),
        class_="tiles",
    )


def _tile(label: str, value: str, note: str, *, is_bad: bool = False) -> Markup:
    return tag(
        "div",
        tag("dt", label),
        tag("dd", value, class_="value"),
        tag("dd", note, class_="note bad" if is_bad else "note"),
    )


def state_bar(progress: Progress, *, label: str) -> Markup:
    """Queues by state: one bar, and the numbers in words beneath it."""
    total = max(progress.queues, 1)
    present = [state for state in reversed(STATES) if progress.states.get(state)]
    if not present:
        return Markup()
    parts, at = [], 0.0
    for state in present:
        share = progress.states[state] / total * 100
        parts.append(
            tag(
                "rect",
                x=f"{at:.3f}%",
                y="0",
                width=f"{max(share, 0.4):.3f}%",
                height="14",
                class_=f"fill-{state.lower()}",
            )
        )
        at += share
    return tag(
        "div",
        tag("svg", *parts, width="100%", height="14", class_="bar", aria_hidden="true"),
        tag(
            "ul",
            *(
                tag("li", state_chip(state), f" {number(progress.states[state])}")
                for state in present
            ),
            class_="bar-legend",
            aria_label=label,
        ),
        class_="state-bar",
    )


def brokers(data: ReportData) -> Markup:
    """One card for each replica; those that did not answer first."""
    cards = [_broker(broker, data) for broker in data.brokers]
    more = data.totals.brokers - len(data.brokers)
    return joined(
        tag("ul", *cards, class_="brokers") if cards else tag("p", "No broker was asked."),
        tag("p", f"and {counted(more, 'more broker')}.", class_="more") if more > 0 else None,
    )


def _broker(broker: BrokerRow, data: ReportData) -> Markup:
    title = broker.broker_name or "unnamed"
    if not broker.answered:
        return tag(
            "li",
            tag("h3", sign("ERROR"), name(title), tag("span", _number(broker), class_="id")),
            tag("p", "did not answer", class_="bad"),
            tag("p", name(broker.address), class_="quiet"),
            tag("p", broker.error, class_="quiet"),
            class_="broker silent",
        )
    behind = None
    if broker.appended_end is not None and broker.confirmed_end is not None:
        behind = broker.appended_end - broker.confirmed_end
    size = None
    if broker.appended_end is not None and broker.log_min_offset is not None:
        size = broker.appended_end - broker.log_min_offset
    facts = [
        ("log", None if size is None else volume(size)),
        ("unconfirmed", None if behind is None or not behind else volume(behind)),
        ("epoch", None if broker.epoch is None else number(broker.epoch)),
        ("replicas in sync", _ids(broker.in_sync)),
        ("flush", broker.flush_mode.lower() or None),
        ("version", broker.version or None),
    ]
    return tag(
        "li",
        tag(
            "h3",
            sign("OK"),
            name(title),
            tag("span", _number(broker), class_="id"),
            tag("span", broker.role.lower() or NOT_KNOWN, class_="role"),
        ),
        tag(
            "dl",
            *(
                tag("div", tag("dt", label), tag("dd", value))
                for label, value in facts
                if value is not None
            ),
        ),
        tag("p", name(broker.address), class_="quiet") if broker.address else None,
        class_="broker",
    )


def _ids(ids: tuple[int, ...] | None) -> str | None:
    """As names, not as a number."""
    return ", ".join(f"#{each}" for each in ids) if ids else None


def _number(broker: BrokerRow) -> str:
    return "" if broker.broker_id is None else f"#{broker.broker_id}"
