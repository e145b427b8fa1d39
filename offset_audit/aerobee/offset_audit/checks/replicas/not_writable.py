"""NOT_WRITABLE: a master takes no messages, for example because its disk is full.

A slave takes none by design; what it would do as master is not judged.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import REPLICA, with_small_tables
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules import not_writable as rules
from aerobee.offset_audit.tables import Tables


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each such master."""
    found = (
        with_small_tables(tables)
        .brokers.where(rules.HOLDS)
        .groupBy(*REPLICA)
        .agg(F.max("not_writable_reason").alias("not_writable_reason"))
    )
    return finding_rows(
        found,
        rules.NAME,
        severity=F.expr(rules.SEVERITY),
        evidence=F.expr(rules.EVIDENCE),
        command=rules.COMMAND,
    )


CHECK = Check(
    rules.NAME,
    rules.TITLE,
    run,
    needs={"brokers": "count_if(not_writable_reason is not null) > 0"},
)
