"""TIER_IMBALANCE: acknowledged = stored = delivered, by minute: messages that were acknowledged and
are not in the log, and messages that a group was given before the log had them.

Acknowledgements are judged only for whole, settled minutes: a minute in which a broker became
master, in which retention begins or which has just ended is incomplete. What damage or a gap of the
log explains belongs to CORRUPT and GAP. Messages that no group was given, or not yet, belong to
SKIPPED, OUT_OF_RANGE_LOW and LAG.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.deliveries import too_many_deliveries
from aerobee.offset_audit.checks.data.fault_kinds import BAD_TIME, HIDING
from aerobee.offset_audit.checks.finding_rows import (
    command_line,
    finding_rows,
    sentence,
)
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.tables import Tables

NAME = "TIER_IMBALANCE"
GROUP = ["cluster", "broker_name"]
MINUTE_MS = 60_000


def run(tables: Tables, limits: Limits) -> Frame:
    """One finding for each topic of a broker group, and for each group on a topic."""
    settled = tables.minutes.where(
        F.try_multiply(F.col("minute") + 1, F.lit(MINUTE_MS)) <= limits.now_ms - limits.settle_ms
    )
    lost = _unexplained(_lost(settled, _stored(settled, tables)), tables, limits)
    return _acknowledged(lost).unionByName(_delivered(too_many_deliveries(tables)))


def _acknowledged(lost: Frame) -> Frame:
    found = lost.groupBy(*GROUP, "topic").agg(
        F.count("*").alias("minutes"),
        F.try_sum(F.try_subtract("claimed", "stored")).alias("missing"),
        F.min_by(F.struct("minute", "claimed", "stored"), "minute").alias("first"),
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.CRITICAL,
        evidence=sentence(
            "{missing|more message was|more messages were} acknowledged than the log "
            "has, in {minutes|minute|minutes}; first minute {try_multiply(first.minute, "
            "60000)|instant}: {first.claimed} "
            "acknowledged, {first.stored} stored.",
        ),
        affected=F.col("missing"),
        command=command_line("aerobee topic show", "topic"),
    )


def _delivered(early: Frame) -> Frame:
    """The replica that reports most counts; a message given too early counts in each minute until
    it is stored, so the worst minute has them all."""
    missing = F.try_subtract("claimed", "stored")
    found = (
        early.groupBy(*GROUP, "broker_id", "topic", "group")
        .agg(
            F.count("*").alias("minutes"),
            F.max(missing).alias("missing"),
            F.max_by(F.struct("minute", "claimed", "stored"), missing).alias("worst"),
        )
        .groupBy(*GROUP, "topic", "group")
        .agg(
            *(
                F.max_by(name, F.struct("missing", "broker_id")).alias(name)
                for name in ("minutes", "missing", "worst")
            )
        )
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.CRITICAL,
        evidence=sentence(
            "Group {group} was given {missing|message|messages} of topic {topic} that "
            "the log did not have: by {try_multiply(worst.minute + 1, 60000)|instant} its "
            "journal had {worst.claimed} "
            "committed, and {worst.stored} had been stored; as many later messages "
            "may have been skipped.",
        ),
        affected=F.col("missing"),
        command=command_line("aerobee group show", "group"),
    )


def _stored(settled: Frame, tables: Tables) -> Frame:
    """The maximum over the replicas for each minute and topic; 0 if a log spans the minute and has
    nothing. Only minutes for which some replica's log is complete."""
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


def _lost(settled: Frame, stored: Frame) -> Frame:
    acknowledged = (
        settled.where(F.col("tier") == "ACKNOWLEDGED")
        .groupBy(*GROUP, "topic", "minute")
        .agg(F.try_sum("messages").alias("claimed"), F.min("is_whole").alias("claims_whole"))
    )
    return _compared(acknowledged, stored)


def _compared(claimed: Frame, stored: Frame) -> Frame:
    """Minutes with more claimed than stored, in the span for which the log is complete."""
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
    )


def _unexplained(lost: Frame, tables: Tables, limits: Limits) -> Frame:
    """Without topics whose losses other checks report, and broker groups with a store whose log is
    partly unreadable or contains a wrong time: CORRUPT reports those."""
    told = compared(tables, limits).where(F.col("class").isin("LOST", "HOLE"))
    damaged = tables.faults.where(F.col("kind").isin(*HIDING, BAD_TIME))
    return lost.join(
        F.broadcast(told.select(*GROUP, "topic").distinct()), [*GROUP, "topic"], "left_anti"
    ).join(F.broadcast(damaged.select(*GROUP).distinct()), GROUP, "left_anti")


CHECK = Check(
    NAME,
    "Acknowledged messages are not in the log, or a group was given more than was stored.",
    run,
    is_deep=True,
    needs={"minutes": "bool_or(tier = 'STORED')"},
)
