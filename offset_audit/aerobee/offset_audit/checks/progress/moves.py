"""How offsets were moved in other ways than by consuming: one row for each such move.

From the journal, and from comparing the current offsets with the journal and earlier runs. Columns:
the key, `broker_id`, `role`, `epoch`, `way`, `was`, `was_ms` (null: not known), `now`, `at_ms`
(likewise), `passed` (of a move forward: messages never consumed since), `is_exact` (whether `was`
was the offset right before), `client_id`, `lease_epoch`, `took_ms` (since the entry before).
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.progress.history import KEY, SEEN_BEFORE, earlier_points
from aerobee.offset_audit.checks.progress.journal import NEVER_CONSUMED, changes, steps
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.names import IS_SYSTEM_GROUP
from aerobee.offset_audit.tables import Tables

BY_OPERATOR: Final = "RESET"
"""An operator set it."""
FREE: Final = "FREE"
"""Forward, by a commit without a lease although the group consumes by leases."""
FOREIGN: Final = "FOREIGN"
"""Forward, by a commit under a lease that belongs to another client or queue."""
TOO_FAST: Final = "TOO_FAST"
"""Forward, by a commit too soon after the previous one."""
UNTOLD: Final = "UNTOLD"
"""Forward, in files at rest, without an entry in the journal."""
FELL: Final = "1_FELL"
"""Back in the journal, without a reset."""
BELOW_JOURNAL: Final = "2_BELOW_JOURNAL"
"""The current offset is less than the journal says."""
BETWEEN_RUNS: Final = "3_BETWEEN_RUNS"
"""The current offset is less than an earlier run saw, and the journal has no reset."""
UNPROVEN: Final = "4_UNPROVEN"
"""The current offset is less than an earlier run saw; the journal was not read from there on."""
BACK: Final = (FELL, BELOW_JOURNAL, BETWEEN_RUNS, UNPROVEN)
"""Sorted by strength of proof."""

_COLUMNS: Final = (
    *KEY,
    "broker_id",
    "role",
    "epoch",
    "way",
    "was",
    "was_ms",
    "now",
    "at_ms",
    "passed",
    "is_exact",
    "client_id",
    "lease_epoch",
    "took_ms",
)


def moves(tables: Tables, limits: Limits) -> Frame:
    """The run's table, if made already; otherwise made now."""
    return find_moves(tables, limits) if tables.moves is None else tables.moves


def find_moves(tables: Tables, limits: Limits) -> Frame:
    """One row for each move; a run persists it as `Tables.moves`."""
    return _in_journal(tables, limits).unionByName(_seen_now(tables, limits))


def _in_journal(tables: Tables, limits: Limits) -> Frame:
    """Moves of the last `limits.reset_ms`."""
    too_fast = (
        "cast(offset as double) - stood_at > cast(greatest("
        f"try_subtract(timestamp_ms, last_ms), 0) + {limits.settle_ms} as double)"
        f" * {limits.delivery_per_s_max} / 1000"
    )
    way = f"""case
        when kind = 'reset' then '{BY_OPERATOR}'
        when offset < last_offset then '{FELL}'
        when kind <> 'commit' or offset <= stood_at or stood_at is null then null
        when is_foreign then '{FOREIGN}'
        when {too_fast} then '{TOO_FAST}'
        when lease_epoch = 0 and leased_before > 0 then '{FREE}'
        end"""
    return (
        steps(changes(tables, limits), limits)
        .where(
            f"try_subtract(as_of_ms, timestamp_ms) <= {limits.reset_ms} and not {IS_SYSTEM_GROUP}"
        )
        .withColumns(
            {
                "way": way,
                "now": F.col("offset"),
                "at_ms": F.col("timestamp_ms"),
                "took_ms": "greatest(try_subtract(timestamp_ms, last_ms), 0)",
            }
        )
        .where("way is not null")
        .join(earlier_points(tables.history, limits), list(KEY), "left")
        .withColumns(
            {
                "was": f"case way when '{FELL}' then last_offset"
                f" when '{BY_OPERATOR}' then coalesce(stood_at, {SEEN_BEFORE})"
                " else stood_at end",
                "is_exact": "stood_at is not null",
                "was_ms": f"if(way = '{FELL}', last_ms, null)",
            }
        )
        .withColumn("passed", f"if(now > was, {NEVER_CONSUMED}, null)")
        .select(*_COLUMNS)
    )


def _seen_now(tables: Tables, limits: Limits) -> Frame:
    """Moves that only the current offsets show.

    A queue that began anew is a different case; and if a reset may be younger than the reading, or
    the journal's end was lost, nothing is reported.
    """
    no_new_reset = (
        "(last_reset_ms is null or role = 'STORE'"
        f" or last_reset_ms <= as_of_ms - {limits.settle_ms})"
    )
    fell_since = f"""committed_offset < previous.committed_offset
        and coalesce(max_offset >= previous.max_offset, true)
        and coalesce(last_reset_ms < previous.run_at_ms - {limits.settle_ms}, true)"""
    way = f"""case
        when is_reset and journal_end_ms is null
            and coalesce(try_subtract(as_of_ms, committed_at_ms) <= {limits.reset_ms}, true)
            then '{BY_OPERATOR}'
        when is_reset and journal_end_ms is null or role = 'SLAVE' then null
        when committed_offset < stands_at and committed_at_ms >= told_ms
            and {no_new_reset} then '{BELOW_JOURNAL}'
        when not coalesce(is_reset, false) and {fell_since}
            then if(coalesce(previous.run_at_ms >= journal_begin_ms, false),
                '{BETWEEN_RUNS}', '{UNPROVEN}')
        when role = 'STORE' and committed_offset > stands_at
            and coalesce(committed_offset <= max_offset, true)
            and committed_at_ms <= journal_end_ms then '{UNTOLD}'
        end"""
    was = f"""case way when '{BY_OPERATOR}' then before_reset
        when '{BELOW_JOURNAL}' then stands_at when '{UNTOLD}' then stands_at
        else previous.committed_offset end"""
    was_ms = f"""case way when '{BY_OPERATOR}' then null when '{UNTOLD}' then null
        when '{BELOW_JOURNAL}' then told_ms else previous.run_at_ms end"""
    return (
        judged(tables, limits)
        .where("not is_system and committed_offset is not null")
        .withColumn("way", way)
        .where("way is not null")
        .withColumns(
            {
                "was": was,
                "was_ms": was_ms,
                "now": F.col("committed_offset"),
                "at_ms": f"if(way = '{BY_OPERATOR}', committed_at_ms, null)",
                "is_exact": f"way <> '{BY_OPERATOR}'",
                "took_ms": F.lit(None).cast("long"),
            }
        )
        .withColumn("passed", "if(now > was, try_subtract(now, was), null)")
        .select(*_COLUMNS)
    )
