"""CORRUPT: damage at a known place, by kind, and its cost. BAD_CONFIG: a table of a store (topics,
offsets, groups, ...) that cannot be read.

Damage of the log that a reader of records found, with the messages that were lost in it; entries
and records that contradict each other. Damage of the index belongs to INDEX_MISSING, that of tables
to BAD_CONFIG, a step of the clock to CLOCK; a missing queue file is counted by MISSING_ENTRY.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data import fault_kinds
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.places import PLACE, by_place
from aerobee.offset_audit.checks.data.stores import (
    LOSS_SEVERITY,
    REPAIR,
    STORE,
    VERIFY,
    store_check,
    with_roles,
)
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

MEANINGS = {
    "BAD_MAGIC": "no record begins where one must begin",
    "BAD_LENGTHS": "the lengths in a record contradict each other",
    "BAD_CRC": "a body is not the one that was written",
    "BAD_JOURNAL": "a record of a journal has a body that no broker writes",
    "BAD_TOPIC": "a record's topic is not a valid topic name",
    "MISPLACED": "a record names another place in the log than its own",
    "BAD_TIME": "the store time of a record is not between those of its neighbours",
    "HOLE": "zeros where records must be",
    "TORN": "bytes that are not a record follow the end of the log",
    "MISSING_SEGMENT": "a segment of the log is missing",
    "LOST_BEGIN": "the log begins after its queues",
    "CUT_SEGMENT": "a segment's file was cut",
    "BAD_FILE_SIZE": "a file does not have the size that it must have",
    "STRAY_FILE": "a file does not belong to the store",
    "BAD_CHECKPOINT": "the checkpoint cannot be read",
}

TABLE_MEANINGS = {
    "BAD_CONFIG": "cannot be read",
    "CHANGED_TABLE": "is not what a broker wrote",
    "LOST_ROW": "lacks what it must have",
}


_EVIDENCE: Final = phrase(
    "{kind}: {meaning}, {faults|time|times} in "
    "{file}{place}{message}{unreadable}{lost_in_it}{why}; store {store}.",
    meaning=f"coalesce({F.chosen(F.col('kind'), MEANINGS).sql}, 'damage')",
    place=either("first.position is not null", ", first at byte {first.position}"),
    message=either(
        "first.queue_offset is not null",
        ", {first.topic}/{first.queue_id} queue offset {first.queue_offset}",
    ),
    unreadable=either("bytes > 0", "; {bytes} bytes"),
    lost_in_it=either("lost > 0", "; {lost|message|messages} lost in it"),
    why=either("first.detail is not null", " ({first.detail})"),
)
_SEVERITY: Final = f"""case when kind = 'TORN' and coalesce(lost = 0, true) then '{Severity.INFO}'
    when kind in {fault_kinds.OF_LOG} then {LOSS_SEVERITY}
    when kind in {fault_kinds.WARNINGS} then '{Severity.WARNING}' else '{Severity.ERROR}' end"""
_ELSEWHERE: Final = (fault_kinds.TIME_BACKWARD, *fault_kinds.OF_TABLES, *fault_kinds.OF_QUEUES)
"""Kinds that other checks report."""


def _corrupt(tables: Tables, limits: Limits) -> Frame:
    """One finding for each file and kind of damage, and for each queue with wrong entries."""
    return _of_files(tables, limits).unionByName(_of_messages(tables, limits))


def _of_files(tables: Tables, limits: Limits) -> Frame:
    lost = (
        compared(tables, limits)
        .where("fault_position is not null")
        .selectExpr("store", "fault_position position", "messages")
        .groupBy("store", "position")
        .agg("try_sum(messages) lost")
    )
    is_small_fall = f"""(kind = '{fault_kinds.BAD_TIME}'
        and not coalesce(back_ms > {limits.clock_skew_ms}, false))"""
    found = (
        tables.faults.where(
            f"""not ({is_small_fall} or startswith(kind, '{fault_kinds.INDEX_PREFIX}')
                or kind in {_ELSEWHERE})"""
        )
        .join(F.broadcast(lost), ["store", "position"], "left")
        .groupBy(*STORE, "file", "kind")
        .agg(
            "count(1) faults",
            "min_by(struct(position, topic, queue_id, queue_offset, size, detail),"
            " coalesce(position, 0)) first",
            "try_sum(size) bytes",
            "try_sum(lost) lost",
            "count(distinct topic, queue_id) named",
        )
        .withColumns(
            {
                "topic": "if(named <= 1, first.topic, null)",
                "queue_id": "if(named <= 1, first.queue_id, null)",
            }
        )
    )
    return finding_rows(
        with_roles(found, tables),
        "CORRUPT",
        severity=_SEVERITY,
        evidence=_EVIDENCE,
        # Each is damage to one message; damage in which no message is known to be has no count.
        affected=f"if(kind in ('BAD_CRC', '{fault_kinds.BAD_TIME}'), faults, lost)",
        command=VERIFY,
    )


def _of_messages(tables: Tables, limits: Limits) -> Frame:
    """Records and entries that contradict each other, with either one intact."""
    trouble = compared(tables, limits)
    return union(
        [
            finding_rows(
                with_roles(by_place(trouble.where(f"class = '{name}'")), tables),
                "CORRUPT",
                severity=LOSS_SEVERITY if name == "HEADER" else Severity.ERROR,
                evidence=phrase(
                    f"{name}: {{messages|entry|entries}} {meaning}: {{place}} ({{detail}}); "
                    f"the first is at byte {{first_position}} of the log in {{store}}.",
                    place=PLACE,
                ),
                affected="messages",
                command=REPAIR,
            )
            for name, meaning in (
                (
                    "TAGS_CODE",
                    "of the queue have a wrong tags code: filters by tag skip the message",
                ),
                ("BAD_ENTRY", "of the queue lead to another place or size than their record's"),
                ("HEADER", "lead to a record with the header of another message"),
            )
        ]
    )


CORRUPT = Check(
    "CORRUPT",
    "Bytes of a store are damaged.",
    _corrupt,
    is_deep=True,
    needs={"faults": "count(1) > 0", "compared": "count(1) > 0"},
)


def _bad_config(tables: Tables, _limits: Limits) -> Frame:
    """One row for each file and kind of damage."""
    return (
        tables.faults.where(f"kind in {fault_kinds.OF_TABLES}")
        .groupBy(*STORE, "file", "kind")
        .agg("first(detail, true) detail")
        .withColumn("is_unreadable", f"kind = '{fault_kinds.BAD_CONFIG}'")
    )


BAD_CONFIG = store_check(
    "BAD_CONFIG",
    "A table of a store cannot be read, was changed, or lacks rows.",
    _bad_config,
    severity=f"if(is_unreadable, '{Severity.ERROR}', '{Severity.WARNING}')",
    evidence=phrase(
        "{file} of {store} {is_so}: {detail}.",
        is_so=F.chosen(F.col("kind"), TABLE_MEANINGS).sql,
    ),
    affected="null",
    commands={"is_unreadable": REPAIR},
    needs={"faults": f"bool_or(kind in {fault_kinds.OF_TABLES})"},
)
