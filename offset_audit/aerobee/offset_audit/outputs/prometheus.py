"""A run as metrics, in the text format that a node exporter's textfile collector reads.

Labels are bounded: checks and severities, states, and the groups and brokers in the summary. A
series that a later run lacks disappears with the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aerobee.offset_audit.checks.check import Severity
from aerobee.offset_audit.outputs.summary import STATE_ORDER, Summary

Sample = tuple[Mapping[str, object], float | int]
Metric = tuple[str, str, Iterable[Sample]]
"""Name, help, samples."""


def metrics_text(summary: Summary) -> str:
    """All metrics of a run."""
    at = summary.run_at_ms
    plain: Sequence[Metric] = (
        ("run_timestamp_seconds", "Start of the run.", [({}, at / 1_000)]),
        (
            "run_duration_seconds",
            "Duration of the run until its findings were known.",
            [({}, summary.took_ms / 1_000)],
        ),
        (
            "run_info",
            "1; labels: depth of the run and version of Aerobee.",
            [({"depth": summary.depth, "version": summary.version}, 1)],
        ),
        (
            "exit_code",
            "Most severe finding: 0 none above INFO, 1 WARNING, 2 ERROR, 3 CRITICAL.",
            _exit(summary),
        ),
        (
            "findings",
            "Findings by severity.",
            [({"severity": str(one)}, summary.counts.get(one, 0)) for one in Severity],
        ),
        (
            "check_findings",
            "Findings by check, for checks that found something.",
            [(_labels(row, "check", "severity"), row["findings"]) for row in summary.checks],
        ),
        (
            "check_affected",
            "How many messages, keys or bytes these findings concern; "
            "docs/audit-findings.md gives the unit.",
            _known(summary.checks, "affected", "check", "severity"),
        ),
        ("brokers", "Brokers and stores that were asked.", [({}, summary.brokers_total)]),
        ("brokers_answered", "Brokers and stores that answered.", [({}, summary.brokers_answered)]),
        (
            "queues",
            "Queues of groups by state of progress.",
            [({"state": state}, summary.states.get(state, 0)) for state in STATE_ORDER],
        ),
        *_of_progress(summary),
    )
    lines: list[str] = []
    for name, text, samples in plain:
        lines += _metric(f"aerobee_audit_{name}", text, samples)
    return "\n".join(lines) + "\n"


_PAIR = ("cluster", "group", "topic")


def _of_progress(summary: Summary) -> tuple[Metric, ...]:
    return (
        ("group_topics", "Pairs of group and topic.", [({}, summary.groups_total)]),
        (
            "group_lag_messages",
            "Unread messages, for the pairs that need attention first.",
            _known(summary.groups, "lag", *_PAIR),
        ),
        (
            "group_matching_lag_messages",
            "Unread messages that the group's filter lets through.",
            _known(summary.groups, "matching_lag", *_PAIR),
        ),
        (
            "group_unknown_queues",
            "Queues with unknown lag.",
            _known(summary.groups, "unknown", *_PAIR),
        ),
        (
            "group_lag_age_seconds",
            "Age of the first unread message.",
            _ages(summary),
        ),
        (
            "waiting_messages",
            "Messages in system topics that wait to be delivered, by the topic that they are for.",
            [
                (_labels(row, "cluster", "topic", "kind"), row["messages"])
                for row in summary.waiting
            ],
        ),
        (
            "failed_messages",
            "Messages that a group could not handle: waiting, to be consumed again, or dead.",
            [
                ({**_labels(row, "cluster", "group"), "state": state}, row[state])
                for row in summary.failed
                for state in ("waiting", "again", "dead")
                if row.get(state) is not None
            ],
        ),
    )


def _exit(summary: Summary) -> list[Sample]:
    return [({}, summary.exit_code)]


def _ages(summary: Summary) -> list[Sample]:
    return [
        (_labels(row, *_PAIR), max(0, summary.judged_at_ms - row["first_unread_ms"]) / 1_000)
        for row in summary.groups
        if row.get("first_unread_ms") is not None
    ]


def _known(rows: Iterable[Mapping[str, Any]], column: str, *labels: str) -> list[Sample]:
    return [(_labels(row, *labels), row[column]) for row in rows if row.get(column) is not None]


def _labels(row: Mapping[str, Any], *names: str) -> dict[str, object]:
    return {name: row.get(name) or "" for name in names}


def _metric(name: str, text: str, samples: Iterable[Sample]) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    for labels, value in samples:
        inner = ",".join(f'{key}="{_escaped(str(one))}"' for key, one in labels.items())
        lines.append(f"{name}{{{inner}}} {value}" if inner else f"{name} {value}")
    return lines


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
