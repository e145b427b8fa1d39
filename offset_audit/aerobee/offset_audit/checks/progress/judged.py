"""Every group's progress on every queue, in one wide row, for the checks of progress.

One row for each committed offset, and for each queue with messages that a group's members subscribe
to without having committed there (`committed_offset` null). It joins the report of the broker
group's judging replica with the journal and earlier runs, and decides the state. Null means "not
known": the members of stores at rest and of slaves are not known, so nothing there is called stuck
or stopped.

In files at rest the table of offsets is a snapshot, and the journal continues where it ends: the
newer of the two counts.

Queues of a topic that no longer exists (`is_gone`) may still be there; their offsets are reported
only by ORPHAN.

Unread messages are those that the group wants: `matching_lag` if its filter is known and was
counted, otherwise `lag`, which is never clipped.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.progress.history import (
    BEFORE_RESET,
    KEY,
    PREVIOUS,
    RISE,
    STANDING_SINCE,
    earlier_points,
)
from aerobee.offset_audit.checks.progress.journal import changes, standings
from aerobee.offset_audit.checks.progress.replicas import (
    BROKER,
    judging_replicas,
    of_replicas,
)
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.columns_of_tables import columns_of
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.names import (
    IS_LIGHT_TOPIC,
    IS_SYSTEM_GROUP,
    IS_SYSTEM_TOPIC,
    RETRY_TOPIC,
)
from aerobee.offset_audit.rules.rule import numbers_of
from aerobee.offset_audit.tables import STATES, Tables

QUEUE: Final = (*BROKER, "topic", "queue_id")

KNOWN: Final = {
    "lag": "try_subtract(max_offset, committed_offset)",
    "unread": """if(max_offset >= committed_offset,
        coalesce(matching_lag, try_subtract(max_offset, committed_offset)), null)""",
    "members": "if(role = 'MASTER', coalesce(subscribers, 0), null)",
    "group_members": "if(role = 'MASTER', coalesce(group_members, 0), null)",
    "is_broadcasting": "role = 'MASTER' and coalesce(group_members, 0) = 0"
    " and coalesce(broadcasters, 0) > 0",
    "is_system": f"{IS_SYSTEM_GROUP} or {IS_SYSTEM_TOPIC}",
    "is_light": IS_LIGHT_TOPIC,
    "is_gone": f"has_topics and is_in_topics is null and not {IS_LIGHT_TOPIC}",
    "is_lost": "coalesce(committed_offset < min_offset, false)",
}
"""Columns that do not depend on one another."""

WAITING_SINCE: Final = """if(unread > 0, coalesce(
    if(committed_at_ms is not null and first_unread_ms is not null,
        greatest(committed_at_ms, first_unread_ms), null),
    least(standing_since_ms,
        if(committed_at_ms is not null and last_store_ms is not null,
            greatest(committed_at_ms, last_store_ms), null))), null)"""
"""Since when messages have waited without any commit: never too early, null if unknown. It is known
from the times of the last commit and of the first unread message. Otherwise the newest message is
unread too, so unread messages have waited at least since it arrived; and the runs that saw the same
offset are evidence."""

CAUSE: Final = """case
    when state <> 'STUCK' then null
    when holder is null then 'NOT_HELD'
    when holder_epoch < lease_epoch or (is_reset and holder_epoch <= lease_epoch) then 'REFUSED'
    when try_subtract(as_of_ms, holder_committed_at_ms) between 0 and {stuck_ms} then 'POISON'
    else 'SILENT' end"""
"""Why a queue is stuck."""

STATE: Final = """case
    when is_system or is_broadcasting or is_gone or unread is null or lag < 0 then 'UNKNOWN'
    when unread = 0 then 'OK'
    when members = 0 and try_subtract(as_of_ms, waiting_since_ms) >= {stopped_ms} then 'STOPPED'
    when members > 0 and try_subtract(as_of_ms, waiting_since_ms) >= {stuck_ms} then 'STUCK'
    when unread >= {slow_messages} and rise.runs >= {slow_runs}
        and try_subtract(as_of_ms, rise.run_at_ms) >= {slow_ms}
        and committed_offset > rise.committed_offset then 'SLOW'
    when unread >= {lag_messages}
        or try_subtract(as_of_ms, first_unread_ms) >= {lag_age_ms} then 'LAGGING'
    else 'OK' end"""

SINCE: Final = """coalesce(
    if(previous.state = state, previous.since_ms, null),
    if(state in ('STUCK', 'STOPPED'), waiting_since_ms, null),
    as_of_ms)"""
"""Since when it has been in its state."""


def judged(tables: Tables, limits: Limits) -> Frame:
    """The run's table, if made already; otherwise made now."""
    return judge(tables, limits) if tables.judged is None else tables.judged


def judge(tables: Tables, limits: Limits) -> Frame:
    """One wide row for each group and queue; a run persists it as `Tables.judged`."""
    numbers = numbers_of(limits)
    rows = _joined(tables, limits)
    known = rows.withColumns(KNOWN).withColumns(
        {
            "previous": PREVIOUS,
            "before_reset": BEFORE_RESET,
            "standing_since_ms": STANDING_SINCE,
        }
    )
    return (
        known.withColumns({"rise": RISE, "waiting_since_ms": WAITING_SINCE})
        .withColumn("state", STATE.format(**numbers))
        .withColumns({"cause": CAUSE.format(**numbers), "since_ms": SINCE})
        .drop("points", "subscribers", "broadcasters", "is_snapshot_old")
    )


def _joined(tables: Tables, limits: Limits) -> Frame:
    replicas = judging_replicas(tables, limits)
    queues = of_replicas(tables.queues, replicas).selectExpr(
        *QUEUE, "min_offset", "max_offset", "last_store_ms", "read_at_ms queue_read_at_ms"
    )
    members = of_replicas(tables.members, replicas)
    subscribers = _subscribers(members)
    commits = of_replicas(tables.commits, replicas).selectExpr(
        *KEY,
        "offset committed_offset",
        "lease_epoch",
        "committed_at_ms",
        "client_id",
        "is_reset",
        "first_unread_ms",
        "matching_unread matching_lag",
        "read_at_ms commit_read_at_ms",
    )
    awaited = (
        subscribers.where(f"not {IS_SYSTEM_GROUP}")
        .join(queues.where("max_offset > min_offset"), [*BROKER, "topic"])
        .select(*KEY)
    )
    topics = of_replicas(tables.topics, replicas).selectExpr(
        *BROKER,
        "topic",
        "greatest(read_queue_count, write_queue_count) queue_count",
        "read_queue_count",
        "true is_in_topics",
    )
    return (
        commits.join(awaited, list(KEY), "full")
        .join(_leases(of_replicas(tables.leases, replicas), members), list(KEY), "left")
        .join(earlier_points(tables.history, limits), list(KEY), "left")
        .join(standings(changes(tables, limits), limits), list(KEY), "left")
        .join(queues, list(QUEUE), "left")
        .join(topics, [*BROKER, "topic"], "left")
        .join(subscribers, [*BROKER, "group", "topic"], "left")
        .join(_committed_first(commits), ["cluster", "group", "topic"], "left")
        # Broadcast: most rows have no holder, and would all end up in one partition.
        .join(F.broadcast(_activity(commits)), ["cluster", "group", "holder"], "left")
        .join(F.broadcast(_group_members(members)), [*BROKER, "group"], "left")
        .join(F.broadcast(replicas), list(BROKER))
        .withColumn("is_snapshot_old", "role = 'STORE' and told_ms > committed_at_ms")
        .withColumns(
            {
                "committed_offset": "if(is_snapshot_old, stands_at, committed_offset)",
                "committed_at_ms": "if(is_snapshot_old, told_ms, committed_at_ms)",
            }
        )
    )


def _group_members(members: Frame) -> Frame:
    return members.groupBy(*BROKER, "group").agg(
        "count_if(not coalesce(broadcasting, false)) group_members",
        "count_if(broadcasting) broadcasters",
    )


def _subscribers(members: Frame) -> Frame:
    """How many members consume what; every member consumes its group's retry topic."""
    topics = f"array_distinct(array_append(subscriptions.topic, {RETRY_TOPIC}))"
    return (
        members.where("not coalesce(broadcasting, false)")
        .selectExpr(*BROKER, "group", f"explode({topics}) topic")
        .groupBy(*BROKER, "group", "topic")
        .agg("count(1) subscribers")
    )


def _leases(leases: Frame, members: Frame) -> Frame:
    """Who holds a queue, under which lease, and whether it is a member of the group there."""
    present = members.selectExpr(*BROKER, "group", "client_id holder", "true holder_is_member")
    return leases.selectExpr(*KEY, "client_id holder", "lease_epoch holder_epoch").join(
        F.broadcast(present), [*BROKER, "group", "holder"], "left"
    )


def _activity(commits: Frame) -> Frame:
    """When each client last committed anything of its group, on whatever queue."""
    return (
        commits.where("client_id <> ''")
        .groupBy("cluster", "group", F.col("client_id").alias("holder"))
        .agg("max(committed_at_ms) holder_committed_at_ms")
    )


def _committed_first(commits: Frame) -> Frame:
    """The oldest of a group's newest commits on a topic: it has been there at least that long."""
    return commits.groupBy("cluster", "group", "topic").agg(
        "min(committed_at_ms) group_committed_ms"
    )


def progress(tables: Tables, limits: Limits) -> Frame:
    """Rows of STATES; `run_id` and `run_at_ms` are null and the run fills them.

    The system's own groups have none. A queue on which a group's members wait for messages without
    a commit has a row with a null offset: the next run sees how long that has lasted.
    """
    rows = judged(tables, limits).where("not is_system")
    given = {"run_id": F.lit(None), "run_at_ms": F.lit(None)}
    return rows.select(
        *(given.get(name, F.col(name)).cast(kind).alias(name) for name, kind in columns_of(STATES))
    )
