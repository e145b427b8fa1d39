"""How findings of progress are worded: which queues make one finding, and their sentence.

One cause is one finding: the queues of a topic on which one group has the same trouble are reported
together, naming the worst of them. A finding on a single queue names its broker and queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.rule import PLACE, SEEN_BY, Rule, numbers_of
from aerobee.offset_audit.rules.texts import SHOW_GROUP
from aerobee.offset_audit.tables import Tables


def gather(
    rows: Frame,
    measure: str,
    *,
    keep: Sequence[str] = (),
    by: Sequence[str] = ("cluster", "group", "topic"),
    **sums: str,
) -> Frame:
    """One row for each `by`: the number of `queues`, the `worst` by `measure` (its place and the
    columns `keep`), the aggregates `sums`, and the place if there is only one.

    `seen_by` ends the sentence, and says so if no master was asked.
    """
    names = [name for name in (*PLACE, *keep) if name in rows.columns]
    order = f"struct({measure}, queue_id, broker_name)"
    worst = f"max_by(struct({', '.join(dict.fromkeys(names))}), {order}) worst"
    only_broker = "min(broker_name) = max(broker_name)"
    return rows.groupBy(*by).agg(
        "count(1) queues",
        worst,
        "if(count(1) = 1, min(queue_id), null) queue_id",
        *(
            f"if({only_broker}, min({name}), null) {name}"
            for name in ("broker_name", "broker_id", "role", "epoch")
        ),
        f"{SEEN_BY} seen_by",
        *(f"{expression} {name}" for name, expression in sums.items()),
    )


def findings(
    rows: Frame,
    check: str,
    severity: Severity | str,
    *,
    evidence: str,
    command: str = SHOW_GROUP,
    commands: Mapping[str, str] | None = None,
    **columns: str,
) -> Frame:
    """Gathered rows as FINDINGS.

    Args:
        severity: a value, or SQL for it.
        evidence: SQL of the sentence.
        command: a template whose values become one word of a shell each.
        commands: by SQL conditions, templates that come before it; the first that holds counts.
        columns: SQL of further columns of FINDINGS.
    """
    return finding_rows(
        rows.withColumns(columns) if columns else rows,
        check,
        severity=severity,
        evidence=evidence,
        affected="affected",
        command=command,
        commands=commands,
    )


def check_of(rule: Rule, rows: Callable[[Tables, Limits], Frame] = judged) -> Check:
    """The check that applies a rule to what a run judged, or to `rows`."""

    def run(tables: Tables, limits: Limits) -> Frame:
        asked = rows(tables, limits)
        numbers = numbers_of(limits)
        if rule.asked_of:
            asked = asked.where(rule.asked_of.format(**numbers))
        for name, expression in rule.added.items():
            asked = asked.withColumn(name, expression.format(**numbers))
        told = gather(
            asked.where(rule.holds.format(**numbers)),
            rule.measure,
            keep=rule.keep,
            by=rule.by,
            **rule.sums,
        )
        return findings(
            told,
            rule.name,
            rule.severity,
            evidence=rule.evidence,
            command=rule.command,
            commands=rule.commands,
            **rule.columns,
        )

    return Check(rule.name, rule.title, run, needs=rule.needs)
