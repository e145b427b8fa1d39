"""SAMPLING: a lag below zero that comes from reading the offset after the end of the queue."""

from __future__ import annotations

from pyspark.sql import DataFrame

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.checks.progress.telling import findings, gather, phrase, where
from aerobee.offset_audit.tables import Tables


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Queues whose lag is below zero only because the group went on between two readings."""
    rows = judged(tables, limits).filter(
        "not is_system and lag < 0 and role <> 'STORE' and commit_read_at_ms > queue_read_at_ms"
    )
    told = gather(
        rows,
        "try_subtract(0L, lag)",
        keep=("committed_offset", "max_offset", "commit_read_at_ms", "queue_read_at_ms"),
        affected="try_sum(try_subtract(0L, lag))",
    )
    evidence = phrase(
        "The lag of group {group} on topic {topic} is not known on {where}: offset "
        "{worst.committed_offset} was read {worst.commit_read_at_ms - worst.queue_read_at_ms|n} "
        "ms after the end {worst.max_offset}{seen_by}",
        where=where(),
    )
    return findings(told, "SAMPLING", Severity.INFO, evidence=evidence, state="'UNKNOWN'")


SAMPLING = Check(
    "SAMPLING",
    "A lag below zero that comes from the order of reading.",
    run,
    needs={"judged": "bool_or(lag < 0)"},
)
