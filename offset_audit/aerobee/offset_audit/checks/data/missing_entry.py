"""MISSING_ENTRY: records that their queue does not list: they are stored, and nobody gets them.

Apache's broker leaves the records of a deleted topic in the log. Made anew, and without a message,
the topic looks as if it had lost all its files: that is worth knowing, and no more can be proven.
"""

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
    found = compared(tables, limits)
    unlisted = found.where(F.col("class") == "UNLISTED")
    former = found.where(F.col("class") == "FORMER")
    note = (
        "; no entry, known end or group says that these queues ever had a message, so their topic "
        "was deleted and made anew, or has lost all its files"
    )
    return _findings(unlisted, tables, Severity.ERROR, "").unionByName(
        _findings(former, tables, Severity.INFO, note)
    )


def _findings(rows: DataFrame, tables: Tables, severity: Severity, note: str) -> DataFrame:
    return finding_rows(
        with_roles(by_place(rows), tables),
        NAME,
        severity=severity,
        evidence=sentence(
            count_text(F.col("messages"), "record of the log is", "records of the log are"),
            " not listed by the queue: ",
            place_text(),
            "; the first lies at byte ",
            F.col("first_position"),
            " of the log in ",
            F.col("store"),
            f"{note}.",
        ),
        affected=F.col("messages"),
        command=repair_command(),
    )


CHECK = Check(
    NAME,
    "Records are not listed by their queues.",
    run,
    is_deep=True,
    needs={"compared": "bool_or(class in ('UNLISTED', 'FORMER'))"},
)
