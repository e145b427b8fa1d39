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
from aerobee.offset_audit.checks.data.stores import LOSS_SEVERITY, REPAIR, VERIFY, store_check
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables


def _gap(tables: Tables, limits: Limits) -> Frame:
    """One row for each queue, or for a store with many."""
    lost = compared(tables, limits).where("class in ('LOST', 'HOLE') and fault_position is null")
    return by_place(lost)


GAP = store_check(
    "GAP",
    "Messages are missing in the log.",
    _gap,
    severity=LOSS_SEVERITY,
    evidence=phrase(
        "{messages|message is|messages are} not in the log: {place}; {listed} of "
        "them are still listed by their queues; around byte {first_position} of "
        "the log in {store}.",
        place=PLACE,
    ),
    needs={"compared": "bool_or(class in ('LOST', 'HOLE'))"},
)


def _faults_and_former_lives(
    name: str, title: str, *, fault: str, former: str, note: str, evidence: str, command: str
) -> Check:
    """Errors for rows of `compare` of class `fault`, information for those of class `former`, whose
    evidence ends with `note`; one finding for each queue, or for a store with many."""

    def found(tables: Tables, limits: Limits) -> Frame:
        rows = compared(tables, limits)
        faults, lives = (by_place(rows.where(f"class = '{each}'")) for each in (fault, former))
        return faults.withColumn("is_former", "false").unionByName(
            lives.withColumn("is_former", "true")
        )

    return store_check(
        name,
        title,
        found,
        severity=f"if(is_former, '{Severity.INFO}', '{Severity.ERROR}')",
        evidence=phrase(
            f"{evidence}{{end}}", place=PLACE, end=either("is_former", f"{note}.", ".")
        ),
        command=command,
        needs={"compared": f"bool_or(class in ('{fault}', '{former}'))"},
    )


MISSING_ENTRY = _faults_and_former_lives(
    "MISSING_ENTRY",
    "Records are not listed by their queues.",
    fault="UNLISTED",
    former="FORMER",
    note="; no entry, known end or group says that these queues ever had a message, so their "
    "topic was deleted and created again, or all its files are lost",
    evidence="{messages|record of the log is|records of the log are} not listed by the queue: "
    "{place}; the first is at byte {first_position} of the log in {store}",
    command=REPAIR,
)
DUPLICATE = _faults_and_former_lives(
    "DUPLICATE",
    "Several records have one queue offset.",
    fault="DUPLICATE",
    former="AGAIN",
    note="; all come before the first one that the queue lists, so the queue began again",
    evidence="{messages|further record has|further records have} the queue offset of another "
    "record: {place}; the first is at byte {first_position} of the log in {store}, {detail}",
    command=VERIFY,
)
