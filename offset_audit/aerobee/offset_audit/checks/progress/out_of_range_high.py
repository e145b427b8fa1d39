"""OUT_OF_RANGE_HIGH: a group's offset is past the end of its queue."""

from __future__ import annotations

from pyspark.sql import DataFrame

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.out_of_range import outside
from aerobee.offset_audit.checks.progress.telling import findings, gather, phrase, reset_to, where
from aerobee.offset_audit.tables import Tables


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Queues that end before the group's offset: the next messages would be passed over."""
    told = gather(
        outside(tables, limits).filter("committed_offset > held_end"),
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
    run,
    needs={"judged": "bool_or(committed_offset > max_offset)"},
)
