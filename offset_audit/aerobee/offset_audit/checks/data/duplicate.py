"""DUPLICATE: two records with one queue offset: readers get one of them, the other is lost to them.

A queue whose further records all lie before what it lists was deleted with its topic and made anew:
they are of its former life.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.former_life import faults_and_former_lives
from aerobee.offset_audit.checks.data.places import place_text
from aerobee.offset_audit.checks.data.stores import verify_command
from aerobee.offset_audit.checks.finding_rows import count_text
from aerobee.offset_audit.tables import Tables

NAME = "DUPLICATE"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """One finding for each queue, or for a store with many."""
    return faults_and_former_lives(
        compared(tables, limits),
        tables,
        NAME,
        fault="DUPLICATE",
        former="AGAIN",
        note="; all come before the first one that the queue lists, so the queue began again",
        evidence=(
            count_text(F.col("messages"), "further record has", "further records have"),
            " the queue offset of another record: ",
            place_text(),
            "; the first is at byte ",
            F.col("first_position"),
            " of the log in ",
            F.col("store"),
            ", ",
            F.col("detail"),
        ),
        command=verify_command(),
    )


CHECK = Check(
    NAME,
    "Several records have one queue offset.",
    run,
    is_deep=True,
    needs={"compared": "bool_or(class in ('DUPLICATE', 'AGAIN'))"},
)
