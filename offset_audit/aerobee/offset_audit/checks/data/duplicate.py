"""DUPLICATE: two records with one queue offset: readers get one of them, the other is lost to them.

A queue whose further records all lie before what it lists was deleted with its topic and made anew
by Apache's broker: its first life's records stay in the log until retention takes them, and that is
worth knowing, not a fault.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.places import by_place, place_text
from aerobee.offset_audit.checks.data.stores import verify_command, with_roles
from aerobee.offset_audit.checks.finding_rows import count_text, finding_rows, sentence
from aerobee.offset_audit.tables import Tables

NAME = "DUPLICATE"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """One finding for each queue, or for a store with many."""
    found = compared(tables, limits)
    others = found.where(F.col("class") == "DUPLICATE")
    again = found.where(F.col("class") == "AGAIN")
    return _findings(others, tables, Severity.ERROR, "").unionByName(
        _findings(
            again, tables, Severity.INFO, "; all lie before what the queue lists, so it began again"
        )
    )


def _findings(twice: DataFrame, tables: Tables, severity: Severity, note: str) -> DataFrame:
    return finding_rows(
        with_roles(by_place(twice), tables),
        NAME,
        severity=severity,
        evidence=sentence(
            count_text(F.col("messages"), "further record has", "further records have"),
            " a queue offset that another one has: ",
            place_text(),
            "; the first lies at byte ",
            F.col("first_position"),
            " of the log in ",
            F.col("store"),
            ", ",
            F.col("detail"),
            f"{note}.",
        ),
        affected=F.col("messages"),
        command=verify_command(),
    )


CHECK = Check(
    NAME,
    "Several records have one queue offset.",
    run,
    is_deep=True,
    needs={"compared": "bool_or(class in ('DUPLICATE', 'AGAIN'))"},
)
