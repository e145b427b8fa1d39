"""CORRUPT: damage at a known place, by kind, and its cost. BAD_CONFIG: a table of a store (topics,
offsets, groups, ...) that cannot be read.

Damage of the log that a reader of records found, with the messages that were lost in it; entries
and records that contradict each other. Damage of the index belongs to INDEX_MISSING, that of tables
to BAD_CONFIG, a step of the clock to CLOCK; a missing queue file is counted by MISSING_ENTRY.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data import fault_kinds
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.places import by_place, place_text
from aerobee.offset_audit.checks.data.stores import (
    STORE,
    loss_severity,
    repair_command,
    verify_command,
    with_roles,
)
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
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


def _corrupt(tables: Tables, limits: Limits) -> Frame:
    """One finding for each file and kind of damage, and for each queue with wrong entries."""
    return _of_files(tables, limits).unionByName(_of_messages(tables, limits))


def _of_files(tables: Tables, limits: Limits) -> Frame:
    lost = (
        compared(tables, limits)
        .where(F.col("fault_position").isNotNull())
        .groupBy("store", F.col("fault_position").alias("position"))
        .agg(F.try_sum("messages").alias("lost"))
    )
    kind = F.col("kind")
    is_small_fall = (kind == fault_kinds.BAD_TIME) & ~F.coalesce(
        F.col("back_ms") > limits.clock_skew_ms, F.lit(False)
    )
    told = ~(
        is_small_fall
        | kind.startswith(fault_kinds.INDEX_PREFIX)
        | kind.isin(fault_kinds.TIME_BACKWARD, *fault_kinds.OF_TABLES, *fault_kinds.OF_QUEUES)
    )
    of_log = kind.isin(*fault_kinds.OF_LOG)
    found = (
        tables.faults.where(told)
        .join(F.broadcast(lost), ["store", "position"], "left")
        .groupBy(*STORE, "file", "kind")
        .agg(
            F.count("*").alias("faults"),
            F.min_by(
                F.struct("position", "topic", "queue_id", "queue_offset", "size", "detail"),
                F.coalesce("position", F.lit(0)),
            ).alias("first"),
            F.max("position").alias("last_position"),
            F.try_sum("size").alias("bytes"),
            F.try_sum("lost").alias("lost"),
            F.count_distinct("topic", "queue_id").alias("named"),
        )
        .withColumn("topic", F.when(F.col("named") <= 1, F.col("first.topic")))
        .withColumn("queue_id", F.when(F.col("named") <= 1, F.col("first.queue_id")))
        # Each is damage to one message; damage in which no message is known to be has no count.
        .withColumn(
            "messages",
            F.when(kind.isin("BAD_CRC", fault_kinds.BAD_TIME), F.col("faults")).otherwise(
                F.col("lost")
            ),
        )
    )
    harmless = (kind == "TORN") & F.coalesce(F.col("lost") == 0, F.lit(True))
    return finding_rows(
        with_roles(found, tables),
        "CORRUPT",
        severity=F.when(harmless, Severity.INFO.value)
        .when(of_log, loss_severity())
        .when(kind.isin(*fault_kinds.WARNINGS), Severity.WARNING.value)
        .otherwise(Severity.ERROR.value),
        evidence=_file_evidence(),
        affected=F.col("messages"),
        command=verify_command(),
    )


def _file_evidence() -> Column:
    first = F.col("first")
    message = F.when(
        first.queue_offset.isNotNull(),
        sentence(", {first.topic}/{first.queue_id} queue offset {first.queue_offset}"),
    ).otherwise("")
    return sentence(
        "{kind}: {meaning}, {faults|time|times} in "
        "{file}{place}{message}{unreadable}{lost_in_it}{why}; store {store}.",
        meaning=F.coalesce(F.chosen(F.col("kind"), MEANINGS), F.lit("damage")),
        place=F.when(
            first.position.isNotNull(), sentence(", first at byte {first.position}")
        ).otherwise(""),
        message=message,
        unreadable=F.when(F.col("bytes") > 0, sentence("; {bytes} bytes")).otherwise(""),
        lost_in_it=F.when(
            F.col("lost") > 0,
            sentence("; {lost|message|messages} lost in it"),
        ).otherwise(""),
        why=F.when(first.detail.isNotNull(), sentence(" ({first.detail})")).otherwise(""),
    )


def _of_messages(tables: Tables, limits: Limits) -> Frame:
    """Records and entries that contradict each other, with either one intact."""
    trouble = compared(tables, limits)
    parts = []
    for name, meaning in (
        ("TAGS_CODE", "of the queue have a wrong tags code: filters by tag skip the message"),
        ("BAD_ENTRY", "of the queue lead to another place or size than their record's"),
        ("HEADER", "lead to a record with the header of another message"),
    ):
        parts.append(
            finding_rows(
                with_roles(by_place(trouble.where(F.col("class") == name)), tables),
                "CORRUPT",
                severity=loss_severity() if name == "HEADER" else Severity.ERROR,
                evidence=sentence(
                    f"{name}: {{messages|entry|entries}} {meaning}: {{place}} ({{detail}}); "
                    f"the first is at byte {{first_position}} of the log in {{store}}.",
                    place=place_text(),
                ),
                affected=F.col("messages"),
                command=repair_command(),
            )
        )
    return parts[0].unionByName(parts[1]).unionByName(parts[2])


CORRUPT = Check(
    "CORRUPT",
    "Bytes of a store are damaged.",
    _corrupt,
    is_deep=True,
    needs={"faults": "count(1) > 0", "compared": "count(1) > 0"},
)


def _bad_config(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each file and kind of damage."""
    found = (
        tables.faults.where(F.col("kind").isin(*fault_kinds.OF_TABLES))
        .groupBy(*STORE, "file", "kind")
        .agg(F.first("detail", ignorenulls=True).alias("detail"))
    )
    is_unreadable = F.col("kind") == fault_kinds.BAD_CONFIG
    return finding_rows(
        with_roles(found, tables),
        "BAD_CONFIG",
        severity=F.when(is_unreadable, Severity.ERROR.value).otherwise(Severity.WARNING.value),
        evidence=sentence(
            "{file} of {store} {is_so}: {detail}.",
            is_so=F.chosen(F.col("kind"), TABLE_MEANINGS),
        ),
        command=F.when(is_unreadable, repair_command()).otherwise(verify_command()),
    )


BAD_CONFIG = Check(
    "BAD_CONFIG",
    "A table of a store cannot be read, was changed, or lacks rows.",
    _bad_config,
    is_deep=True,
    needs={"faults": f"bool_or(kind in {fault_kinds.OF_TABLES})"},
)
