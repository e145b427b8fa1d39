"""The findings: what is wrong, where, the evidence, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aerobee.offset_audit.outputs.report.closing import anchor_of
from aerobee.offset_audit.outputs.report.data import SEVERITIES, FindingRow, ReportData
from aerobee.offset_audit.outputs.report.formats import age, counted, moment, number
from aerobee.offset_audit.outputs.report.markup import Markup, joined, name, tag
from aerobee.offset_audit.outputs.report.overview import sign, state_chip
from aerobee.offset_audit.outputs.verdict import effect_of, page_of

ALIKE_MAX = 3
"""How many findings of one check and severity are shown before the rest is folded away."""

NAMED_MAX = 4
"""How many of the folded ones are named."""


def findings(data: ReportData) -> Markup:
    """Filters, then one card for each finding, worst first."""
    if not data.findings_total:
        return tag("p", sign("OK"), " Nothing was found.", class_="nothing")
    titles = {check.name: check.title for check in data.run.checks}
    more = data.findings_total - len(data.findings)
    return joined(
        _filters(data),
        tag(
            "ol",
            *_cards(data, titles),
            class_="findings",
            id="finding-list",
        ),
        tag("p", "No finding matches.", class_="none-match", hidden=True),
        tag(
            "p",
            f"and {counted(more, 'more finding')} not shown here: ",
            tag("a", "all counts by check", href="#checks"),
            "; the rows are in the findings table of this run.",
            class_="more",
        )
        if more > 0
        else None,
    )


def _cards(data: ReportData, titles: Mapping[str, str]) -> list[Markup]:
    """In order, check by check; beyond a few per check, the rest is folded away."""
    alike: dict[tuple[str, str], list[tuple[FindingRow, Markup]]] = {}
    for place, one in enumerate(data.findings):
        card = _card(one, titles, data, place)
        alike.setdefault((one.severity, one.check), []).append((one, card))
    cards: list[Markup] = []
    for (_, check), same in alike.items():
        cards += [card for _, card in same[:ALIKE_MAX]]
        if hidden := same[ALIKE_MAX:]:
            summary = tag(
                "summary",
                counted(len(hidden), f"more {check} finding"),
                tag("span", *_named([one for one, _ in hidden]), class_="quiet"),
            )
            folded = tag("ol", *(card for _, card in hidden), class_="findings")
            cards.append(tag("li", tag("details", summary, folded), class_="alike"))
    return cards


def _named(findings: Sequence[FindingRow]) -> list[Markup]:
    """The topics, groups and brokers involved: a few by name, the others counted."""
    parts = []
    for noun, names in (
        ("topic", [one.topic for one in findings]),
        ("group", [one.group for one in findings]),
        ("broker", [one.broker_name for one in findings]),
    ):
        different = list(dict.fromkeys(one for one in names if one))
        if different:
            more = len(different) - NAMED_MAX
            parts.append(
                joined(
                    f" · {noun}{'' if len(different) == 1 else 's'} ",
                    *(
                        joined(", " if place else None, name(one))
                        for place, one in enumerate(different[:NAMED_MAX])
                    ),
                    f" and {number(more)} more" if more > 0 else None,
                )
            )
    return parts


def _filters(data: ReportData) -> Markup:
    chips = [
        tag(
            "button",
            sign(one),
            f" {one.capitalize()} ",
            tag("b", number(data.of_severity(one))),
            type="button",
            class_=f"chip {one.lower()}",
            aria_pressed="true",
            data_severity=one,
            disabled=data.of_severity(one) == 0,
        )
        for one in SEVERITIES
    ]
    return tag(
        "div",
        tag("div", *chips, class_="chips", role="group", aria_label="Severities shown"),
        tag(
            "label",
            tag("span", "Filter by text"),
            tag(
                "input",
                type="search",
                id="finding-filter",
                placeholder="check, topic, group, broker",
                autocomplete="off",
                spellcheck="false",
            ),
            class_="search",
        ),
        tag("p", class_="shown", role="status"),
        class_="filters needs-script",
    )


def _card(one: FindingRow, titles: Mapping[str, str], data: ReportData, place: int) -> Markup:
    words = " ".join(
        (one.check, one.topic, one.group, one.broker_name, one.state, one.evidence)
    ).lower()
    return tag(
        "li",
        tag(
            "div",
            tag("span", sign(one.severity), one.severity.lower(), class_="severity"),
            tag("h3", one.check),
            tag("span", counted(one.affected, "affected", "affected"), class_="affected")
            if one.affected is not None
            else None,
            class_="finding-head",
        ),
        tag("p", titles.get(one.check), class_="title") if titles.get(one.check) else None,
        _places(one),
        tag("p", one.evidence, class_="evidence", dir="auto"),
        _times(one, data),
        _command(one.command, place) if one.command else None,
        tag(
            "p",
            tag("a", f"What {one.check} asks", href=f"#{anchor_of(one.check)}"),
            ", and what to do: ",
            tag("code", page_of(one.check)),
            class_="meaning",
        ),
        class_=f"finding {one.severity.lower()}",
        data_severity=one.severity,
        data_words=words,
    )


def _places(one: FindingRow) -> Markup:
    broker: object = None
    if one.broker_name:
        number_ = "" if one.broker_id is None else f" #{one.broker_id}"
        broker = joined(name(one.broker_name), number_)
    facts: list[tuple[str, object]] = [
        ("topic", name(one.topic) if one.topic else None),
        ("queue", None if one.queue_id is None else one.queue_id),
        ("group", name(one.group) if one.group else None),
        ("broker", broker),
        ("role", one.role.lower() or None),
        ("epoch", None if one.epoch is None else number(one.epoch)),
    ]
    present = [(label, value) for label, value in facts if value is not None]
    if not present:
        return Markup()
    return tag(
        "dl",
        *(tag("div", tag("dt", label), tag("dd", value)) for label, value in present),
        class_="places",
    )


def _times(one: FindingRow, data: ReportData) -> Markup:
    parts: list[object] = []
    if one.state:
        parts.append(tag("span", "now ", _state(one.state)))
    if one.previous_state:
        parts.append(tag("span", "before ", _state(one.previous_state)))
    if one.first_seen_ms is None or one.first_seen_ms >= data.run.run_at_ms:
        parts.append(tag("span", "new in this run", class_="new"))
    else:
        ago = age(data.run.run_at_ms - one.first_seen_ms)
        parts.append(tag("span", f"since {ago} (", moment(one.first_seen_ms), ")"))
    return tag("p", *parts, class_="times")


def _state(state: str) -> Markup:
    known = {"STUCK", "STOPPED", "SLOW", "LAGGING", "UNKNOWN", "OK"}
    return state_chip(state) if state in known else tag("span", state, class_="state")


def _command(command: str, place: int) -> Markup:
    line = tag(
        "div",
        tag("pre", tag("code", command, id=f"command-{place}"), tabindex="0"),
        tag(
            "button",
            "Copy",
            type="button",
            class_="copy needs-script",
            data_copies=f"command-{place}",
            aria_label=f"Copy the command: {command[:80]}",
        ),
        class_="command",
    )
    return joined(tag("p", f"This command {effect_of(command)}:", class_="effect"), line)
