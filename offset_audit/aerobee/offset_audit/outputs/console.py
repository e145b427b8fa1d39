"""A run as text for people, and in the other forms that standard output may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from aerobee.offset_audit.outputs.prometheus import metrics_text
from aerobee.offset_audit.outputs.report.formats import age
from aerobee.offset_audit.outputs.summary import STATE_ORDER, Summary
from aerobee.offset_audit.outputs.verdict import effect_of

_PLACES = {"local": "in this process", "spark": "on Spark"}
SHOWN_FINDINGS = 40
SHOWN_FAILED = 10


def printed(summary: Summary, form: str) -> str:
    """The text for standard output; `form` is one of `request.FORMATS`."""
    if form == "json":
        return summary.text()
    if form == "prometheus":
        return metrics_text(summary)
    return "" if form == "none" else "\n".join(_lines(summary)) + "\n"


def where(finding: Mapping[str, Any]) -> str:
    """The place of a finding in a few words: broker, group, topic, queue."""
    broker = finding.get("broker_name") or ""
    if broker and finding.get("broker_id") is not None:
        broker = f"{broker}:{finding['broker_id']}"
    topic = finding.get("topic") or ""
    if topic and finding.get("queue_id") is not None:
        topic = f"{topic}/{finding['queue_id']}"
    group = f"group {finding['group']}" if finding.get("group") else ""
    return ", ".join(part for part in (group, topic, broker) if part) or "cluster"


def moment(at_ms: int) -> str:
    """`2026-01-31 12:00:05 UTC`."""
    return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def counted(number: int, noun: str) -> str:
    """`1 queue`, `1,200 queues`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def headline(summary: Summary) -> str:
    """Whose audit, how deep, when, how long."""
    clusters = ", ".join(name for name in summary.clusters if name) or "stores at rest"
    return (
        f"{clusters}: {summary.depth} of {moment(summary.run_at_ms)}, "
        f"took {age(summary.took_ms, space=' ')} {_PLACES[summary.engine]}"
    )


def counts_line(summary: Summary) -> str:
    """Brokers, and queues of groups by state."""
    states = ", ".join(
        f"{summary.states[state]:,} {state}" for state in STATE_ORDER if summary.states.get(state)
    )
    total = sum(summary.states.values())
    queues, pairs = counted(total, "queue"), counted(summary.groups_total, "pair")
    return (
        f"{summary.brokers_answered} of {counted(summary.brokers_total, 'broker')} answered; "
        f"{queues} of {pairs} of group and topic" + (f": {states}" if states else "")
    )


def failed_line(group: Mapping[str, Any]) -> str:
    """How many of a group's failed messages are in which state, and how many were sent."""
    states = (
        ("finished", "finished"),
        ("unread", "unread"),
        ("waiting", "waiting for a retry"),
        ("again", "to be retried"),
        ("dead", "dead"),
        ("resent", "dead and sent again"),
        ("twice", "of these counted twice, since a reset"),
    )
    known = [
        f"{'?' if group[state] is None else f'{group[state]:,}'} {words}"
        for state, words in states
        if group.get(state) != 0
    ]
    sent = "?" if group["sent"] is None else f"{group['sent']:,}"
    return f"{sent} sent: {', '.join(known)}"


def _lines(summary: Summary) -> Iterator[str]:
    yield summary.verdict
    yield headline(summary)
    yield counts_line(summary)
    for broker in summary.brokers:
        if not broker.get("answered"):
            name = where(broker)
            yield f"  no answer from {name} at {broker.get('address') or '?'}"
    for group in summary.failed[:SHOWN_FAILED]:
        yield f"  group {group['group']}: {failed_line(group)}"
    for note in summary.notes:
        yield f"  note: {note}"
    if summary.after is not None:
        yield from summary.after.lines()
    if summary.not_asked:
        yield f"  not asked: {', '.join(summary.not_asked)}"
    for finding in summary.findings[:SHOWN_FINDINGS]:
        yield ""
        yield from _finding(finding, summary)
    more = summary.findings_total - min(len(summary.findings), SHOWN_FINDINGS)
    if more > 0:
        yield ""
        yield f"and {more:,} more: --report FILE shows them, --out DIR keeps all of them"


def _finding(finding: Mapping[str, Any], summary: Summary) -> Iterator[str]:
    affected = finding.get("affected")
    since_ms = finding.get("first_seen_ms")
    parts = [f"{finding['severity']} {finding['check']}: {where(finding)}"]
    if affected is not None:
        parts.append(f"{affected:,} affected")
    if since_ms is not None and since_ms != summary.run_at_ms:
        ago = age(summary.run_at_ms - since_ms, space=" ")
        parts.append(f"since {ago} ({moment(since_ms)})")
    if finding.get("previous_state") and finding["previous_state"] != finding.get("state"):
        parts.append(f"was {finding['previous_state']}")
    yield " · ".join(parts)
    if finding.get("evidence"):
        yield f"  {finding['evidence']}"
    if finding.get("command"):
        yield f"  run ({effect_of(finding['command'])}): {finding['command']}"
