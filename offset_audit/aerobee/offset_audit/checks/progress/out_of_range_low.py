"""OUT_OF_RANGE_LOW: messages were removed before a group read them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.history import KEY
from aerobee.offset_audit.checks.progress.out_of_range import outside
from aerobee.offset_audit.checks.progress.telling import (
    either,
    findings,
    gather,
    phrase,
    reset_to,
    where,
)
from aerobee.offset_audit.tables import Tables


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Queues whose first message is after the group's offset: what was between is lost to it.

    A group that committed just before the reading may have gone on while it took place; one that
    did so has told its journal, which is read later.
    """
    told = tables.journal.groupBy(*KEY).agg(
        F.expr("max_by(offset, struct(journal_offset, entry)) told_offset")
    )
    rows = (
        outside(tables, limits)
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
        filtered=either("is_filtered", "; whether they match its tags is not known"),
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
    run,
    needs={"judged": "bool_or(committed_offset < min_offset)"},
)
