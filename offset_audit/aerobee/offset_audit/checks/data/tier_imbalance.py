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
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import phrase
from aerobee.offset_audit.tables import Tables

NAME = "TIER_IMBALANCE"
GROUP = ["cluster", "broker_name"]
MINUTE_MS = 60_000


def run(tables: Tables, limits: Limits) -> Frame:
    """One finding for each topic of a broker group, and for each group on a topic."""
    settled = tables.minutes.where(
        f"try_multiply(minute + 1, {MINUTE_MS}) <= {limits.now_ms - limits.settle_ms}"
    )
    lost = _unexplained(_lost(settled, _stored(settled)), tables, limits)
    return _acknowledged(lost).unionByName(_delivered(too_many_deliveries(tables)))


def _acknowledged(lost: Frame) -> Frame:
    found = lost.groupBy(*GROUP, "topic").agg(
        "count(1) minutes",
        "try_sum(try_subtract(claimed, stored)) missing",
        "min_by(struct(minute, claimed, stored), minute) first",
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.CRITICAL,
        evidence=phrase(
            "{missing|more message was|more messages were} acknowledged than the log "
            "has, in {minutes|minute|minutes}; first minute {try_multiply(first.minute, "
            "60000)|instant}: {first.claimed} "
            "acknowledged, {first.stored} stored.",
        ),
        affected="missing",
        command="aerobee topic show {topic}",
    )


def _delivered(early: Frame) -> Frame:
    """The replica that reports most counts; a message given too early counts in each minute until
    it is stored, so the worst minute has them all."""
    found = (
        early.withColumn("missing", "try_subtract(claimed, stored)")
        .groupBy(*GROUP, "broker_id", "topic", "group")
        .agg(
            "count(1) minutes",
            "max_by(struct(minute, claimed, stored), missing) worst",
            "max(missing) missing",
        )
        .groupBy(*GROUP, "topic", "group")
        .agg(
            *(
                f"max_by({name}, struct(missing, broker_id)) {name}"
                for name in ("minutes", "worst", "missing")
            )
        )
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.CRITICAL,
        evidence=phrase(
            "Group {group} was given {missing|message|messages} of topic {topic} that "
            "the log did not have: by {try_multiply(worst.minute + 1, 60000)|instant} its "
            "journal had {worst.claimed} "
            "committed, and {worst.stored} had been stored; as many later messages "
            "may have been skipped.",
        ),
        affected="missing",
        command="aerobee group show {group}",
    )


def _stored(settled: Frame) -> Frame:
    """The maximum over the replicas for each minute and topic; 0 if a log spans the minute and has
    nothing. Only minutes for which some replica's log is complete."""
    of_replicas = settled.where("tier = 'STORED'")
    spans = (
        of_replicas.where("is_whole")
        .groupBy(*GROUP)
        .agg("min(minute) first_minute", "max(minute) last_minute")
    )
    counted = (
        of_replicas.groupBy(*GROUP, "topic", "minute", "broker_id")
        .agg("try_sum(messages) messages", "min(is_whole) is_whole")
        .groupBy(*GROUP, "topic", "minute")
        .agg("max(messages) stored", "max(is_whole) is_whole")
    )
    return counted.join(F.broadcast(spans), GROUP, "right")


def _lost(settled: Frame, stored: Frame) -> Frame:
    """Minutes with more acknowledged than stored, in the span for which the log is complete."""
    claimed = (
        settled.where("tier = 'ACKNOWLEDGED'")
        .groupBy(*GROUP, "topic", "minute")
        .agg("try_sum(messages) claimed", "min(is_whole) claims_whole")
    )
    spans = F.broadcast(stored.select(*GROUP, "first_minute", "last_minute").distinct())
    counts = stored.where("topic is not null").select(
        *GROUP, "topic", "minute", "stored", "is_whole"
    )
    return (
        claimed.where("claims_whole")
        .join(spans, GROUP)
        .where("minute between first_minute and last_minute")
        .join(counts, [*GROUP, "topic", "minute"], "left")
        .where("coalesce(is_whole, true)")
        .withColumn("stored", "coalesce(stored, 0)")
        .where("claimed > stored")
    )


def _unexplained(lost: Frame, tables: Tables, limits: Limits) -> Frame:
    """Without topics whose losses other checks report, and broker groups with a store whose log is
    partly unreadable or contains a wrong time: CORRUPT reports those."""
    told = compared(tables, limits).where("class in ('LOST', 'HOLE')")
    damaged = tables.faults.where(f"kind in {(*HIDING, BAD_TIME)}")
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
