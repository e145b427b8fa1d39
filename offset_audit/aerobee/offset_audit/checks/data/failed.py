"""RETRY_LOST, RETRY_TWICE, DEAD_LETTER_ORIGIN: exactly one copy of each failed message, and dead
letters that name their origin.

A store's log contains the whole way of a failed message, since each step is appended after the
previous one: journal entry, waiting copy, copy in the retry topic or dead letter. So if the log has
a step, it must have the next one; nothing that retention removed is missed. Stores whose log is
partly unreadable are not judged.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits, Severity
from aerobee.offset_audit.checks.data.compare import compared
from aerobee.offset_audit.checks.data.fault_kinds import HIDING
from aerobee.offset_audit.checks.data.stores import (
    LOSS_SEVERITY,
    ORIGIN,
    STORE,
    store_check,
    whole_until,
)
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX

_QUEUE: Final = [*STORE, "topic", "queue_id"]
_COPY: Final = [*STORE, "group", "copied", "attempt"]
"""`copied`: the id shared by all copies of a message."""
_COPIED: Final = "coalesce(origin_id, unique_key)"


def _readable(rows: Frame, tables: Tables) -> Frame:
    damaged = tables.faults.where(f"kind in {HIDING}").select(*STORE).distinct()
    return rows.join(F.broadcast(damaged), STORE, "left_anti")


# ------------------------------------------------------------------------------------- letters

_ORIGIN_TOLD: Final = either(
    "first.origin_topic is null",
    " does not name the message that failed",
    " names {first.origin_topic}/{first.origin_queue_id}, queue offset {first.origin_offset}, "
    "which that queue never had",
)


def _letters_of_nowhere(tables: Tables, _limits: Limits) -> Frame:
    """By queue and group: `messages`, those without a named origin (`unnamed`), and the first."""
    begins = tables.log_ranges.groupBy(*STORE).agg("min(begin) log_begin")
    ends = (
        tables.queue_ranges.where("source = 'LOG'")
        .selectExpr(*STORE, "topic origin_topic", "queue_id origin_queue_id", "last_offset")
        .groupBy(*STORE, "origin_topic", "origin_queue_id")
        .agg("max(last_offset) last_offset")
    )
    return (
        _readable(tables.failed.where("state = 'DEAD'"), tables)
        .join(F.broadcast(begins), STORE, "left")
        .join(ends, [*STORE, "origin_topic", "origin_queue_id"], "left")
        # Only while the log has the place of the original: what was there before is unknown.
        .where(
            """origin_topic is null or coalesce(
                origin_position >= log_begin and origin_offset > coalesce(last_offset, -1),
                false)"""
        )
        .groupBy(*_QUEUE, "group")
        .agg(
            "count(1) messages",
            "count_if(origin_topic is null) unnamed",
            """min_by(struct(queue_offset, position, unique_key, origin_topic, origin_queue_id,
                origin_offset), position) first""",
        )
    )


# ------------------------------------------------------------------------------------- retries


def _retry_lost(tables: Tables, limits: Limits) -> Frame:
    """One finding for each group in a store."""
    lost = _never_copied(tables, limits).unionByName(_never_arrived(tables, limits))
    return lost.groupBy(*STORE, "group").agg(
        "count(1) messages",
        "count_if(is_copied) copied",
        "min_by(struct(topic, queue_id, queue_offset, is_copied), at_ms) first",
    )


def _never_copied(tables: Tables, limits: Limits) -> Frame:
    """What the journal of offsets says was sent back and copied, and of which there is no copy.

    Not for brokers that answered: their journal continues after their files were read.
    """
    spoke = tables.brokers.where("answered and role <> 'STORE'").select(*ORIGIN)
    copied = (
        tables.journal.where("kind = 'copied'").groupBy(*ORIGIN).agg("max(number) copied_through")
    )
    stores = tables.log_ranges.select(*STORE).distinct()
    sent_back = (
        tables.journal.where("kind = 'sentBack'")
        .join(F.broadcast(copied), ORIGIN)
        .join(F.broadcast(whole_until(tables, limits, "entries_until_ms")), ORIGIN)
        .where("number < copied_through and timestamp_ms <= until_ms")
        .join(F.broadcast(spoke.distinct()), ORIGIN, "left_anti")
        .join(F.broadcast(stores), ORIGIN)
    )
    copies = tables.failed.where("number is not null").select(*STORE, "number")
    return (
        _readable(sent_back, tables)
        .join(copies, [*STORE, "number"], "left_anti")
        .selectExpr(
            *_QUEUE, "group", "offset queue_offset", "timestamp_ms at_ms", "false is_copied"
        )
    )


def _never_arrived(tables: Tables, limits: Limits) -> Frame:
    """Copies that no longer wait and did not reach the retry topic.

    A copy may be rolled forward, and then waits as another record: the message counts. What its
    queue does not list is reported by MISSING_ENTRY.
    """
    copies = tables.failed.withColumn("copied", _COPIED)
    waited = copies.where("state = 'WAITING'")
    still = waited.join(
        tables.pending.select(*STORE, "position").distinct(), [*STORE, "position"], "left_semi"
    )
    there = copies.where("state = 'RETRY'").select(*_COPY).unionByName(still.select(*_COPY))
    topics = (
        tables.topics.where(f"startswith(topic, '{RETRY_PREFIX}')")
        .selectExpr(*ORIGIN, "topic retry_topic")
        .distinct()
    )
    unlisted = compared(tables, limits).select(*_QUEUE).distinct()
    return (
        _readable(waited.where("copied is not null"), tables)
        .join(F.broadcast(whole_until(tables, limits, "entries_until_ms")), ORIGIN)
        .where("store_ms <= until_ms")
        .withColumn("retry_topic", f"concat('{RETRY_PREFIX}', group)")
        .join(F.broadcast(topics), [*ORIGIN, "retry_topic"], "left_semi")
        .join(F.broadcast(unlisted), _QUEUE, "left_anti")
        .join(there, _COPY, "left_anti")
        .groupBy(*_COPY)
        .agg("min_by(struct(topic, queue_id, queue_offset, store_ms), position) one")
        .selectExpr(
            *STORE,
            "one.topic topic",
            "one.queue_id queue_id",
            "group",
            "one.queue_offset queue_offset",
            "one.store_ms at_ms",
            "true is_copied",
        )
    )


_ENDS: Final = (
    "count(1) copies",
    "min(position) at",
    "min_by(struct(topic, queue_id, queue_offset), position) first",
    "max_by(struct(topic, queue_id, queue_offset), position) last",
)
"""Of several copies of one message."""
_TWICE: Final = [*STORE, "group", "copies", "at", "first", "last"]


def _copied_twice(tables: Tables) -> Frame:
    """Numbers of the journal under which the log has more than one copy. A record moved on from a
    copy has no number of the journal."""
    return (
        _readable(tables.failed.where("number is not null"), tables)
        .groupBy(*STORE, "group", "number")
        .agg(*_ENDS)
        .where("copies > 1")
        .select(*_TWICE)
    )


def _delivered_twice(tables: Tables) -> Frame:
    """Messages that are in the retry topic more often than the journal recorded copies. Those that
    reached it before their first copy in the log have copies that were removed."""
    copies = _readable(tables.failed, tables).withColumn("copied", _COPIED)
    waited = (
        copies.where("state = 'WAITING' and number is not null")
        .groupBy(*_COPY)
        .agg("count(distinct number) numbers", "min(position) begin")
    )
    return (
        copies.where("state = 'RETRY'")
        .join(waited, _COPY)
        .where("position > begin")
        .groupBy(*_COPY, "numbers")
        .agg(*_ENDS)
        .where("copies > numbers")
        .select(*_TWICE)
    )


def _retry_twice(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each group in a store."""
    twice = _copied_twice(tables).unionByName(_delivered_twice(tables))
    return twice.groupBy(*STORE, "group").agg(
        "count(1) messages", "sum(copies) copies", "min_by(struct(first, last), at) one"
    )


DEAD_LETTER_ORIGIN = store_check(
    "DEAD_LETTER_ORIGIN",
    "Dead letters do not say where they come from.",
    _letters_of_nowhere,
    severity=f"if(messages = unnamed, '{Severity.WARNING}', '{Severity.ERROR}')",
    evidence=phrase(
        "{messages|dead letter|dead letters} of group {group} without origin; the "
        "first, queue offset {first.queue_offset} at byte {first.position} of the "
        "log, id {first.unique_key},{origin}; store {store}.",
        origin=_ORIGIN_TOLD,
    ),
    needs={"failed": "bool_or(state = 'DEAD')"},
)
RETRY_LOST = store_check(
    "RETRY_LOST",
    "Messages that failed did not come again.",
    _retry_lost,
    severity=LOSS_SEVERITY,
    evidence=phrase(
        "{messages|message|messages} of group {group} failed and will not come "
        "again: {messages - copied} sent back without a copy, {copied} with a copy that waits "
        "no more and is not in the retry topic; the first: "
        "{first.topic}/{first.queue_id}, queue offset {first.queue_offset}; store "
        "{store}.",
    ),
    needs={
        "failed": "bool_or(state = 'WAITING')",
        "journal": "bool_or(kind = 'sentBack')",
    },
)
RETRY_TWICE = store_check(
    "RETRY_TWICE",
    "Messages that failed once have more than one copy.",
    _retry_twice,
    severity=Severity.ERROR,
    evidence=phrase(
        "{messages|message|messages} of group {group} failed once, with {copies} copies; the "
        "first: {one.first.topic}/{one.first.queue_id}, queue offset "
        "{one.first.queue_offset}, and {one.last.topic}/{one.last.queue_id}, queue offset "
        "{one.last.queue_offset}; store {store}.",
    ),
    needs={"failed": "bool_or(number is not null)"},
)
