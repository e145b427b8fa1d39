"""LAG, SLOW, SAMPLING: how far a group that moves is behind the end of its queues.

LAG: it is far behind. SLOW: it works, but messages come faster than it takes them. SAMPLING: a lag
below zero, which comes from reading the offset after the end of the queue.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.checks.progress.telling import either, findings, gather, phrase, where
from aerobee.offset_audit.tables import Tables

_LAGGING: Final = "state = 'LAGGING' and not is_lost"


def _lag(tables: Tables, limits: Limits) -> DataFrame:
    """Queues in state LAGGING; with a known filter the messages that it lets through count."""
    told = gather(
        judged(tables, limits).filter(_LAGGING),
        "unread",
        keep=("unread",),
        affected="try_sum(unread)",
        lag_total="try_sum(lag)",
        is_filtered="bool_or(matching_lag is not null)",
        age_ms="max(try_subtract(as_of_ms, first_unread_ms))",
    )
    evidence = phrase(
        "Group {group} has {affected|messages} of topic {topic} unread on {where}{of};"
        " {age}{seen_by}",
        where=where("worst.unread"),
        of=either("is_filtered", ", counting only those of {lag_total|n} that match its filter"),
        age=either(
            "age_ms is null",
            "how long they have waited is not known",
            "the oldest has waited for {age_ms|duration}",
        ),
    )
    return findings(told, "LAG", Severity.WARNING, evidence=evidence, state="'LAGGING'")


LAG = Check(
    "LAG",
    "A group is far behind the end of a topic, or its oldest unread message has waited long.",
    _lag,
    needs={"judged": f"bool_or({_LAGGING})"},
)


_SLOW: Final = "state = 'SLOW' and not is_lost"


def _slow(tables: Tables, limits: Limits) -> DataFrame:
    """Queues in state SLOW: unread messages rose from run to run while the offset moved."""
    told = gather(
        judged(tables, limits).filter(_SLOW),
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
    _slow,
    needs={"judged": f"bool_or({_SLOW})"},
)


def _sampling(tables: Tables, limits: Limits) -> DataFrame:
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
    _sampling,
    needs={"judged": "bool_or(lag < 0)"},
)
