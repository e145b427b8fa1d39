"""RETRY_LOST, RETRY_TWICE, DEAD_LETTER_ORIGIN: exactly one copy of each failed message, and dead
letters that name their origin.

A store's log contains the whole way of a failed message, since each step is appended after the
previous one: journal entry, waiting copy, copy in the retry topic or dead letter. So if the log has
a step, it must have the next one; nothing that retention removed is missed. Stores whose log is
partly unreadable are not judged.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.fault_kinds import HIDING
from aerobee.offset_audit.checks.data.stores import (
    ORIGIN,
    STORE,
    loss_severity,
    verify_command,
    whole_until,
    with_roles,
)
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.tables import Tables
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX

_QUEUE: Final = [*STORE, "topic", "queue_id"]
_COPY: Final = [*STORE, "group", "copied", "attempt"]
"""`copied`: the id shared by all copies of a message."""


def _readable(rows: Frame, tables: Tables) -> Frame:
    damaged = tables.faults.where(F.col("kind").isin(list(HIDING))).select(*STORE).distinct()
    return rows.join(F.broadcast(damaged), STORE, "left_anti")


# ------------------------------------------------------------------------------------- letters


def _letters_of_nowhere(tables: Tables) -> Frame:
    """By queue and group: `messages`, those without a named origin (`unnamed`), and the first."""
    begins = tables.log_ranges.groupBy(*STORE).agg(F.min("begin").alias("log_begin"))
    ends = (
        tables.queue_ranges.where(F.col("source") == "LOG")
        .groupBy(
            *STORE,
            F.col("topic").alias("origin_topic"),
            F.col("queue_id").alias("origin_queue_id"),
        )
        .agg(F.max("last_offset").alias("last_offset"))
    )
    is_unnamed = F.col("origin_topic").isNull()
    # Only while the log has the place of the original: what was there before is unknown.
    is_strange = (F.col("origin_position") >= F.col("log_begin")) & (
        F.col("origin_offset") > F.coalesce("last_offset", F.lit(-1))
    )
    return (
        _readable(tables.failed.where(F.col("state") == "DEAD"), tables)
        .join(F.broadcast(begins), STORE, "left")
        .join(ends, [*STORE, "origin_topic", "origin_queue_id"], "left")
        .where(is_unnamed | F.coalesce(is_strange, F.lit(False)))
        .groupBy(*_QUEUE, "group")
        .agg(
            F.count("*").alias("messages"),
            F.count_if(is_unnamed).alias("unnamed"),
            F.min_by(
                F.struct(
                    "queue_offset",
                    "position",
                    "unique_key",
                    "origin_topic",
                    "origin_queue_id",
                    "origin_offset",
                ),
                "position",
            ).alias("first"),
        )
    )


def _dead_letter_origin(tables: Tables, limits: Limits) -> Frame:
    """One finding for each queue of dead letters."""
    named = sentence(
        " names {first.origin_topic}/{first.origin_queue_id}, queue offset "
        "{first.origin_offset}, which that queue never had"
    )
    return finding_rows(
        with_roles(_letters_of_nowhere(tables), tables),
        "DEAD_LETTER_ORIGIN",
        severity=F.when(F.col("messages") == F.col("unnamed"), Severity.WARNING.value).otherwise(
            Severity.ERROR.value
        ),
        evidence=sentence(
            "{messages|dead letter|dead letters} of group {group} without origin; the "
            "first, queue offset {first.queue_offset} at byte {first.position} of the "
            "log, id {first.unique_key},{origin}; store {store}.",
            origin=F.when(
                F.col("first.origin_topic").isNull(),
                " does not name the message that failed",
            ).otherwise(named),
        ),
        affected=F.col("messages"),
        command=verify_command(),
    )


# ------------------------------------------------------------------------------------- retries


def _retry_lost(tables: Tables, limits: Limits) -> Frame:
    """One finding for each group in a store."""
    lost = _never_copied(tables, limits).unionByName(_never_arrived(tables, limits))
    found = lost.groupBy(*STORE, "group").agg(
        F.count("*").alias("messages"),
        F.count_if("is_copied").alias("copied"),
        F.min_by(F.struct("topic", "queue_id", "queue_offset", "is_copied"), "at_ms").alias(
            "first"
        ),
    )
    return finding_rows(
        with_roles(found, tables),
        "RETRY_LOST",
        severity=loss_severity(),
        evidence=sentence(
            "{messages|message|messages} of group {group} failed and will not come "
            "again: {messages - copied} sent back without a copy, {copied} with a copy that waits "
            "no more and is not in the retry topic; the first: "
            "{first.topic}/{first.queue_id}, queue offset {first.queue_offset}; store "
            "{store}.",
        ),
        affected=F.col("messages"),
        command=verify_command(),
    )


def _never_copied(tables: Tables, limits: Limits) -> Frame:
    """What the journal of offsets says was sent back and copied, and of which there is no copy.

    Not for brokers that answered: their journal continues after their files were read.
    """
    spoke = tables.brokers.where(F.col("answered") & (F.col("role") != "STORE")).select(*ORIGIN)
    copied = (
        tables.journal.where(F.col("kind") == "copied")
        .groupBy(*ORIGIN)
        .agg(F.max("number").alias("copied_through"))
    )
    stores = tables.log_ranges.select(*STORE).distinct()
    sent_back = (
        tables.journal.where(F.col("kind") == "sentBack")
        .join(F.broadcast(copied), ORIGIN)
        .join(F.broadcast(whole_until(tables, limits, "entries_until_ms")), ORIGIN)
        .where(
            (F.col("number") < F.col("copied_through"))
            & (F.col("timestamp_ms") <= F.col("until_ms"))
        )
        .join(F.broadcast(spoke.distinct()), ORIGIN, "left_anti")
        .join(F.broadcast(stores), ORIGIN)
    )
    copies = tables.failed.where(F.col("number").isNotNull()).select(*STORE, "number")
    return (
        _readable(sent_back, tables)
        .join(copies, [*STORE, "number"], "left_anti")
        .select(
            *_QUEUE,
            "group",
            F.col("offset").alias("queue_offset"),
            F.col("timestamp_ms").alias("at_ms"),
            F.lit(False).alias("is_copied"),
        )
    )


def _never_arrived(tables: Tables, limits: Limits) -> Frame:
    """Copies that no longer wait and did not reach the retry topic.

    A copy may be rolled forward, and then waits as another record: the message counts. What its
    queue does not list is reported by MISSING_ENTRY.
    """
    copies = tables.failed.withColumn("copied", F.coalesce("origin_id", "unique_key"))
    waited = copies.where(F.col("state") == "WAITING")
    still = waited.join(
        tables.pending.select(*STORE, "position").distinct(), [*STORE, "position"], "left_semi"
    )
    there = copies.where(F.col("state") == "RETRY").select(*_COPY).unionByName(still.select(*_COPY))
    topics = (
        tables.topics.where(F.col("topic").startswith(RETRY_PREFIX))
        .select(*ORIGIN, F.col("topic").alias("retry_topic"))
        .distinct()
    )
    unlisted = compared(tables, limits).select(*_QUEUE).distinct()
    return (
        _readable(waited.where(F.col("copied").isNotNull()), tables)
        .join(F.broadcast(whole_until(tables, limits, "entries_until_ms")), ORIGIN)
        .where(F.col("store_ms") <= F.col("until_ms"))
        .withColumn("retry_topic", F.concat(F.lit(RETRY_PREFIX), F.col("group")))
        .join(F.broadcast(topics), [*ORIGIN, "retry_topic"], "left_semi")
        .join(F.broadcast(unlisted), _QUEUE, "left_anti")
        .join(there, _COPY, "left_anti")
        .groupBy(*_COPY)
        .agg(
            F.min_by(F.struct("topic", "queue_id", "queue_offset", "store_ms"), "position").alias(
                "one"
            )
        )
        .select(
            *STORE,
            F.col("one.topic").alias("topic"),
            F.col("one.queue_id").alias("queue_id"),
            "group",
            F.col("one.queue_offset").alias("queue_offset"),
            F.col("one.store_ms").alias("at_ms"),
            F.lit(True).alias("is_copied"),
        )
    )


_PLACE: Final = ["topic", "queue_id", "queue_offset"]


def _copied_twice(tables: Tables) -> Frame:
    """Numbers of the journal under which the log has more than one copy. A record moved on from a
    copy has no number of the journal."""
    return (
        _readable(tables.failed.where(F.col("number").isNotNull()), tables)
        .groupBy(*STORE, "group", "number")
        .agg(
            F.count("*").alias("copies"),
            F.min("position").alias("at"),
            F.min_by(F.struct(*_PLACE), "position").alias("first"),
            F.max_by(F.struct(*_PLACE), "position").alias("last"),
        )
        .where(F.col("copies") > 1)
        .drop("number")
    )


def _delivered_twice(tables: Tables) -> Frame:
    """Messages that are in the retry topic more often than the journal recorded copies. Those that
    reached it before their first copy in the log have copies that were removed."""
    copies = _readable(tables.failed, tables).withColumn(
        "copied", F.coalesce("origin_id", "unique_key")
    )
    waited = (
        copies.where((F.col("state") == "WAITING") & F.col("number").isNotNull())
        .groupBy(*_COPY)
        .agg(F.count_distinct("number").alias("numbers"), F.min("position").alias("begin"))
    )
    return (
        copies.where(F.col("state") == "RETRY")
        .join(waited, _COPY)
        .where(F.col("position") > F.col("begin"))
        .groupBy(*_COPY, "numbers")
        .agg(
            F.count("*").alias("copies"),
            F.min("position").alias("at"),
            F.min_by(F.struct(*_PLACE), "position").alias("first"),
            F.max_by(F.struct(*_PLACE), "position").alias("last"),
        )
        .where(F.col("copies") > F.col("numbers"))
        .select(*STORE, "group", "copies", "at", "first", "last")
    )


def _retry_twice(tables: Tables, limits: Limits) -> Frame:
    """One finding for each group in a store."""
    twice = _copied_twice(tables).unionByName(_delivered_twice(tables))
    found = twice.groupBy(*STORE, "group").agg(
        F.count("*").alias("messages"),
        F.sum("copies").alias("copies"),
        F.min_by(F.struct("first", "last"), "at").alias("one"),
    )
    return finding_rows(
        with_roles(found, tables),
        "RETRY_TWICE",
        severity=F.lit(Severity.ERROR.value),
        evidence=sentence(
            "{messages|message|messages} of group {group} failed once, with {copies} copies; the "
            "first: {one.first.topic}/{one.first.queue_id}, queue offset "
            "{one.first.queue_offset}, and {one.last.topic}/{one.last.queue_id}, queue offset "
            "{one.last.queue_offset}; store {store}.",
        ),
        affected=F.col("messages"),
        command=verify_command(),
    )


DEAD_LETTER_ORIGIN = Check(
    "DEAD_LETTER_ORIGIN",
    "Dead letters do not say where they come from.",
    _dead_letter_origin,
    is_deep=True,
    needs={"failed": "bool_or(state = 'DEAD')"},
)
RETRY_LOST = Check(
    "RETRY_LOST",
    "Messages that failed did not come again.",
    _retry_lost,
    is_deep=True,
    needs={
        "failed": "bool_or(state = 'WAITING')",
        "journal": "bool_or(kind = 'sentBack')",
    },
)
RETRY_TWICE = Check(
    "RETRY_TWICE",
    "Messages that failed once have more than one copy.",
    _retry_twice,
    is_deep=True,
    needs={"failed": "bool_or(number is not null)"},
)
