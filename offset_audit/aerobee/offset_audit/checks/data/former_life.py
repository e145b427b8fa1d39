"""What is a fault of a queue, or what its former life has left behind.

Apache's broker leaves the records of a deleted topic in the log until retention takes them. A topic
of the same name that is made anew then has records that it does not know of: that is worth knowing,
not a fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Severity
from aerobee.offset_audit.checks.data.places import by_place
from aerobee.offset_audit.checks.data.stores import with_roles
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.tables import Tables


def faults_and_former_lives(
    found: DataFrame,
    tables: Tables,
    check: str,
    *,
    fault: str,
    former: str,
    note: str,
    evidence: Sequence[Column | str],
    command: Column,
) -> DataFrame:
    """One finding for each queue, or for a store with many: errors for rows of `compare` of class
    `fault`, information for those of class `former`, whose evidence ends with `note`."""

    def findings(rows_of: str, severity: Severity, end: str) -> DataFrame:
        rows = found.where(F.col("class") == rows_of)
        return finding_rows(
            with_roles(by_place(rows), tables),
            check,
            severity=severity,
            evidence=sentence(*evidence, f"{end}."),
            affected=F.col("messages"),
            command=command,
        )

    return findings(fault, Severity.ERROR, "").unionByName(findings(former, Severity.INFO, note))
