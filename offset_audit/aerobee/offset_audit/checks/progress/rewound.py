"""REWOUND: a group's offset fell, and no operator's reset says why."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.history import KEY
from aerobee.offset_audit.checks.progress.moves import (
    BACK,
    BELOW_JOURNAL,
    BETWEEN_RUNS,
    FELL,
    UNPROVEN,
    moves,
)
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
    """The strongest witness counts: the journal itself falls; what stands is less than the journal
    says; an earlier run saw more.

    The last one is no proof without the journal, for a reset may have come between the runs: then
    it is a WARNING that says so.
    """
    back = moves(tables, limits).filter(F.col("way").isin(*BACK))
    names = ", ".join(back.columns)
    strongest = (
        back.groupBy(*KEY)
        .agg(F.expr(f"min_by(struct({names}), struct(way, at_ms)) told"))
        .select("told.*")
    )
    told = gather(
        strongest,
        "try_subtract(was, now)",
        keep=("was", "was_ms", "now"),
        by=("cluster", "group", "topic", "way"),
        affected="try_sum(try_subtract(was, now))",
    )
    proof = f"""case way
        when '{FELL}' then 'its journal has no reset there'
        when '{BELOW_JOURNAL}' then 'its journal has the larger offset and no reset after it'
        when '{BETWEEN_RUNS}' then 'its journal has no reset since the earlier run'
        else 'the journal was not read from there on, so a reset may be the cause' end"""
    evidence = phrase(
        "The offset of group {group} on topic {topic} fell on {where} from {worst.was}{when} to"
        " {worst.now}; {proof}; {affected|messages} {are} delivered again.",
        where=where("try_subtract(worst.was, worst.now)"),
        when=either("worst.was_ms is not null", " ({worst.was_ms|moment})"),
        proof=proof,
        are="if(affected = 1, 'is', 'are')",
    )
    return findings(
        told,
        "REWOUND",
        f"if(way = '{UNPROVEN}', '{Severity.WARNING}', '{Severity.ERROR}')",
        evidence=evidence,
        command=reset_to("worst.was"),
    )


REWOUND = Check(
    "REWOUND",
    "A group's offset fell without a reset.",
    run,
    needs={"moves": f"bool_or(way in {BACK})"},
)
