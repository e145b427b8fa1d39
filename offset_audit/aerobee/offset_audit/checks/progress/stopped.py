"""STOPPED: messages wait for a group that has no members."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.checks.progress.telling import (
    either,
    findings,
    gather,
    have_waited,
    in_topic,
    phrase,
    where,
)
from aerobee.offset_audit.tables import Tables

_ROWS: Final = "state = 'STOPPED' and not is_lost"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Queues in state STOPPED: one finding for a group without any member, whatever its topics; one
    for each topic to which none of its members subscribes."""
    rows = judged(tables, limits).filter(_ROWS)
    told = gather(
        rows.withColumn("left_topic", F.expr("if(group_members > 0, topic, null)")),
        "try_subtract(as_of_ms, waiting_since_ms)",
        keep=("as_of_ms", "waiting_since_ms", "group_members"),
        by=("cluster", "group", "left_topic"),
        affected="try_sum(unread)",
        topics="count(distinct topic)",
    )
    evidence = phrase(
        "Group {group} has {members}, and {messages} in {topic} on {where}; nothing was committed"
        " for {try_subtract(worst.as_of_ms, worst.waiting_since_ms)|duration}.",
        members=either(
            "left_topic is null",
            "no members",
            "{worst.group_members|members}, of which none subscribes to topic {left_topic}",
        ),
        messages=have_waited(),
        topic=in_topic(),
        where=where(),
    )
    return findings(
        told,
        "STOPPED",
        Severity.WARNING,
        evidence=evidence,
        topic="if(topics = 1, worst.topic, null)",
        state="'STOPPED'",
    )


STOPPED = Check(
    "STOPPED",
    "Messages wait for a group that has no members.",
    run,
    needs={"judged": f"bool_or({_ROWS})"},
)
