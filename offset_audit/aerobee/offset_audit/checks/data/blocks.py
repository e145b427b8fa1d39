"""Blocks of queue offsets, the log's beside the queue files': which agree, and which must be read.

One row for each block of `BLOCK_OFFSETS` of a queue, however the readers partitioned them.
"""

from __future__ import annotations

from typing import Final

from aerobee.domain.names import SYSTEM_PREFIX, SYSTEM_TOPICS
from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.data.stores import ORIGIN, STORE, whole_until
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column, Window
from aerobee.offset_audit.tables import Tables

QUEUE: Final = [*STORE, "topic", "queue_id"]

SOUND: Final = "SOUND"
"""Both sides agree, or what is on one side only is as it should be."""
READ: Final = "READ"
"""Its rows must be examined."""
UNLISTED: Final = "UNLISTED"
"""A dense block of the log that is missing entirely from the queue files: counted without reading.
"""

_READ_MESSAGES_MAX: Final = 1_024
"""Smaller blocks that only the log has are read too: they may be strays, from records whose header
was changed."""


def judged_blocks(tables: Tables, limits: Limits) -> Frame:
    """Every block with `verdict`, with the bounds of both sides, and `until_ms` of its store."""
    blocks = (
        _blocks(tables)
        .join(F.broadcast(whole_until(tables, limits, "entries_until_ms")), ORIGIN, "left")
        .withColumn("until_ms", F.coalesce("until_ms", F.lit(limits.now_ms - limits.settle_ms)))
    )
    bounded = _with_queue_bounds(_with_deleted(blocks, tables), tables)
    return _with_former(bounded, tables).withColumn("verdict", _verdict())


def _blocks(tables: Tables) -> Frame:
    ranges = tables.queue_ranges

    def of(source: str, column: str) -> Column:
        return F.when(F.col("source") == source, F.col(column))

    whole_queue = Window.partitionBy(*QUEUE)
    return (
        ranges.groupBy(*QUEUE, "block")
        .agg(
            F.sum(of("LOG", "messages")).alias("log_messages"),
            F.sum(of("LOG", "digest")).alias("log_digest"),
            F.min(of("LOG", "first_offset")).alias("log_first"),
            F.max(of("LOG", "last_offset")).alias("log_last"),
            F.sum(of("LOG", "disorders")).alias("log_disorders"),
            F.min(of("LOG", "first_store_ms")).alias("first_store_ms"),
            F.max(of("LOG", "last_store_ms")).alias("last_store_ms"),
            F.sum(of("ENTRIES", "messages")).alias("entry_messages"),
            F.sum(of("ENTRIES", "digest")).alias("entry_digest"),
            F.min(of("ENTRIES", "first_offset")).alias("entry_first"),
            F.min(of("ENTRIES", "first_position")).alias("entry_position"),
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.min("first_position").alias("first_position"),
            F.max("last_position").alias("last_position"),
        )
        .withColumn("queue_entry_first", F.min("entry_first").over(whole_queue))
        .withColumn("listed_position", F.min("entry_position").over(whole_queue))
        .withColumn(
            "topic_entries", F.sum("entry_messages").over(Window.partitionBy(*STORE, "topic"))
        )
    )


def _with_deleted(blocks: Frame, tables: Tables) -> Frame:
    """`is_deleted`: the log still has messages of a topic that is not in the store's tables."""
    own = tables.topics if tables.store_topics is None else tables.store_topics
    topics = own.select(*ORIGIN, "topic").distinct().withColumn("is_known", F.lit(True))
    telling = own.select(*ORIGIN).distinct().withColumn("has_topics", F.lit(True))
    return (
        blocks.join(topics, [*ORIGIN, "topic"], "left")
        .join(F.broadcast(telling), ORIGIN, "left")
        .withColumn(
            "is_deleted",
            F.col("has_topics").isNotNull()
            & F.col("is_known").isNull()
            & F.col("topic_entries").isNull()
            & ~F.col("topic").startswith(SYSTEM_PREFIX)
            & ~F.col("topic").isin(*sorted(SYSTEM_TOPICS)),
        )
    )


def _with_queue_bounds(blocks: Frame, tables: Tables) -> Frame:
    """`removed_below`: offsets before it need no entries, since the queue begins there.

    A topic that was deleted and recreated continues counting: its queue begins after what was
    deleted, but its files begin earlier. If they begin no earlier, nothing was deleted: entries are
    lost.
    """
    own = tables.queues if tables.store_queues is None else tables.store_queues
    bounds = own.groupBy(*ORIGIN, "topic", "queue_id").agg(
        F.max("min_offset").alias("queue_min"), F.max("max_offset").alias("queue_max")
    )
    begins_earlier = F.col("queue_entry_first") < F.col("queue_min")
    is_empty = F.col("queue_entry_first").isNull() & (F.col("queue_min") == F.col("queue_max"))
    return blocks.join(bounds, [*ORIGIN, "topic", "queue_id"], "left").withColumn(
        "removed_below",
        F.when(begins_earlier | is_empty, F.col("queue_min")).otherwise(F.lit(0)),
    )


def _with_former(blocks: Frame, tables: Tables) -> Frame:
    """`is_former`: the topic is known, but nothing shows that this queue of it ever had a message
    (no entry, no known end, no group with progress), and everything in the log is before whatever
    the topic lists. So the topic was deleted and recreated, and this belongs to its former life. If
    it lists nothing at all, its files may also be gone, which looks the same."""
    queue, topic = Window.partitionBy(*QUEUE), Window.partitionBy(*STORE, "topic")
    consumed = (
        tables.commits.where(F.col("offset") > 0)
        .select(*ORIGIN, "topic", "queue_id")
        .distinct()
        .withColumn("is_consumed", F.lit(True))
    )
    ends_before = F.max("last_position").over(queue) < F.min("entry_position").over(topic)
    has_nothing = F.col("topic_entries").isNull() & (
        F.coalesce(F.max("queue_max").over(topic), F.lit(0)) == 0
    )
    return blocks.join(consumed, [*ORIGIN, "topic", "queue_id"], "left").withColumn(
        "is_former",
        F.col("has_topics").isNotNull()
        & F.col("is_known").isNotNull()
        & F.col("queue_entry_first").isNull()
        & (F.coalesce("queue_max", F.lit(0)) == 0)
        & F.col("is_consumed").isNull()
        & (has_nothing | F.coalesce(ends_before, F.lit(False))),
    )


def _verdict() -> Column:
    only_log = F.col("entry_messages").isNull()
    is_dense = (
        F.col("log_messages") - 1 == F.try_subtract(F.col("log_last"), F.col("log_first"))
    ) & (F.col("log_disorders") == 0)
    agrees = (
        F.col("log_messages").eqNullSafe(F.col("entry_messages"))
        & F.col("log_digest").eqNullSafe(F.col("entry_digest"))
        & is_dense
    )
    needs_none = only_log & (
        F.col("is_deleted")
        # No queue ever had an offset below 0: that is a record with a damaged header.
        | ((F.col("log_last") < F.col("removed_below")) & (F.col("log_first") >= 0))
        | (is_dense & (F.col("first_store_ms") > F.col("until_ms")))
    )
    is_unlisted = (
        only_log
        & is_dense
        & (F.col("log_messages") > _READ_MESSAGES_MAX)
        & (F.col("log_first") >= F.col("removed_below"))
        & (F.col("last_store_ms") <= F.col("until_ms"))
    )
    return (
        F.when(F.coalesce(agrees | needs_none, F.lit(False)), SOUND)
        .when(F.coalesce(is_unlisted, F.lit(False)), UNLISTED)
        .otherwise(READ)
    )
