"""OUT_OF_RANGE_LOW, OUT_OF_RANGE_HIGH: offsets outside what a queue holds.

LOW: messages were removed before a group read them. HIGH: an offset is past the end of its queue. A
cut or missing file of a consume queue moves the queue's ends while the messages are still in the
log: that is another check's finding, so the ends of the log, where they were read, count too.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.history import KEY
from aerobee.offset_audit.checks.progress.judged import QUEUE, judged
from aerobee.offset_audit.checks.progress.replicas import REPLICA
from aerobee.offset_audit.checks.progress.telling import (
    either,
    findings,
    gather,
    phrase,
    reset_to,
    where,
)
from aerobee.offset_audit.tables import Tables


def _outside(tables: Tables, limits: Limits) -> DataFrame:
    """Judged rows whose offset lies outside their queue, with `held_min` and `held_end`: where what
    queue and log hold begins and ends. Rows whose lag cannot be said are left out."""
    rows = judged(tables, limits).filter(
        """(committed_offset < min_offset or committed_offset > max_offset)
        and not is_broadcasting and not is_gone
        and (lag >= 0 or role = 'STORE'
            or not coalesce(commit_read_at_ms > queue_read_at_ms, false))"""
    )
    logs = (
        tables.queue_ranges.filter("source = 'LOG'")
        .groupBy(*REPLICA, "topic", "queue_id")
        .agg(F.expr("min(first_offset) log_min"), F.expr("try_add(max(last_offset), 1L) log_end"))
    )
    return rows.join(logs, [*QUEUE, "broker_id"], "left").withColumns(
        {
            "held_min": F.expr("least(min_offset, log_min)"),
            "held_end": F.expr("greatest(max_offset, log_end)"),
        }
    )


def _low(tables: Tables, limits: Limits) -> DataFrame:
    """Queues whose first message is after the group's offset: what was between is lost to it.

    A group that committed just before the reading may have gone on while it took place; one that
    did so has told its journal, which is read later.
    """
    told = (
        tables.journal.where("kind not in ('sentBack', 'resent')")
        .groupBy(*KEY)
        .agg(F.expr("max_by(offset, struct(journal_offset, entry)) told_offset"))
    )
    rows = (
        _outside(tables, limits)
        .join(told, list(KEY), "left")
        .filter(
            f"""committed_offset < held_min and not is_system
            and not coalesce(
                try_subtract(commit_read_at_ms, committed_at_ms) < {limits.settle_ms}, false)
            and not coalesce(role <> 'STORE' and told_offset >= held_min, false)"""
        )
    )
    told = gather(
        rows,
        "try_subtract(held_min, committed_offset)",
        keep=("held_min", "committed_offset"),
        affected="try_sum(try_subtract(held_min, committed_offset))",
        is_filtered="bool_or(matching_lag is not null)",
        is_empty="bool_and(group_members = 0)",
    )
    evidence = phrase(
        "{affected|messages} of topic {topic} {were} removed before group {group} read {them}, on"
        " {where}: offset {worst.committed_offset}, first message {worst.held_min}{filtered}{empty}"
        "{seen_by}",
        were="if(affected = 1, 'was', 'were')",
        them="if(affected = 1, 'it', 'them')",
        where=where("try_subtract(worst.held_min, worst.committed_offset)"),
        filtered=either("is_filtered", "; whether they match its filter is not known"),
        empty=either("is_empty", "; the group has no members"),
    )
    return findings(
        told,
        "OUT_OF_RANGE_LOW",
        Severity.CRITICAL,
        evidence=evidence,
        command=reset_to("worst.held_min"),
        state="worst.state",
    )


OUT_OF_RANGE_LOW = Check(
    "OUT_OF_RANGE_LOW",
    "Messages were removed before a group read them.",
    _low,
    needs={"judged": "bool_or(committed_offset < min_offset)"},
)


def _high(tables: Tables, limits: Limits) -> DataFrame:
    """Queues that end before the group's offset: the next messages would be passed over."""
    told = gather(
        _outside(tables, limits).filter("committed_offset > held_end"),
        "try_subtract(committed_offset, held_end)",
        keep=("committed_offset", "held_end"),
        affected="try_sum(try_subtract(committed_offset, held_end))",
    )
    evidence = phrase(
        "Group {group} is {affected|messages} past the end of topic {topic} on {where}: offset "
        "{worst.committed_offset}, end {worst.held_end}; as many new messages would be "
        "skipped{seen_by}",
        where=where("try_subtract(worst.committed_offset, worst.held_end)"),
    )
    return findings(
        told,
        "OUT_OF_RANGE_HIGH",
        Severity.ERROR,
        evidence=evidence,
        command=reset_to("worst.held_end"),
        state="'UNKNOWN'",
    )


OUT_OF_RANGE_HIGH = Check(
    "OUT_OF_RANGE_HIGH",
    "A group's offset is past the end of its queue.",
    _high,
    needs={"judged": "bool_or(committed_offset > max_offset)"},
)
