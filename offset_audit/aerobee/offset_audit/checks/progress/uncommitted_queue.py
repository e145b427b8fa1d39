"""UNCOMMITTED_QUEUE: members subscribe, but their group never committed on one of the queues."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.checks.progress.telling import (
    QUEUE,
    either,
    findings,
    gather,
    phrase,
    where,
)
from aerobee.offset_audit.tables import Tables


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Queues with messages that wait for `limits.uncommitted_ms` without an offset of the group.

    A member keeps where it starts at once, so that nothing is missed when it ends: without an
    offset nobody has ever begun there. A group that has only just come is not judged: an earlier
    run must have seen the same, or it must have committed on another queue of the topic before, and
    the newest message on this one be old enough. Queues that members are not told of, since the
    topic was given fewer to read, are not theirs.
    """
    was_here = f"try_subtract(as_of_ms, group_committed_ms) >= {limits.settle_ms}"
    since = f"least(standing_since_ms, if({was_here}, last_store_ms, null))"
    rows = (
        judged(tables, limits)
        .filter("committed_offset is null and members > 0 and max_offset > min_offset")
        .filter("not is_system and not is_broadcasting and not is_gone")
        .filter("coalesce(queue_id < read_queue_count, true)")
        .withColumn("uncommitted_ms", F.expr(f"try_subtract(as_of_ms, {since})"))
        .filter(f"uncommitted_ms >= {limits.uncommitted_ms}")
    )
    told = gather(
        rows,
        "uncommitted_ms",
        keep=("uncommitted_ms", "members", "holder"),
        affected="try_sum(try_subtract(max_offset, min_offset))",
    )
    evidence = phrase(
        "Group {group} has {worst.members|members} for topic {topic} but has never committed on"
        " {where}, where {affected|messages} {have} waited for at least"
        " {worst.uncommitted_ms|duration}; {holder} holds it.",
        where=where(),
        have="if(affected = 1, 'has', 'have')",
        holder=either("worst.holder is null", "nobody", "{worst.holder}"),
    )
    return findings(
        told,
        "UNCOMMITTED_QUEUE",
        Severity.WARNING,
        evidence=evidence,
        command=(
            f"aerobee offset reset {{group}} {{worst.topic}} --queue {{{QUEUE}}} "
            "--to first --dry-run"
        ),
        state="worst.state",
    )


UNCOMMITTED_QUEUE = Check(
    "UNCOMMITTED_QUEUE",
    "A group consumes a topic but has never committed on one of its queues.",
    run,
    needs={"judged": "bool_or(committed_offset is null and members > 0)"},
)
