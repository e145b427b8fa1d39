"""MISSING_ENTRY: records that their queue does not list: they are stored, and nobody gets them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.places import by_place, place_text
from aerobee.offset_audit.checks.data.stores import repair_command, with_roles
from aerobee.offset_audit.checks.finding_rows import count_text, finding_rows, sentence
from aerobee.offset_audit.tables import Tables

NAME = "MISSING_ENTRY"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """One finding for each queue, or for a store with many."""
    unlisted = compared(tables, limits).where(F.col("class") == "UNLISTED")
    return finding_rows(
        with_roles(by_place(unlisted), tables),
        NAME,
        severity=Severity.ERROR,
        evidence=sentence(
            count_text(F.col("messages"), "record of the log is", "records of the log are"),
            " not listed by the queue: ",
            place_text(),
            "; the first lies at byte ",
            F.col("first_position"),
            " of the log in ",
            F.col("store"),
            ".",
        ),
        affected=F.col("messages"),
        command=repair_command(),
    )


CHECK = Check(
    NAME,
    "Records are not listed by their queues.",
    run,
    is_deep=True,
    needs={"compared": "bool_or(class = 'UNLISTED')"},
)
