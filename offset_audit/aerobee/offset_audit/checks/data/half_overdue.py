"""HALF_OVERDUE: transactional messages that were never committed nor rolled back."""

from __future__ import annotations

from pyspark.sql import DataFrame

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.data.overdue import overdue
from aerobee.offset_audit.tables import Tables

NAME = "HALF_OVERDUE"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """One finding for each queue of the system topic."""
    return overdue(
        tables,
        limits,
        "HALF",
        check=NAME,
        meaning="were neither committed nor rolled back",
    )


CHECK = Check(
    NAME,
    "Transactional messages were never resolved.",
    run,
    is_deep=True,
    needs={"pending": "bool_or(kind = 'HALF' and not coalesce(resolved, false))"},
)
