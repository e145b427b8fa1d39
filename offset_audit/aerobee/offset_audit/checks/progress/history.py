"""What earlier runs saw of one group on one queue: the newest runs, oldest first.

`points` is an array of structs, one for each run; the SQL here compares its newest part with the
present. All of it runs inside Spark: no row leaves it.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Window

KEY: Final = ("cluster", "broker_name", "group", "topic", "queue_id")

PREVIOUS: Final = "try_element_at(points, -1)"
"""The newest point; null if there is none."""

BEFORE_RESET: Final = """if(is_reset, try_element_at(
    filter(points, p -> p.run_at_ms < committed_at_ms), -1).committed_offset, null)"""
"""Where the last run before a reset saw the group; null if there was none."""

SEEN_BEFORE: Final = """try_element_at(
    filter(points, p -> p.run_at_ms < at_ms), -1).committed_offset"""
"""Where the last run before a move at `at_ms` saw the group; null if there was none."""

STANDING_SINCE: Final = """aggregate(
    reverse(points),
    named_struct('alive', true, 'since', cast(null as bigint)),
    (seen, p) -> named_struct(
        'alive', seen.alive and p.committed_offset <=> committed_offset
            and coalesce(p.unread, 1) > 0,
        'since', if(seen.alive and p.committed_offset <=> committed_offset
            and coalesce(p.unread, 1) > 0, p.run_at_ms, seen.since)),
    seen -> seen.since)"""
"""When the first run of the latest unbroken series saw this very offset, with unread messages; null
if not even the last run did. Without an offset: the runs that saw none."""

RISE: Final = """aggregate(
    reverse(points),
    named_struct('alive', true, 'runs', 0, 'run_at_ms', cast(null as bigint),
        'unread', unread, 'committed_offset', cast(null as bigint)),
    (seen, p) -> if(seen.alive and p.unread < seen.unread,
        named_struct('alive', true, 'runs', seen.runs + 1, 'run_at_ms', p.run_at_ms,
            'unread', p.unread, 'committed_offset', p.committed_offset),
        named_struct('alive', false, 'runs', seen.runs, 'run_at_ms', seen.run_at_ms,
            'unread', seen.unread, 'committed_offset', seen.committed_offset)))"""
"""The newest runs in a row from each of which to the next, and to now, `unread` rose: a struct of
`runs`, their number, and of the first of them `run_at_ms`, `unread` and `committed_offset`."""


def earlier_points(history: Frame, limits: Limits) -> Frame:
    """Per group and queue `points`: run_at_ms, committed_offset, max_offset, unread, state and
    since_ms of the newest `limits.history_runs` runs."""
    newest = Window.partitionBy("cluster").orderBy(F.desc("run_at_ms"))
    runs = (
        history.select("cluster", "run_at_ms")
        .distinct()
        .withColumn("place", F.row_number().over(newest))
        .where(f"place <= {limits.history_runs}")
        .select("cluster", "run_at_ms")
    )
    point = """struct(run_at_ms, committed_offset, max_offset,
        coalesce(matching_lag, lag) unread, state, since_ms)"""
    return (
        history.join(F.broadcast(runs), ["cluster", "run_at_ms"], "leftsemi")
        .groupBy(*KEY)
        .agg(f"array_sort(collect_list({point})) points")
    )
