"""REPLICA_PROGRESS: a slave whose log, or whose committed offsets, are too far behind its master's.

A replica of the master's in-sync set is never called late, whatever the numbers: the set is decided
by the broker continuously, the numbers here come from two readings at two moments.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import (
    GROUP,
    REPLICA,
    heard_replicas,
    with_small_tables,
)
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

QUEUE = [*GROUP, "topic", "queue_id"]
COMMIT = [*GROUP, "group", "topic", "queue_id"]
_LOG_TOLD: Final = phrase(
    "The log ends at byte {appended_end}, {bytes_behind} bytes before "
    "{broker_name}:{leader_id}'s; its newest message is {ms_behind} ms older; the in-sync set "
    "{reason}.",
    reason=either("is_in_sync is null", "is not known", "does not include it"),
)
_COMMITS_TOLD: Final = phrase(
    "{missing_commits|committed offset is|committed offsets are} behind "
    "{broker_name}:{leader_id}'s though the log is not; the furthest: {worst_text}."
)


def _replica_progress(tables: Tables, limits: Limits) -> Frame:
    """One finding for each replica that is behind."""
    tables = with_small_tables(tables)
    newest = tables.queues.groupBy(*REPLICA).agg("max(last_store_ms) newest_ms")
    pairs = _pairs(heard_replicas(tables).join(newest, REPLICA, "left"))
    pairs = F.broadcast(pairs.join(_missed_since(tables, pairs), REPLICA, "left"))
    behind = pairs.where(_is_late(limits))
    late = behind.join(_missing_messages(tables, behind), REPLICA, "left").withColumns(
        {"missing_commits": "cast(null as long)", "worst_text": "cast(null as string)"}
    )
    in_step = pairs.where(
        "(bytes_behind <= 0 or coalesce(is_in_sync, false)) and leader_role = 'MASTER'"
    )
    forgetful = in_step.join(_missing_commits(tables, in_step, limits), REPLICA).withColumn(
        "missing_messages", "cast(null as long)"
    )
    return finding_rows(
        late.unionByName(forgetful),
        "REPLICA_PROGRESS",
        severity=Severity.WARNING,
        evidence=f"if(missing_commits is null, {_LOG_TOLD}, {_COMMITS_TOLD})",
        affected="coalesce(missing_commits, missing_messages)",
        command="aerobee cluster show",
    )


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
        .agg("min(end_ms) missed_ms")
    )


def _pairs(replicas: Frame) -> Frame:
    """Each replica beside its leader, with how far it is behind in bytes and in time."""
    leaders = replicas.where("is_leader").selectExpr(
        *GROUP,
        "broker_id leader_id",
        "role leader_role",
        "in_sync leader_in_sync",
        "newest_ms leader_newest_ms",
        # What the master has not confirmed need not be anywhere else yet.
        "if(role = 'MASTER', coalesce(confirmed_end, appended_end), appended_end) leader_end",
    )
    return (
        replicas.where("not is_leader and role <> 'MASTER'")
        .select(*REPLICA, "role", "epoch", "appended_end", "newest_ms", "commits_read_at_ms")
        .join(leaders, GROUP)
        # A broker and the copy of its own folder are not replicas of each other.
        .where("broker_id <> leader_id")
        .withColumns(
            {
                "bytes_behind": "leader_end - appended_end",
                "ms_behind": "try_subtract(leader_newest_ms, newest_ms)",
                "is_in_sync": "if(leader_role = 'MASTER' and size(leader_in_sync) > 0,"
                " array_contains(leader_in_sync, broker_id), null)",
            }
        )
    )


def _is_late(limits: Limits) -> str:
    # A quiet master's next message may have come after the replica was asked.
    is_known = f"""coalesce(missed_ms <= commits_read_at_ms - {limits.settle_ms},
        commits_read_at_ms is null)"""
    return f"""not coalesce(is_in_sync, false) and (
        coalesce(bytes_behind > {limits.replica_lag_bytes}, false)
        or coalesce(
            bytes_behind > 0 and ms_behind > {limits.replica_lag_ms} and {is_known}, false))"""


def _missing_messages(tables: Tables, behind: Frame) -> Frame:
    """How many messages in the leader's queues a late replica lacks."""
    ends = tables.queues.select(*QUEUE, "broker_id", "max_offset")
    of_leaders = tables.queues.selectExpr(*QUEUE, "broker_id leader_id", "max_offset leader_max")
    return (
        behind.select(*REPLICA, "leader_id")
        .join(of_leaders, [*GROUP, "leader_id"])
        .join(ends, [*QUEUE, "broker_id"], "left")
        .groupBy(*REPLICA)
        .agg(
            "try_sum(greatest(try_subtract(leader_max, coalesce(max_offset, 0)), 0))"
            " missing_messages"
        )
    )


def _missing_commits(tables: Tables, in_step: Frame, limits: Limits) -> Frame:
    """Commits that have been in a replica's log for long enough, but that it does not know.

    A replica that reports no commits at all is not judged: it is unknown what it has.
    """
    commits = tables.commits.select(*COMMIT, "broker_id", "offset")
    of_leaders = tables.commits.selectExpr(
        *COMMIT, "broker_id leader_id", "offset leader_offset", "committed_at_ms"
    )
    wanted = in_step.select(*REPLICA, "leader_id", "commits_read_at_ms").join(
        commits.select(*REPLICA).distinct(), REPLICA, "left_semi"
    )
    settled_ms = limits.settle_ms + limits.clock_skew_ms
    return (
        wanted.join(of_leaders, [*GROUP, "leader_id"])
        .where(f"committed_at_ms < commits_read_at_ms - {settled_ms}")
        .join(commits, [*COMMIT, "broker_id"], "left")
        .where("coalesce(offset, 0) < leader_offset")
        .groupBy(*REPLICA)
        .agg(
            "count(1) missing_commits",
            """max_by(struct(group, topic, queue_id, offset, leader_offset),
                try_subtract(leader_offset, coalesce(offset, 0))) worst""",
        )
        .withColumn(
            "worst_text",
            phrase(
                "group {worst.group} on {worst.topic}, queue {worst.queue_id}: "
                "{worst.offset} here, {worst.leader_offset} there"
            ),
        )
        .drop("worst")
    )


REPLICA_PROGRESS = Check(
    "REPLICA_PROGRESS",
    "A replica is too far behind its master.",
    _replica_progress,
    needs={"brokers": "count(1) > 1"},
)
