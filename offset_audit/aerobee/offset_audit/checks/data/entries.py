"""GAP, MISSING_ENTRY, DUPLICATE: the records of the log against the entries of their queues.

GAP: messages without a record in the log although their queue continues after them, or still lists
them; what damage at a known place explains belongs to CORRUPT. MISSING_ENTRY: records that their
queue does not list: they are stored but never delivered. DUPLICATE: two records with one queue
offset: readers get only one of them.

Apache's broker leaves the records of a deleted topic in the log until retention removes them. A
recreated topic of the same name then has records that it does not know: worth reporting, but not a
fault. A queue whose further records are all before what it lists is such a case. A recreated topic
without messages looks as if it had lost all its files: no more can be proved.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.places import PLACE, by_place
from aerobee.offset_audit.checks.data.stores import (
    LOSS_SEVERITY,
    repair_command,
    verify_command,
    with_roles,
)
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.rules.texts import phrase
from aerobee.offset_audit.tables import Tables


def _gap(tables: Tables, limits: Limits) -> Frame:
    """One finding for each queue, or for a store with many."""
    lost = compared(tables, limits).where("class in ('LOST', 'HOLE') and fault_position is null")
    return finding_rows(
        with_roles(by_place(lost), tables),
        "GAP",
        severity=LOSS_SEVERITY,
        evidence=phrase(
            "{messages|message is|messages are} not in the log: {place}; {listed} of "
            "them are still listed by their queues; around byte {first_position} of "
            "the log in {store}.",
            place=PLACE,
        ),
        affected="messages",
        command=verify_command(),
    )


GAP = Check(
    "GAP",
    "Messages are missing in the log.",
    _gap,
    is_deep=True,
    needs={"compared": "bool_or(class in ('LOST', 'HOLE'))"},
)


def _faults_and_former_lives(
    found: Frame,
    tables: Tables,
    check: str,
    *,
    fault: str,
    former: str,
    note: str,
    evidence: str,
    command: Column,
) -> Frame:
    """One finding for each queue, or for a store with many: errors for rows of `compare` of class
    `fault`, information for those of class `former`, whose evidence ends with `note`."""

    def findings(rows_of: str, severity: Severity, end: str) -> Frame:
        rows = found.where(f"class = '{rows_of}'")
        return finding_rows(
            with_roles(by_place(rows), tables),
            check,
            severity=severity,
            evidence=phrase(f"{evidence}{end}.", place=PLACE),
            affected="messages",
            command=command,
        )

    return findings(fault, Severity.ERROR, "").unionByName(findings(former, Severity.INFO, note))


def _missing_entry(tables: Tables, limits: Limits) -> Frame:
    """One finding for each queue, or for a store with many."""
    return _faults_and_former_lives(
        compared(tables, limits),
        tables,
        "MISSING_ENTRY",
        fault="UNLISTED",
        former="FORMER",
        note="; no entry, known end or group says that these queues ever had a message, so their "
        "topic was deleted and created again, or all its files are lost",
        evidence="{messages|record of the log is|records of the log are} not listed by the queue: "
        "{place}; the first is at byte {first_position} of the log in {store}",
        command=repair_command(),
    )


MISSING_ENTRY = Check(
    "MISSING_ENTRY",
    "Records are not listed by their queues.",
    _missing_entry,
    is_deep=True,
    needs={"compared": "bool_or(class in ('UNLISTED', 'FORMER'))"},
)


def _duplicate(tables: Tables, limits: Limits) -> Frame:
    """One finding for each queue, or for a store with many."""
    return _faults_and_former_lives(
        compared(tables, limits),
        tables,
        "DUPLICATE",
        fault="DUPLICATE",
        former="AGAIN",
        note="; all come before the first one that the queue lists, so the queue began again",
        evidence="{messages|further record has|further records have} the queue offset of another "
        "record: {place}; the first is at byte {first_position} of the log in {store}, {detail}",
        command=verify_command(),
    )


DUPLICATE = Check(
    "DUPLICATE",
    "Several records have one queue offset.",
    _duplicate,
    is_deep=True,
    needs={"compared": "bool_or(class in ('DUPLICATE', 'AGAIN'))"},
)
