"""Deliveries against stored messages, by minute: how many messages of a topic a group had been
given when a minute ended, and how many there were.

A group has been given what its members committed; the journal of commits is in the same log as the
messages, so the log's own order and times decide, and no clocks are compared. Only what can be
proved is judged: sums over a topic's queues, in stores whose log has every message from the first
to the last, is in order, and was stored under a clock that never stepped back.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.data import fault_kinds
from aerobee.offset_audit.checks.data.stores import ORIGIN
from aerobee.offset_audit.checks.progress.journal import BLOCK_RECORDS
from aerobee.offset_audit.checks.progress.replicas import JOURNAL_TOPIC
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Window
from aerobee.offset_audit.rules.names import IS_SYSTEM_GROUP
from aerobee.offset_audit.tables import Tables

_TOPIC: Final = [*ORIGIN, "topic"]
_BLOCK: Final = [*ORIGIN, "journal_block"]
_READER: Final = [*ORIGIN, "group", "topic"]
_MINUTE_MS: Final = 60_000
_EARLIEST = Window.unboundedPreceding


def too_many_deliveries(tables: Tables) -> Frame:
    """Minutes by whose end a group had been given more of a topic than the store contained: ORIGIN,
    topic, group, minute, `claimed`, `stored`."""
    stored = _stored_by(tables)
    delivered = _delivered_by(tables, stored)
    minutes = stored.select(*_TOPIC, "minute", "ends").withColumnRenamed("minute", "stored_minute")
    # The topic's last minute with messages, up to that of the commit; before all of them: none.
    return (
        delivered.join(minutes, _TOPIC)
        .groupBy(*_READER, "minute", "claimed")
        .agg(
            F.max_by(
                F.when(F.col("stored_minute") <= F.col("minute"), F.col("ends")),
                F.when(F.col("stored_minute") <= F.col("minute"), F.col("stored_minute")),
            ).alias("stored")
        )
        .where(F.col("claimed") > F.col("stored"))
    )


def _stored_by(tables: Tables) -> Frame:
    """By topic and minute with messages: `ends`, the sum of its queues' ends when the minute ended.
    Counted back from the log's end, which every message moved by one."""
    later = (
        Window.partitionBy(*_TOPIC)
        .orderBy(F.desc("minute"))
        .rowsBetween(_EARLIEST, Window.currentRow)
    )
    return (
        tables.minutes.where(F.col("tier") == "STORED")
        .groupBy(*_TOPIC, "minute")
        .agg(F.try_sum("messages").alias("messages"))
        .join(_whole_topics(tables), _TOPIC)
        .withColumn("since", F.try_sum("messages").over(later))
        .withColumn(
            "ends", F.try_add(F.try_subtract(F.col("end"), F.col("since")), F.col("messages"))
        )
        .select(*_TOPIC, "minute", "ends", "messages")
    )


def _whole_topics(tables: Tables) -> Frame:
    """`end`: the sum of the ends of a topic's queues according to the log, for topics of which the
    log has all messages between the first and the last of each queue, each once and in order."""
    queue = [*_TOPIC, "queue_id"]
    before = F.lag("last_position").over(Window.partitionBy(*queue).orderBy("first_offset"))
    queues = (
        _whole_stores(tables, tables.queue_ranges.where(F.col("source") == "LOG"))
        .withColumn("is_after", F.coalesce(before < F.col("first_position"), F.lit(True)))
        .groupBy(*queue)
        .agg(
            F.try_add(F.max("last_offset"), F.lit(1)).alias("end"),
            (
                F.bool_and("is_after")
                & (F.try_sum("disorders") == 0)
                & (
                    F.try_sum("messages")
                    == F.try_add(
                        F.try_subtract(F.max("last_offset"), F.min("first_offset")), F.lit(1)
                    )
                )
            ).alias("is_whole"),
        )
    )
    return (
        queues.groupBy(*_TOPIC)
        .agg(F.try_sum("end").alias("end"), F.bool_and("is_whole").alias("is_whole"))
        .where("is_whole")
        .drop("is_whole")
    )


def _whole_stores(tables: Tables, rows: Frame) -> Frame:
    """Rows of stores whose own journal was read, and in whose log the minute never falls."""
    spoke = tables.brokers.where(F.col("answered") & (F.col("role") != "STORE")).select(*ORIGIN)
    before_ms = F.try_add(F.col("store_ms"), F.col("back_ms"))
    is_within_minute = F.expr(f"store_ms div {_MINUTE_MS}") == F.floor(before_ms / _MINUTE_MS)
    fallen = tables.faults.where(
        (F.col("kind") == fault_kinds.BAD_TIME)
        | (
            (F.col("kind") == fault_kinds.TIME_BACKWARD)
            & ~F.coalesce(is_within_minute, F.lit(False))
        )
    ).select(*ORIGIN)
    return rows.join(F.broadcast(spoke.unionByName(fallen).distinct()), ORIGIN, "left_anti")


def _delivered_by(tables: Tables, stored: Frame) -> Frame:
    """By group, topic and minute with commits: `claimed`, the sum of the group's highest offsets
    when the minute ended, for queues with messages in the log."""
    queues = tables.queue_ranges.where(F.col("source") == "LOG").select(*_TOPIC, "queue_id")
    highest = (
        tables.journal.where((F.col("kind") == "commit") & ~F.expr(IS_SYSTEM_GROUP))
        .join(F.broadcast(queues.distinct()), [*_TOPIC, "queue_id"], "left_semi")
        .withColumn("journal_block", F.expr(f"journal_offset div {BLOCK_RECORDS}"))
        .join(_journal_minutes(stored), _BLOCK)
        .where(
            (F.col("journal_offset") >= F.col("records_begin"))
            & (F.col("journal_offset") < F.col("records_end"))
        )
        .groupBy(*_READER, "queue_id", "minute")
        .agg(F.max("offset").alias("offset"))
    )
    of_queue = Window.partitionBy(*_READER, "queue_id").orderBy("minute")
    of_topic = Window.partitionBy(*_READER).orderBy("minute")
    risen = F.max("offset").over(of_queue.rowsBetween(_EARLIEST, Window.currentRow))
    before = F.max("offset").over(of_queue.rowsBetween(_EARLIEST, -1))
    return (
        highest.withColumn("delivered", F.try_subtract(risen, F.coalesce(before, F.lit(0))))
        .groupBy(*_READER, "minute")
        .agg(F.try_sum("delivered").alias("delivered"))
        .withColumn(
            "claimed",
            F.try_sum("delivered").over(of_topic.rowsBetween(_EARLIEST, Window.currentRow)),
        )
        .select(*_READER, "minute", "claimed")
    )


def _journal_minutes(stored: Frame) -> Frame:
    """The journal records stored in each minute, once for each block that they are in, so that
    commits can be joined by equality."""
    begin, end = F.col("records_begin"), F.col("records_end")
    return (
        stored.where(F.col("topic") == JOURNAL_TOPIC)
        .withColumnRenamed("ends", "records_end")
        .withColumn("records_begin", F.try_subtract("records_end", "messages"))
        .where((begin >= 0) & (begin < end))
        .select(
            *ORIGIN,
            "minute",
            "records_begin",
            "records_end",
            F.explode(
                F.expr(
                    f"sequence(records_begin div {BLOCK_RECORDS},"
                    f" (records_end - 1) div {BLOCK_RECORDS})"
                )
            ).alias("journal_block"),
        )
    )
