"""LAG: a group is behind, though it moves."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.checks.progress.telling import either, findings, gather, phrase, where
from aerobee.offset_audit.tables import Tables

_ROWS: Final = "state = 'LAGGING' and not is_lost"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Queues in state LAGGING; with a known tag filter the messages that it lets through count."""
    told = gather(
        judged(tables, limits).filter(_ROWS),
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
        of=either("is_filtered", ", counting only those of {lag_total|n} that match its tags"),
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
    run,
    needs={"judged": f"bool_or({_ROWS})"},
)
