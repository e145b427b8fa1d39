"""TIER_IMBALANCE: messages, by the minute of their storing, that were acknowledged and are not in
the log. Deliveries are not counted here: offsets behind what is stored are OUT_OF_RANGE_HIGH's.

Judged are whole minutes that have settled: of a minute in which a broker became master, in which
retention begins or which has hardly ended, nobody knows all.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import (
    command_line,
    count_text,
    finding_rows,
    sentence,
    utc_time,
)
from aerobee.offset_audit.tables import Tables

NAME = "TIER_IMBALANCE"
GROUP = ["cluster", "broker_name"]
MINUTE_MS = 60_000


def run(tables: Tables, limits: Limits) -> DataFrame:
    """One finding for each topic of a broker group."""
    settled = tables.minutes.where(
        (F.col("minute") + 1) * MINUTE_MS <= limits.now_ms - limits.settle_ms
    )
    stored = _stored(settled, tables)
    lost = _summed(_lost(settled, stored), [*GROUP, "topic"])
    return finding_rows(
        lost,
        NAME,
        severity=Severity.CRITICAL,
        evidence=_evidence("acknowledged", "more than the log has"),
        affected=F.col("missing"),
        command=command_line("aerobee topic show", "topic"),
    )


def _stored(settled: DataFrame, tables: Tables) -> DataFrame:
    """The most that any replica has of each minute and topic; 0 where a log spans the minute and
    has nothing. Only of minutes of which some replica's log is whole."""
    of_replicas = settled.where(F.col("tier") == "STORED")
    spans = (
        of_replicas.where(F.col("is_whole"))
        .groupBy(*GROUP)
        .agg(F.min("minute").alias("first_minute"), F.max("minute").alias("last_minute"))
    )
    counted = (
        of_replicas.groupBy(*GROUP, "topic", "minute", "broker_id")
        .agg(F.try_sum("messages").alias("messages"), F.min("is_whole").alias("is_whole"))
        .groupBy(*GROUP, "topic", "minute")
        .agg(F.max("messages").alias("stored"), F.max("is_whole").alias("is_whole"))
    )
    return counted.join(F.broadcast(spans), GROUP, "right")


def _lost(settled: DataFrame, stored: DataFrame) -> DataFrame:
    acknowledged = (
        settled.where(F.col("tier") == "ACKNOWLEDGED")
        .groupBy(*GROUP, "topic", "minute")
        .agg(F.try_sum("messages").alias("claimed"), F.min("is_whole").alias("claims_whole"))
    )
    return _compared(acknowledged, stored)


def _compared(claimed: DataFrame, stored: DataFrame) -> DataFrame:
    """Minutes of which more is claimed than stored, in the span that the log is whole over."""
    spans = F.broadcast(stored.select(*GROUP, "first_minute", "last_minute").distinct())
    counts = stored.where(F.col("topic").isNotNull()).select(
        *GROUP, "topic", "minute", "stored", "is_whole"
    )
    return (
        claimed.where(F.col("claims_whole"))
        .join(spans, GROUP)
        .where(F.col("minute").between(F.col("first_minute"), F.col("last_minute")))
        .join(counts, [*GROUP, "topic", "minute"], "left")
        .where(F.coalesce("is_whole", F.lit(True)))
        .withColumn("stored", F.coalesce("stored", F.lit(0)))
        .where(F.col("claimed") > F.col("stored"))
        .withColumn("missing", F.col("claimed") - F.col("stored"))
    )


def _summed(minutes: DataFrame, place: list[str]) -> DataFrame:
    return minutes.groupBy(*place).agg(
        F.count("*").alias("minutes"),
        F.try_sum("missing").alias("missing"),
        F.min_by(F.struct("minute", "claimed", "stored"), "minute").alias("first"),
    )


def _evidence(claim: str, comparison: str) -> Column:
    return sentence(
        count_text(F.col("missing"), "message was", "messages were"),
        f" {claim} {comparison}, in ",
        count_text(F.col("minutes"), "minute", "minutes"),
        "; the first from ",
        utc_time(F.col("first.minute") * MINUTE_MS),
        ": ",
        F.col("first.claimed"),
        f" {claim}, ",
        F.col("first.stored"),
        " stored.",
    )


CHECK = Check(
    NAME,
    "Acknowledged messages are not in the log.",
    run,
    needs={"minutes": "bool_or(tier = 'ACKNOWLEDGED')"},
)
