"""Blocks of queue offsets, the log's beside the queue files': which agree, and which must be read.

One row for each block of `BLOCK_OFFSETS` of a queue, however the readers partitioned them.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.data.stores import ORIGIN, STORE, whole_until
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.names import IS_SYSTEM_TOPIC
from aerobee.offset_audit.tables import Tables

QUEUE: Final = [*STORE, "topic", "queue_id"]
OF_QUEUE: Final = f"over (partition by {', '.join(QUEUE)})"
_OF_TOPIC: Final = f"over (partition by {', '.join(STORE)}, topic)"

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
_IS_DENSE: Final = (
    """(log_messages - 1 = try_subtract(log_last, log_first) and log_disorders = 0)"""
)
_AGREES: Final = f"""(log_messages <=> entry_messages and log_digest <=> entry_digest
    and {_IS_DENSE})"""
# No queue ever had an offset below 0: that is a record with a damaged header.
_NEEDS_NONE: Final = f"""(entry_messages is null and (is_deleted
    or (log_last < removed_below and log_first >= 0)
    or ({_IS_DENSE} and first_store_ms > until_ms)))"""
_IS_UNLISTED: Final = f"""(entry_messages is null and {_IS_DENSE}
    and log_messages > {_READ_MESSAGES_MAX}
    and log_first >= removed_below and last_store_ms <= until_ms)"""
_VERDICT: Final = f"""case when coalesce({_AGREES} or {_NEEDS_NONE}, false) then '{SOUND}'
    when coalesce({_IS_UNLISTED}, false) then '{UNLISTED}' else '{READ}' end"""


def judged_blocks(tables: Tables, limits: Limits) -> Frame:
    """Every block with `verdict`, with the bounds of both sides, and `until_ms` of its store."""
    settled_ms = limits.now_ms - limits.settle_ms
    blocks = (
        _blocks(tables)
        .join(F.broadcast(whole_until(tables, limits, "entries_until_ms")), ORIGIN, "left")
        .withColumn("until_ms", f"coalesce(until_ms, {settled_ms})")
    )
    bounded = _with_queue_bounds(_with_deleted(blocks, tables), tables)
    return _with_former(bounded, tables).withColumn("verdict", _VERDICT)


def _blocks(tables: Tables) -> Frame:
    def of(source: str, aggregate: str, column: str) -> str:
        return f"{aggregate}(if(source = '{source}', {column}, null))"

    return (
        tables.queue_ranges.groupBy(*QUEUE, "block")
        .agg(
            f"{of('LOG', 'sum', 'messages')} log_messages",
            f"{of('LOG', 'sum', 'digest')} log_digest",
            f"{of('LOG', 'min', 'first_offset')} log_first",
            f"{of('LOG', 'max', 'last_offset')} log_last",
            f"{of('LOG', 'sum', 'disorders')} log_disorders",
            f"{of('LOG', 'min', 'first_store_ms')} first_store_ms",
            f"{of('LOG', 'max', 'last_store_ms')} last_store_ms",
            f"{of('ENTRIES', 'sum', 'messages')} entry_messages",
            f"{of('ENTRIES', 'sum', 'digest')} entry_digest",
            f"{of('ENTRIES', 'min', 'first_offset')} entry_first",
            f"{of('ENTRIES', 'min', 'first_position')} entry_position",
            "min(first_offset) first_offset",
            "max(last_offset) last_offset",
            "min(first_position) first_position",
            "max(last_position) last_position",
        )
        .withColumns(
            {
                "queue_entry_first": f"min(entry_first) {OF_QUEUE}",
                "listed_position": f"min(entry_position) {OF_QUEUE}",
                "topic_entries": f"sum(entry_messages) {_OF_TOPIC}",
            }
        )
    )


def _with_deleted(blocks: Frame, tables: Tables) -> Frame:
    """`is_deleted`: the log still has messages of a topic that is not in the store's tables."""
    own = tables.topics if tables.store_topics is None else tables.store_topics
    topics = own.select(*ORIGIN, "topic").distinct().withColumn("is_known", "true")
    telling = own.select(*ORIGIN).distinct().withColumn("has_topics", "true")
    return (
        blocks.join(topics, [*ORIGIN, "topic"], "left")
        .join(F.broadcast(telling), ORIGIN, "left")
        .withColumn(
            "is_deleted",
            "has_topics is not null and is_known is null and topic_entries is null"
            f" and not {IS_SYSTEM_TOPIC}",
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
        "max(min_offset) queue_min", "max(max_offset) queue_max"
    )
    return blocks.join(bounds, [*ORIGIN, "topic", "queue_id"], "left").withColumn(
        "removed_below",
        "if(queue_entry_first < queue_min or (queue_entry_first is null and queue_min = queue_max),"
        " queue_min, 0)",
    )


def _with_former(blocks: Frame, tables: Tables) -> Frame:
    """`is_former`: the topic is known, but nothing shows that this queue of it ever had a message
    (no entry, no known end, no group with progress), and everything in the log is before whatever
    the topic lists. So the topic was deleted and recreated, and this belongs to its former life. If
    it lists nothing at all, its files may also be gone, which looks the same."""
    consumed = (
        tables.commits.where("offset > 0")
        .select(*ORIGIN, "topic", "queue_id")
        .distinct()
        .withColumn("is_consumed", "true")
    )
    has_nothing = f"(topic_entries is null and coalesce(max(queue_max) {_OF_TOPIC}, 0) = 0)"
    ends_before = f"max(last_position) {OF_QUEUE} < min(entry_position) {_OF_TOPIC}"
    return blocks.join(consumed, [*ORIGIN, "topic", "queue_id"], "left").withColumn(
        "is_former",
        f"""has_topics is not null and is_known is not null and queue_entry_first is null
            and coalesce(queue_max, 0) = 0 and is_consumed is null
            and ({has_nothing} or coalesce({ends_before}, false))""",
    )
