"""MISSING_ENTRY: records that their queue does not list: they are stored, and nobody gets them.

A topic that was made anew and has no message yet looks as if it had lost all its files: no more can
be proven.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.former_life import faults_and_former_lives
from aerobee.offset_audit.checks.data.places import place_text
from aerobee.offset_audit.checks.data.stores import repair_command
from aerobee.offset_audit.checks.finding_rows import count_text
from aerobee.offset_audit.tables import Tables

NAME = "MISSING_ENTRY"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """One finding for each queue, or for a store with many."""
    return faults_and_former_lives(
        compared(tables, limits),
        tables,
        NAME,
        fault="UNLISTED",
        former="FORMER",
        note="; no entry, known end or group says that these queues ever had a message, so their "
        "topic was deleted and created again, or all its files are lost",
        evidence=(
            count_text(F.col("messages"), "record of the log is", "records of the log are"),
            " not listed by the queue: ",
            place_text(),
            "; the first is at byte ",
            F.col("first_position"),
            " of the log in ",
            F.col("store"),
        ),
        command=repair_command(),
    )


CHECK = Check(
    NAME,
    "Records are not listed by their queues.",
    run,
    is_deep=True,
    needs={"compared": "bool_or(class in ('UNLISTED', 'FORMER'))"},
)
