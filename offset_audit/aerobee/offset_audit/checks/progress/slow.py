"""SLOW: a group works, but messages come faster than it takes them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.checks.progress.telling import findings, gather, phrase, where
from aerobee.offset_audit.tables import Tables

_ROWS: Final = "state = 'SLOW' and not is_lost"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Queues in state SLOW: unread messages rose from run to run while the offset moved."""
    told = gather(
        judged(tables, limits).filter(_ROWS),
        "unread",
        keep=("unread",),
        affected="try_sum(unread)",
        was="try_sum(rise.unread)",
        done="try_sum(try_subtract(committed_offset, rise.committed_offset))",
        span_ms="max(try_subtract(as_of_ms, rise.run_at_ms))",
        runs="min(rise.runs) + 1",
    )
    evidence = phrase(
        "Group {group} consumes {done * 1000 / span_ms|rate} messages/s of topic {topic} and falls"
        " behind by {(affected - was) * 1000 / span_ms|rate} messages/s: from {was|n} to"
        " {affected|messages} unread in {span_ms|duration}, more in each of {runs} runs,"
        " on {where}{seen_by}",
        where=where("worst.unread"),
    )
    return findings(told, "SLOW", Severity.WARNING, evidence=evidence, state="'SLOW'")


SLOW = Check(
    "SLOW",
    "A group consumes more slowly than messages arrive.",
    run,
    needs={"judged": f"bool_or({_ROWS})"},
)
