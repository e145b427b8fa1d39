"""What the offset journal says about one group's offset on one queue: its terms, and its jumps.

A reset begins a term; within one, the offset only rises, so the largest committed one counts. The
whole journal is only summed up, partition by partition. Only the few groups and queues whose sums
show that something happened are examined entry by entry: a reset, a fall, a commit without a lease
among others that have one, a lease of two clients, a jump that no consumer makes.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.progress.history import KEY
from aerobee.offset_audit.checks.progress.replicas import BROKER, judging_replicas
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Window
from aerobee.offset_audit.tables import Tables

BLOCK_RECORDS: Final = 256
"""Records of the journal whose entries of one queue are summed up together."""

REMOVAL_SHAPES: Final = (
    ("group",),
    ("topic",),
    ("group", "topic"),
    ("group", "topic", "queue_id"),
)
"""What an entry of kind `remove` names; anything it does not name is null and selects all."""

NEVER_CONSUMED: Final = """try_subtract(try_subtract(now, was), aggregate(
    array_sort(later),
    named_struct('covered_to', was, 'covered', cast(0 as bigint)),
    (seen, t) -> named_struct(
        'covered_to', greatest(seen.covered_to, least(t.reached, now)),
        'covered', try_add(seen.covered, greatest(
            try_subtract(least(t.reached, now), greatest(t.reset_to, seen.covered_to)), 0))),
    seen -> seen.covered))"""
"""Of a jump from `was` to `now`: how many offsets between them no `later` term covers."""


def changes(tables: Tables, limits: Limits) -> Frame:
    """The run's table, if made already; otherwise made now."""
    return find_changes(tables, limits) if tables.changes is None else tables.changes


def find_changes(tables: Tables, limits: Limits) -> Frame:
    """The changes in the journals of the judging replicas, each with its `position` in the order
    that counts, and with `role`, `epoch` and `as_of_ms` of its replica. Left out are entries that a
    store's journal got after its queues were read, and everything about an offset before its newest
    deletion, at `removed_ms`: what follows is another history. A run persists them as
    `Tables.changes`."""
    rows = (
        tables.journal.where("kind in ('commit', 'reset', 'image', 'remove')")
        .join(F.broadcast(judging_replicas(tables, limits)), [*BROKER, "broker_id"])
        # Its broker may continue to write while files are read: the ends were read before.
        .where("role <> 'STORE' or coalesce(journal_offset < journal_end_offset, true)")
        .withColumn("position", F.struct("journal_offset", "entry"))
    )
    removals = rows.where("kind = 'remove'")
    found = rows.where("kind <> 'remove'")
    for number, shape in enumerate(REMOVAL_SHAPES):
        names = {name for each in REMOVAL_SHAPES for name in each}
        of_shape = " and ".join(
            f"{name} is {'not ' if name in shape else ''}null" for name in sorted(names)
        )
        newest = (
            removals.where(of_shape)
            .groupBy(*BROKER, *shape)
            .agg(
                f"max(position) removed_at_{number}",
                f"max(timestamp_ms) removed_ms_{number}",
            )
        )
        found = found.join(F.broadcast(newest), [*BROKER, *shape], "left")
    numbers = range(len(REMOVAL_SHAPES))
    removed_at = ", ".join(f"removed_at_{number}" for number in numbers)
    removed_ms = ", ".join(f"removed_ms_{number}" for number in numbers)
    return (
        found.where(f"coalesce(position > greatest({removed_at}), true)")
        .withColumn("removed_ms", f"greatest({removed_ms})")
        .drop(*(f"removed_{what}_{number}" for number in numbers for what in ("at", "ms")))
    )


def standings(changes: Frame, limits: Limits) -> Frame:
    """The current state according to the journal: `stands_at` and `told_ms` (its last change; null
    if only an image is left), without what may be younger than the committed offsets that were
    read; and `last_reset_ms`, of the newest reset or deletion."""
    is_settled = f"role = 'STORE' or timestamp_ms <= as_of_ms - {limits.settle_ms}"
    resets = (
        changes.where("kind = 'reset'")
        .groupBy(*KEY)
        .agg(
            f"max(if({is_settled}, position, null)) reset_at",
            "max(timestamp_ms) last_reset_ms",
        )
    )
    counts = f"({is_settled}) and (reset_at is null or position >= reset_at)"
    return (
        changes.join(resets, list(KEY), "left")
        .groupBy(*KEY)
        .agg(
            f"max(if({counts}, offset, null)) stands_at",
            f"max(if({counts} and kind <> 'image', timestamp_ms, null)) told_ms",
            "greatest(max(last_reset_ms), max(removed_ms)) last_reset_ms",
        )
    )


def steps(changes: Frame, limits: Limits) -> Frame:
    """Entry by entry, for suspects only. In addition to the columns of the journal:

    `term`: 0 before the first reset. `stood_at`: the offset before this entry, null if the journal
    does not say. `last_offset`, `last_ms`: of the previous entry, the former only within its term.
    `leased_before`: commits under a lease before it. `is_foreign`: its lease belongs to another.
    `later`: the following terms, as structs of `reset_to` and `reached`, their largest offset.
    """
    foreign = _shared_leases(changes)
    found = changes.join(_suspects(changes, foreign, limits), list(KEY), "leftsemi").join(
        F.broadcast(foreign), [*BROKER, "lease_epoch"], "left"
    )
    queue = Window.partitionBy(*KEY).orderBy("position")
    before = queue.rowsBetween(Window.unboundedPreceding, -1)
    after = queue.rowsBetween(1, Window.unboundedFollowing)
    term = Window.partitionBy(*KEY, "term")
    in_term = term.orderBy("position")
    up_to_now = in_term.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        found.withColumn("term", F.named("count_if(kind = 'reset')").over(queue))
        .withColumns(
            {
                "last_ms": F.lag("timestamp_ms").over(queue),
                "leased_before": F.named("count_if(kind = 'commit' and lease_epoch > 0)").over(
                    before
                ),
                "last_offset": F.lag("offset").over(in_term),
                "peak": F.max("offset").over(up_to_now),
                "reached": F.max("offset").over(term),
            }
        )
        .withColumns(
            {
                "stood_at": F.lag("peak").over(queue),
                "later": F.named(
                    """collect_list(if(kind = 'reset',
                        named_struct('reset_to', offset, 'reached', reached), null))"""
                ).over(after),
            }
        )
        .drop("peak", "reached")
    )


def _shared_leases(changes: Frame) -> Frame:
    """Leases under which two clients committed, or one on two queues: no broker grants these."""
    place = "struct(group, topic, queue_id, client_id)"
    return (
        changes.where("kind = 'commit' and lease_epoch > 0")
        .groupBy(*BROKER, "lease_epoch")
        .agg(f"min({place}) <> max({place}) is_foreign")
        .where("is_foreign")
    )


def _suspects(changes: Frame, foreign: Frame, limits: Limits) -> Frame:
    """Groups and queues whose entries must be examined one by one."""
    blocks = changes.groupBy(*KEY, F.named(f"floor(journal_offset / {BLOCK_RECORDS}) block")).agg(
        "count_if(kind = 'reset') resets",
        "count_if(kind = 'commit' and lease_epoch > 0) leased",
        "count_if(kind = 'commit' and lease_epoch = 0) free",
        "min_by(offset, position) first",
        "max_by(offset, position) last",
        "min(offset) least_offset",
        "max(offset) most",
    )
    before = Window.partitionBy(*KEY).orderBy("block")
    sums = (
        blocks.withColumn("most_before", F.lag("most").over(before))
        .groupBy(*KEY)
        .agg(
            "sum(resets) resets",
            "sum(leased) leased",
            "sum(free) free",
            "bool_or(last < most or least_offset < first"
            " or coalesce(first < most_before, false)) fell",
            "bool_or(coalesce(try_subtract(most, least(least_offset, most_before)), most) >"
            f" {limits.delivery_per_s_max * limits.settle_ms // 1_000}) jumps",
        )
        .where("resets > 0 or (leased > 0 and free > 0) or fell or jumps")
        .select(*KEY)
    )
    forged = changes.join(F.broadcast(foreign), [*BROKER, "lease_epoch"], "leftsemi").select(*KEY)
    return sums.unionByName(forged).distinct()
