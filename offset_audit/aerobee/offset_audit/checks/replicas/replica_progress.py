"""REPLICA_PROGRESS: a slave whose log, or whose committed offsets, are too far behind its master's.

A replica of the master's in-sync set is never called late, whatever the numbers: the set is decided
by the broker continuously, the numbers here come from two readings at two moments.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import (
    finding_rows,
    sentence,
)
from aerobee.offset_audit.checks.replicas.leaders import (
    GROUP,
    REPLICA,
    heard_replicas,
    with_small_tables,
)
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.tables import Tables

QUEUE = [*GROUP, "topic", "queue_id"]
COMMIT = [*GROUP, "group", "topic", "queue_id"]


def _replica_progress(tables: Tables, limits: Limits) -> Frame:
    """One finding for each replica that is behind."""
    tables = with_small_tables(tables)
    replicas = heard_replicas(tables).join(_newest_messages(tables), REPLICA, "left")
    pairs = _pairs(replicas)
    pairs = F.broadcast(pairs.join(_missed_since(tables, pairs), REPLICA, "left"))
    behind = pairs.where(_is_late(limits))
    late = (
        behind.join(_missing_messages(tables, behind), REPLICA, "left")
        .withColumn("missing_commits", F.lit(None).cast("long"))
        .withColumn("worst_text", F.lit(None).cast("string"))
    )
    in_step = pairs.where(
        (F.col("bytes_behind") <= 0) | F.coalesce("is_in_sync", F.lit(False))
    ).where(F.col("leader_role") == "MASTER")
    forgetful = in_step.join(_missing_commits(tables, in_step, limits), REPLICA).withColumn(
        "missing_messages", F.lit(None).cast("long")
    )
    is_log = F.col("missing_commits").isNull()
    leader = sentence("{broker_name}:{leader_id}")
    return finding_rows(
        late.unionByName(forgetful),
        "REPLICA_PROGRESS",
        severity=Severity.WARNING,
        evidence=F.when(is_log, _log_evidence(leader)).otherwise(_commits_evidence(leader)),
        affected=F.coalesce("missing_commits", "missing_messages"),
        command="aerobee cluster show",
    )


def _newest_messages(tables: Tables) -> Frame:
    return tables.queues.groupBy(*REPLICA).agg(F.max("last_store_ms").alias("newest_ms"))


def _missed_since(tables: Tables, pairs: Frame) -> Frame:
    """`missed_ms`: the earliest time by which the leader is known to have had a message newer than
    all of the replica's."""
    newest = pairs.select(*REPLICA, "leader_id", "newest_ms").where("newest_ms is not null")
    ends = tables.queues.selectExpr(
        *GROUP, "broker_id leader_id", "last_store_ms begin_ms", "last_store_ms end_ms"
    )
    minutes = tables.minutes.where("messages > 0").selectExpr(
        *GROUP,
        "broker_id leader_id",
        "try_multiply(minute, 60000L) begin_ms",
        "try_multiply(minute + 1, 60000L) end_ms",
    )
    return (
        ends.unionByName(minutes)
        .join(F.broadcast(newest), [*GROUP, "leader_id"])
        .where("begin_ms > newest_ms")
        .groupBy(*REPLICA)
        .agg(F.min("end_ms").alias("missed_ms"))
    )


def _pairs(replicas: Frame) -> Frame:
    """Each replica beside its leader, with how far it is behind in bytes and in time."""
    leaders = replicas.where("is_leader").select(
        *GROUP,
        F.col("broker_id").alias("leader_id"),
        F.col("role").alias("leader_role"),
        F.col("in_sync").alias("leader_in_sync"),
        F.col("newest_ms").alias("leader_newest_ms"),
        # What the master has not confirmed need not be anywhere else yet.
        F.when(F.col("role") == "MASTER", F.coalesce("confirmed_end", "appended_end"))
        .otherwise(F.col("appended_end"))
        .alias("leader_end"),
    )
    followers = replicas.where(~F.col("is_leader") & (F.col("role") != "MASTER"))
    return (
        followers.select(
            *REPLICA, "role", "epoch", "appended_end", "newest_ms", "commits_read_at_ms"
        )
        .join(leaders, GROUP)
        # A broker and the copy of its own folder are not replicas of each other.
        .where(F.col("broker_id") != F.col("leader_id"))
        .withColumn("bytes_behind", F.col("leader_end") - F.col("appended_end"))
        .withColumn("ms_behind", F.try_subtract(F.col("leader_newest_ms"), F.col("newest_ms")))
        .withColumn(
            "is_in_sync",
            F.when(
                (F.col("leader_role") == "MASTER") & (F.size("leader_in_sync") > 0),
                F.array_contains("leader_in_sync", F.col("broker_id")),
            ),
        )
    )


def _is_late(limits: Limits) -> Column:
    too_far = F.coalesce(F.col("bytes_behind") > limits.replica_lag_bytes, F.lit(False))
    too_old = F.coalesce(
        (F.col("bytes_behind") > 0)
        & (F.col("ms_behind") > limits.replica_lag_ms)
        # A quiet master's next message may have come after the replica was asked.
        & F.coalesce(
            F.col("missed_ms") <= F.col("commits_read_at_ms") - limits.settle_ms,
            F.col("commits_read_at_ms").isNull(),
        ),
        F.lit(False),
    )
    return ~F.coalesce("is_in_sync", F.lit(False)) & (too_far | too_old)


def _missing_messages(tables: Tables, behind: Frame) -> Frame:
    """How many messages in the leader's queues a late replica lacks."""
    ends = tables.queues.select(*QUEUE, "broker_id", "max_offset")
    wanted = behind.select(*REPLICA, "leader_id")
    of_leaders = ends.withColumnRenamed("broker_id", "leader_id").withColumnRenamed(
        "max_offset", "leader_max"
    )
    return (
        wanted.join(of_leaders, [*GROUP, "leader_id"])
        .join(ends, [*QUEUE, "broker_id"], "left")
        .groupBy(*REPLICA)
        .agg(
            F.try_sum(
                F.greatest(
                    F.try_subtract(F.col("leader_max"), F.coalesce("max_offset", F.lit(0))),
                    F.lit(0),
                )
            ).alias("missing_messages")
        )
    )


def _missing_commits(tables: Tables, in_step: Frame, limits: Limits) -> Frame:
    """Commits that have been in a replica's log for long enough, but that it does not know.

    A replica that reports no commits at all is not judged: it is unknown what it has.
    """
    latest_ms = F.col("commits_read_at_ms") - limits.settle_ms - limits.clock_skew_ms
    commits = tables.commits.select(*COMMIT, "broker_id", "offset")
    of_leaders = tables.commits.select(
        *COMMIT,
        F.col("broker_id").alias("leader_id"),
        F.col("offset").alias("leader_offset"),
        "committed_at_ms",
    )
    telling = commits.select(*REPLICA).distinct()
    wanted = in_step.select(*REPLICA, "leader_id", "commits_read_at_ms").join(
        telling, REPLICA, "left_semi"
    )
    return (
        wanted.join(of_leaders, [*GROUP, "leader_id"])
        .where(F.col("committed_at_ms") < latest_ms)
        .join(commits, [*COMMIT, "broker_id"], "left")
        .where(F.coalesce("offset", F.lit(0)) < F.col("leader_offset"))
        .groupBy(*REPLICA)
        .agg(
            F.count("*").alias("missing_commits"),
            F.max_by(
                F.struct("group", "topic", "queue_id", "offset", "leader_offset"),
                F.try_subtract(F.col("leader_offset"), F.coalesce("offset", F.lit(0))),
            ).alias("worst"),
        )
        .withColumn(
            "worst_text",
            sentence(
                "group {worst.group} on {worst.topic}, queue {worst.queue_id}: "
                "{worst.offset} here, {worst.leader_offset} there"
            ),
        )
        .drop("worst")
    )


def _log_evidence(leader: Column) -> Column:
    return sentence(
        "The log ends at byte {appended_end}, {bytes_behind} bytes before "
        "{leader}'s; its newest message is {ms_behind} ms older; the in-sync set "
        "{reason}.",
        leader=leader,
        reason=F.when(F.col("is_in_sync").isNull(), "is not known").otherwise(
            "does not include it"
        ),
    )


def _commits_evidence(leader: Column) -> Column:
    return sentence(
        "{missing_commits|committed offset is|committed offsets are} behind "
        "{leader}'s though the log is not; the furthest: {worst_text}.",
        leader=leader,
    )


REPLICA_PROGRESS = Check(
    "REPLICA_PROGRESS",
    "A replica is too far behind its master.",
    _replica_progress,
    needs={"brokers": "count(1) > 1"},
)
