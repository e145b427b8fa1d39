"""GAP: messages that the log has no record of though their queue went on, or still lists them.

What damage at a known place explains is CORRUPT's.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.places import by_place, place_text
from aerobee.offset_audit.checks.data.stores import loss_severity, verify_command, with_roles
from aerobee.offset_audit.checks.finding_rows import count_text, finding_rows, sentence
from aerobee.offset_audit.tables import Tables

NAME = "GAP"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """One finding for each queue, or for a store with many."""
    lost = compared(tables, limits).where(
        F.col("class").isin("LOST", "HOLE") & F.col("fault_position").isNull()
    )
    return finding_rows(
        with_roles(by_place(lost), tables),
        NAME,
        severity=loss_severity(),
        evidence=sentence(
            count_text(F.col("messages"), "message is", "messages are"),
            " not in the log: ",
            place_text(),
            "; ",
            F.col("listed"),
            " of them are still listed by their queues; around byte ",
            F.col("first_position"),
            " of the log in ",
            F.col("store"),
            ".",
        ),
        affected=F.col("messages"),
        command=verify_command(),
    )


CHECK = Check(
    NAME,
    "Messages are missing in the log.",
    run,
    is_deep=True,
    needs={"compared": "bool_or(class in ('LOST', 'HOLE'))"},
)
