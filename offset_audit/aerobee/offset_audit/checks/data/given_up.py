"""GIVEN_UP: messages that were due, but that their broker set aside instead of delivering.

Reported while the timer journal has it, until retention removes that part of the log.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.stores import ORIGIN, STORE, verify_command, with_roles
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.tables import Tables


def _given_up(tables: Tables, limits: Limits) -> Frame:
    """One finding for each queue of the system topics. If all were for topics that no longer exist,
    this was intended: a warning."""
    topics = tables.topics.select(*ORIGIN, F.col("topic").alias("real_topic")).distinct()
    found = (
        tables.pending.where(F.col("kind") == "GIVEN_UP")
        .join(
            F.broadcast(topics.withColumn("is_there", F.lit(True))),
            [*ORIGIN, "real_topic"],
            "left",
        )
        .groupBy(*STORE, "topic", "queue_id")
        .agg(
            F.count("*").alias("messages"),
            F.bool_or(F.coalesce("is_there", F.col("real_topic").isNull())).alias("is_wrong"),
            F.min_by(
                F.struct("queue_offset", "unique_key", "real_topic", "due_ms", "reason"),
                "queue_offset",
            ).alias("first"),
        )
    )
    return finding_rows(
        with_roles(found, tables),
        "GIVEN_UP",
        severity=F.when(F.col("is_wrong"), Severity.ERROR.value).otherwise(Severity.WARNING.value),
        evidence=sentence(
            "{messages|message of |messages of }{topic}/{queue_id} could not be "
            "delivered and will not be; the first, queue offset "
            "{first.queue_offset}{id}{target}, was due at {first.due_ms|instant}: "
            "{first.reason}; store {store}.",
            id=_told("unique_key", ", id "),
            target=_told("real_topic", ", for topic "),
        ),
        affected=F.col("messages"),
        command=verify_command(),
    )


def _told(name: str, before: str) -> Column:
    value = F.col(f"first.{name}")
    return F.when(value.isNotNull(), sentence(before + "{value}", value=value)).otherwise("")


GIVEN_UP = Check(
    "GIVEN_UP",
    "Delayed messages were set aside instead of being delivered.",
    _given_up,
    is_deep=True,
    needs={"pending": "bool_or(kind = 'GIVEN_UP')"},
)
