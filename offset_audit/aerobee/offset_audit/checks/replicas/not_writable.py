"""NOT_WRITABLE: a master takes no messages, for example because its disk is full.

A slave takes none by design; what it would do as master is not judged.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import REPLICA, with_small_tables
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import phrase
from aerobee.offset_audit.tables import Tables

NAME: Final = "NOT_WRITABLE"
TITLE: Final = "A master takes no messages."
COMMAND: Final = "aerobee cluster show"
HOLDS: Final = "answered and role = 'MASTER' and not_writable_reason <> ''"
PASSING: Final = "shutting down|ask the route again"
"""Of a stop or a change of master, which may be over by now."""
SEVERITY: Final = f"if(not_writable_reason rlike '{PASSING}', 'INFO', 'ERROR')"
EVIDENCE: Final = phrase("{broker_name}:{broker_id} takes no messages: {not_writable_reason}.")
"""The reason also says what to do."""


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each such master."""
    found = (
        with_small_tables(tables)
        .brokers.where(HOLDS)
        .groupBy(*REPLICA)
        .agg("max(not_writable_reason) not_writable_reason")
    )
    return finding_rows(
        found,
        NAME,
        severity=SEVERITY,
        evidence=EVIDENCE,
        command=COMMAND,
    )


CHECK = Check(
    NAME,
    TITLE,
    run,
    needs={"brokers": "count_if(not_writable_reason is not null) > 0"},
)
