"""BAD_CONFIG: a table of a store (topics, offsets, groups, ...) that cannot be read."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data import fault_kinds
from aerobee.offset_audit.checks.data.stores import STORE, repair_command, with_roles
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.tables import Tables

NAME = "BAD_CONFIG"


def run(tables: Tables, _limits: Limits) -> DataFrame:
    """One finding for each file."""
    found = (
        tables.faults.where(F.col("kind") == fault_kinds.BAD_CONFIG)
        .groupBy(*STORE, "file")
        .agg(F.first("detail", ignorenulls=True).alias("detail"))
    )
    return finding_rows(
        with_roles(found, tables),
        NAME,
        severity=Severity.ERROR,
        evidence=sentence(
            F.col("file"), " of ", F.col("store"), " cannot be read: ", F.col("detail"), "."
        ),
        command=repair_command(),
    )


CHECK = Check(
    NAME,
    "A table of a store cannot be read.",
    run,
    is_deep=True,
    needs={"faults": f"bool_or(kind = '{fault_kinds.BAD_CONFIG}')"},
)
