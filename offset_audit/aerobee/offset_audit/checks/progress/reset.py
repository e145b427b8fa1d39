"""RESET: an operator set a group's offset back, or where nothing was passed over."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.moves import RESET as BY_OPERATOR
from aerobee.offset_audit.checks.progress.moves import moves
from aerobee.offset_audit.checks.progress.telling import either, findings, gather, phrase, where
from aerobee.offset_audit.tables import Tables


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Resets of the last `limits.reset_ms`: back is a WARNING, because messages come again; to
    where the group stood, or where it had no offset, is worth knowing. Forward is SKIPPED's."""
    rows = (
        moves(tables, limits)
        .filter(f"way = '{BY_OPERATOR}' and (was is null or now <= was)")
        .withColumn("back", F.expr("greatest(coalesce(try_subtract(was, now), 0), 0)"))
        .withColumn("is_back", F.expr("back > 0"))
    )
    told = gather(
        rows,
        "back",
        keep=("was", "now", "back"),
        by=("cluster", "group", "topic", "is_back"),
        affected="try_sum(back)",
        newest_ms="max(at_ms)",
    )
    set_back = phrase(
        ", from offset {worst.was} back to {worst.now}; {affected|messages} {are} delivered again",
        are="if(affected = 1, 'is', 'are')",
    )
    elsewhere = phrase(
        ", to offset {worst.now}{stood}",
        stood=either(
            "worst.was is null", "; its offset before is not known", ", which it already had"
        ),
    )
    evidence = phrase(
        "{when} an operator reset group {group} on topic {topic}, {where}{what}.",
        when=either("newest_ms is null", "At an unknown time", "At {newest_ms|moment}"),
        where=where("worst.back"),
        what=f"if(is_back, {set_back}, {elsewhere})",
    )
    return findings(
        told,
        "RESET",
        f"if(is_back, '{Severity.WARNING}', '{Severity.INFO}')",
        evidence=evidence,
    )


RESET = Check(
    "RESET",
    "An operator reset a group's offset.",
    run,
    needs={"moves": f"bool_or(way = '{BY_OPERATOR}')"},
)
