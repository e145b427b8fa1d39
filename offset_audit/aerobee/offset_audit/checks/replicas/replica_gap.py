"""REPLICA_GAP: a broker met records that do not continue their queue.

It reads them at its start, or copies them from its master: messages in between are missing, or came
twice. It counts since it opened its folder; its log and a deep audit say where exactly.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import (
    finding_rows,
)
from aerobee.offset_audit.checks.replicas.leaders import (
    REPLICA,
    with_small_tables,
)
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

NAME: Final = "REPLICA_GAP"
TITLE: Final = "A broker met records that do not continue their queues."
COMMAND: Final = "aerobee audit --deep"
EVIDENCE: Final = phrase(
    "{broker_name}:{broker_id} met {records} not continue their queue, since it opened its folder: "
    "messages in between are missing, or came twice.",
    records=either("misplaced = 1", "1 record that does", "{misplaced} records that do"),
)


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each broker that has met such records."""
    brokers = with_small_tables(tables).brokers
    found = (
        brokers.where("answered and misplaced_records > 0")
        .groupBy(*REPLICA)
        .agg("max(misplaced_records) misplaced")
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.ERROR,
        evidence=EVIDENCE,
        affected="misplaced",
        command=COMMAND,
    )


CHECK = Check(
    NAME,
    TITLE,
    run,
    needs={"brokers": "count_if(misplaced_records is not null) > 0"},
)
