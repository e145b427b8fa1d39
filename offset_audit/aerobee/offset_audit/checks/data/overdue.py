"""HALF_OVERDUE, DELAY_OVERDUE, TIMER_OVERDUE: messages that have waited too long in system topics.

A store at rest delivers nothing: there a message is late only if the broker kept storing others for
long enough after it was due.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.stores import ORIGIN, STORE, verify_command, with_roles
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.tables import Tables

_FIRST: Final = ("queue_offset", "position", "due_ms", "unique_key", "real_topic")


def _overdue(tables: Tables, limits: Limits, kind: str, *, check: str, meaning: str) -> Frame:
    """One finding for each queue of the system topic in which messages of `kind` are overdue.

    `meaning`: what did not happen to them.
    """
    # Half messages are due by their producer's clock: they are not late before they were stored.
    due_ms = F.greatest("due_ms", F.when(F.col("due_ms").isNotNull(), F.col("store_ms")))
    late_ms = F.try_subtract(F.col("alive_until_ms"), due_ms)
    found = (
        tables.pending.where((F.col("kind") == kind) & ~F.coalesce("resolved", F.lit(False)))
        .join(F.broadcast(_alive_until(tables, limits)), STORE, "left")
        .where(late_ms > limits.overdue_ms)
        .groupBy(*STORE, "topic", "queue_id")
        .agg(
            F.count("*").alias("messages"),
            F.min_by(F.struct(*_FIRST), "due_ms").alias("first"),
            F.max(late_ms).alias("late_ms"),
            F.max("alive_until_ms").alias("alive_until_ms"),
        )
    )
    return finding_rows(
        with_roles(found, tables),
        check,
        severity=Severity.ERROR,
        evidence=sentence(
            f"{{messages|message of |messages of }}{{topic}}/{{queue_id}} {meaning}; "
            f"the oldest, queue offset {{first.queue_offset}} at byte "
            f"{{first.position}} of the log{{id}}{{target}}, was due at "
            f"{{first.due_ms|instant}}, {{late_ms}} ms before "
            f"{{alive_until_ms|instant}}; store {{store}}.",
            id=_told("unique_key", ", id "),
            target=_told("real_topic", ", for topic "),
        ),
        affected=F.col("messages"),
        command=verify_command(),
    )


def _told(name: str, before: str) -> Column:
    value = F.col(f"first.{name}")
    return F.when(value.isNotNull(), sentence(before + "{value}", value=value)).otherwise("")


def _alive_until(tables: Tables, limits: Limits) -> Frame:
    """Until when each store's broker certainly worked: its newest record, or its reading as
    master."""
    newest = (
        tables.queue_ranges.groupBy(*STORE)
        .agg(F.max("last_store_ms").alias("newest_ms"))
        .unionByName(tables.pending.groupBy(*STORE).agg(F.max("store_ms").alias("newest_ms")))
        .groupBy(*STORE)
        .agg(F.max("newest_ms").alias("newest_ms"))
    )
    is_master = F.col("answered") & (F.col("role") == "MASTER")
    running = (
        tables.brokers.groupBy(*ORIGIN)
        .agg(
            F.max(F.when(is_master, F.col("ends_read_at_ms"))).alias("read_at_ms"),
            F.max(F.when(is_master, F.col("appended_end"))).alias("broker_end"),
            F.max(F.when(F.col("role") == "STORE", F.col("appended_end"))).alias("store_end"),
        )
        # Brokers are read before files: files that end earlier are a backup.
        .where(~F.coalesce(F.col("store_end") < F.col("broker_end"), F.lit(False)))
    )
    return newest.join(running, ORIGIN, "left").select(
        *STORE,
        F.least(F.greatest("newest_ms", "read_at_ms"), F.lit(limits.now_ms)).alias(
            "alive_until_ms"
        ),
    )


def _check_of(kind: str, name: str, title: str, meaning: str) -> Check:
    return Check(
        name,
        title,
        lambda tables, limits: _overdue(tables, limits, kind, check=name, meaning=meaning),
        is_deep=True,
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
