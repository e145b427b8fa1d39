"""DELAY_OVERDUE: messages with a delay level that were not delivered when they were due."""

from __future__ import annotations

from pyspark.sql import DataFrame

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.data.overdue import overdue
from aerobee.offset_audit.tables import Tables

NAME = "DELAY_OVERDUE"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """One finding for each queue of the system topic."""
    return overdue(
        tables,
        limits,
        "DELAY",
        check=NAME,
        meaning="were not delivered to their topics",
    )


CHECK = Check(
    NAME,
    "Delayed messages were not delivered when due.",
    run,
    is_deep=True,
    needs={"pending": "bool_or(kind = 'DELAY' and not coalesce(resolved, false))"},
)
