"""REPLICA_GAP: a broker met records that do not go on where their queue ended.

It reads them at its start, or copies them from its master: messages between are missing, or came
twice. It counts from when it opened its folder; where exactly, its log and a deep audit say.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import (
    count_text,
    finding_rows,
    replica_name,
    sentence,
)
from aerobee.offset_audit.checks.replicas.leaders import REPLICA, with_small_tables
from aerobee.offset_audit.tables import Tables

NAME = "REPLICA_GAP"


def run(tables: Tables, _limits: Limits) -> DataFrame:
    """One finding for each broker that has met such records."""
    brokers = with_small_tables(tables).brokers
    found = (
        brokers.where(F.col("answered") & (F.col("misplaced_records") > 0))
        .groupBy(*REPLICA)
        .agg(F.max("misplaced_records").alias("misplaced"))
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.ERROR,
        evidence=sentence(
            replica_name(),
            " met ",
            count_text(F.col("misplaced"), "record that does", "records that do"),
            " not continue their queue, since it opened its folder: messages in between are "
            "missing, or came twice.",
        ),
        affected=F.col("misplaced"),
        command="aerobee audit --deep",
    )


CHECK = Check(
    NAME,
    "A broker met records that do not continue their queues.",
    run,
    needs={"brokers": "count_if(misplaced_records is not null) > 0"},
)
