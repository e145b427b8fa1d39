"""HALF_OVERDUE, DELAY_OVERDUE, TIMER_OVERDUE: messages that have waited too long in system topics.

A store at rest delivers nothing: there a message is late only if the broker kept storing others for
long enough after it was due.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.stores import ORIGIN, STORE, store_check
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

ID_AND_TARGET: Final = phrase(
    "{id}{target}",
    id=either("first.unique_key is not null", ", id {first.unique_key}"),
    target=either("first.real_topic is not null", ", for topic {first.real_topic}"),
)
"""Of the struct `first` of a waiting message."""
_LATE_MS: Final = """try_subtract(alive_until_ms,
    greatest(due_ms, if(due_ms is not null, store_ms, null)))"""
"""Half messages are due by their producer's clock: they are not late before they were stored."""


def _overdue(tables: Tables, limits: Limits, kind: str) -> Frame:
    """One row for each queue of the system topic in which messages of `kind` are overdue."""
    return (
        tables.pending.where(f"kind = '{kind}' and not coalesce(resolved, false)")
        .join(F.broadcast(_alive_until(tables, limits)), STORE, "left")
        .withColumn("late_ms", _LATE_MS)
        .where(f"late_ms > {limits.overdue_ms}")
        .groupBy(*STORE, "topic", "queue_id")
        .agg(
            "count(1) messages",
            "min_by(struct(queue_offset, position, due_ms, unique_key, real_topic), due_ms) first",
            "max(late_ms) late_ms",
            "max(alive_until_ms) alive_until_ms",
        )
    )


def _alive_until(tables: Tables, limits: Limits) -> Frame:
    """Until when each store's broker certainly worked: its newest record, or its reading as
    master."""
    newest = (
        tables.queue_ranges.selectExpr(*STORE, "last_store_ms at_ms")
        .unionByName(tables.pending.selectExpr(*STORE, "store_ms at_ms"))
        .groupBy(*STORE)
        .agg("max(at_ms) newest_ms")
    )
    is_master = "answered and role = 'MASTER'"
    running = (
        tables.brokers.groupBy(*ORIGIN)
        .agg(
            f"max(if({is_master}, ends_read_at_ms, null)) read_at_ms",
            f"max(if({is_master}, appended_end, null)) broker_end",
            "max(if(role = 'STORE', appended_end, null)) store_end",
        )
        # Brokers are read before files: files that end earlier are a backup.
        .where("not coalesce(store_end < broker_end, false)")
    )
    return newest.join(running, ORIGIN, "left").selectExpr(
        *STORE, f"least(greatest(newest_ms, read_at_ms), {limits.now_ms}) alive_until_ms"
    )


def _check_of(kind: str, name: str, title: str, meaning: str) -> Check:
    """`meaning`: what did not happen to the messages."""
    return store_check(
        name,
        title,
        lambda tables, limits: _overdue(tables, limits, kind),
        severity=Severity.ERROR,
        evidence=phrase(
            f"{{messages|message of |messages of }}{{topic}}/{{queue_id}} {meaning}; "
            f"the oldest, queue offset {{first.queue_offset}} at byte "
            f"{{first.position}} of the log{{id_and_target}}, was due at "
            f"{{first.due_ms|instant}}, {{late_ms}} ms before "
            f"{{alive_until_ms|instant}}; store {{store}}.",
            id_and_target=ID_AND_TARGET,
        ),
        needs={"pending": f"bool_or(kind = '{kind}' and not coalesce(resolved, false))"},
    )


HALF_OVERDUE = _check_of(
    "HALF",
    "HALF_OVERDUE",
    "Transactional messages were never resolved.",
    "were neither committed nor rolled back",
)
DELAY_OVERDUE = _check_of(
    "DELAY",
    "DELAY_OVERDUE",
    "Delayed messages were not delivered when due.",
    "were not delivered to their topics",
)
TIMER_OVERDUE = _check_of(
    "TIMER",
    "TIMER_OVERDUE",
    "Timed messages were not delivered when due.",
    "were not delivered to their topics",
)
