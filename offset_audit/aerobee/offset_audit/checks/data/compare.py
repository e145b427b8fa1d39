"""The log against the queue files: every message on which the two differ, by class.

The single comparison used by GAP, MISSING_ENTRY, DUPLICATE and CORRUPT. Each message is in one
class, so that one cause is one finding:

- LOST: the queue lists it, the log has no such record. HOLE: neither has it, though both continue
  after it.
- UNLISTED: the log has it, the queue does not. FORMER: nor did the queue ever have anything, so its
  topic was deleted and recreated, and this belongs to its former life.
- DUPLICATE: a further record with the same queue offset. AGAIN: all of the queue's such records are
  before what it lists, so it began anew.
- HEADER: a record names another queue or queue offset than the entry that points to it.
- BAD_ENTRY: the entry points to another position or size than its record's. TAGS_CODE: only the
  tags code differs.

`fault_position` is the place of the damage that explains it, null if there is none.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.data.blocks import QUEUE, READ, UNLISTED, judged_blocks
from aerobee.offset_audit.checks.data.fault_kinds import HIDING
from aerobee.offset_audit.checks.data.stores import STORE, still_there
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column, Window
from aerobee.offset_audit.tables import Tables
from aerobee.store.format.tags import SCHEDULE_TOPIC

_EXT_ADDRESS_END: Final = -(1 << 31)
"""Below this, a tags code is an address in Apache's queue extension."""

TROUBLE: Final = """cluster string, broker_name string, broker_id int, store string, topic string,
queue_id int, class string, messages long, first_offset long, last_offset long,
first_position long, last_position long, fault_position long, detail string"""

_SPAN: Final = [
    *QUEUE,
    "class",
    "messages",
    "first_offset",
    "last_offset",
    "first_position",
    "last_position",
    "detail",
]


def compared(tables: Tables, limits: Limits) -> Frame:
    """The run's comparison, if made already; otherwise compare now."""
    return compare(tables, limits) if tables.compared is None else tables.compared


def compare(tables: Tables, limits: Limits) -> Frame:
    """One row of TROUBLE for each queue, class and explaining damage: few, whatever the stores.

    A run persists it as `Tables.compared`. The data passes through once: each step adds to the rows
    of the one before.
    """
    blocks = judged_blocks(tables, limits)
    if tables.queue_rows is None:
        return blocks.engine.frame(TROUBLE, [])
    rows = tables.queue_rows(
        blocks.where(F.col("verdict") == READ).select(
            *STORE, "topic", "queue_id", "block", "first_position", "last_position"
        )
    )
    # Evaluated after the rows were read, for them and their blocks alike.
    begins = None if tables.log_begins is None else tables.log_begins()
    blocks = still_there(blocks, begins, "last_position")
    messages = _paired(_single(still_there(rows, begins, "position")))
    spans = _with_holes(_missed_only(messages.unionByName(_spans(blocks))))
    return _summed(_with_damage(spans.where(F.col("class").isNotNull()), tables))


def _single(rows: Frame) -> Frame:
    """A row for each queue offset, and for each further record with it; a null class is sound."""
    record = F.struct("position", "size", "tags_code", "store_ms")
    both = rows.groupBy(*QUEUE, "queue_offset").agg(
        F.sort_array(F.collect_list(F.when(F.col("source") == "LOG", record))).alias("records"),
        F.first(F.when(F.col("source") == "ENTRIES", record), ignorenulls=True).alias("entry"),
    )
    # Of several records, the one that the queue lists counts.
    listed = F.filter("records", lambda one: one.position == F.col("entry.position"))
    main, entry = F.col("main"), F.col("entry")
    own = F.struct(
        _class(main, entry).alias("class"),
        F.coalesce(entry.position, main.position).alias("position"),
        main.store_ms.alias("store_ms"),
        _difference(main, entry).alias("detail"),
    )

    def further(one: Column) -> Column:
        told = F.concat(F.lit("the other record is at byte "), main.position.cast("string"))
        return F.struct(
            F.lit("DUPLICATE").alias("class"),
            one.position.alias("position"),
            one.store_ms.alias("store_ms"),
            told.alias("detail"),
        )

    others = F.filter("records", lambda one: one.position != main.position)
    return (
        both.withColumn(
            "main", F.coalesce(F.get(listed, F.lit(0)), F.get(F.col("records"), F.lit(0)))
        )
        .select(
            *QUEUE,
            "queue_offset",
            F.explode(
                F.concat(F.array(own), F.coalesce(F.transform(others, further), F.array()))
            ).alias("one"),
        )
        .select(*QUEUE, "queue_offset", "one.*")
    )


def _class(main: Column, entry: Column) -> Column:
    has_other_tags = (
        (main.tags_code != entry.tags_code)
        # Delivery times by delay levels, which may have been configured differently since.
        & (F.col("topic") != SCHEDULE_TOPIC)
        & (entry.tags_code >= _EXT_ADDRESS_END)
    )
    return (
        F.when(main.isNull(), "LOST")
        .when(entry.isNull(), "UNLISTED")
        .when((main.position != entry.position) | (main.size != entry.size), "BAD_ENTRY")
        .when(has_other_tags, "TAGS_CODE")
    )


def _difference(main: Column, entry: Column) -> Column:
    """Compares an entry with its record."""
    return F.when(
        main.isNotNull() & entry.isNotNull(),
        F.format_string(
            "the entry says byte %d, size %d, tags code %d, the record byte %d, size %d, "
            "tags code %d",
            entry.position,
            entry.size,
            entry.tags_code,
            main.position,
            main.size,
            main.tags_code,
        ),
    )


def _paired(messages: Frame) -> Frame:
    """Records to which no entry of their own points, paired with entries that have no record: if
    both are at one position, the record's header changed, and that is one problem, not two.

    The entry knows which message it was: its row becomes HEADER, the record's STRAY. But a record
    that took another one's queue offset is a DUPLICATE, and explains the offset that it left; for
    now it is TWICE if no entry points to it.
    """
    at_place = Window.partitionBy(*STORE, "position")
    kind = F.col("class")
    says = F.format_string(
        "the record says %s, queue %d, queue offset %d", "topic", "queue_id", "queue_offset"
    )
    is_changed = (kind == "LOST") & (F.col("said").isNotNull())
    return (
        messages.withColumn("lost_here", F.count_if(kind == "LOST").over(at_place))
        .withColumn("twice_here", F.count_if(kind == "DUPLICATE").over(at_place))
        .withColumn("said", F.max(F.when(kind == "UNLISTED", says)).over(at_place))
        .select(
            *QUEUE,
            F.when((kind == "LOST") & (F.col("twice_here") > 0), None)
            .when(is_changed, "HEADER")
            .when((kind == "UNLISTED") & (F.col("lost_here") > 0), "STRAY")
            .when((kind == "DUPLICATE") & (F.col("lost_here") == 0), "TWICE")
            .otherwise(kind)
            .alias("class"),
            F.lit(1).cast("long").alias("messages"),
            F.col("queue_offset").alias("first_offset"),
            F.col("queue_offset").alias("last_offset"),
            F.col("position").alias("first_position"),
            F.col("position").alias("last_position"),
            F.when(is_changed, F.col("said")).otherwise(F.col("detail")).alias("detail"),
            "store_ms",
            *(F.lit(None).cast(kind_).alias(name) for name, kind_ in _OF_QUEUE.items()),
        )
    )


_OF_QUEUE: Final = {
    "until_ms": "long",
    "removed_below": "long",
    "is_deleted": "boolean",
    "is_former": "boolean",
    "queue_entry_first": "long",
    "listed_position": "long",
}
"""Known only per block, and valid for the whole queue."""


def _spans(blocks: Frame) -> Frame:
    """Each block as one row: sound, not listed at all, or BLOCK if its messages have rows."""
    return blocks.select(
        *QUEUE,
        F.when(F.col("verdict") == READ, "BLOCK")
        .when(F.col("verdict") == UNLISTED, "UNLISTED")
        .alias("class"),
        F.col("log_messages").alias("messages"),
        "first_offset",
        "last_offset",
        "first_position",
        "last_position",
        F.lit(None).cast("string").alias("detail"),
        F.col("last_store_ms").alias("store_ms"),
        *_OF_QUEUE,
    )


def _missed_only(spans: Frame) -> Frame:
    """Without records that need no entry: too young, removed, of deleted topics.

    A topic that Apache's broker deleted and recreated counts from 0 again. A record that is before
    everything the queue lists, but has a higher offset than its first entry, belongs to the earlier
    life: lost entries have lower ones. The same holds for further records that are all before it; a
    single one may also have been changed, but then an entry still points to it, or nothing lists
    what it was.
    """
    queue = Window.partitionBy(*QUEUE)
    for name in _OF_QUEUE:
        spans = spans.withColumn(name, F.max(name).over(queue))
    is_missed = (
        (F.col("store_ms") <= F.col("until_ms"))
        & (F.col("first_offset") >= F.col("removed_below"))
        & ~F.col("is_deleted")
    )
    is_before = F.col("last_position") < F.col("listed_position")
    is_earlier_life = is_before & (F.col("first_offset") > F.col("queue_entry_first"))
    is_twice = F.col("class").isin("DUPLICATE", "TWICE")
    twice = F.count_if(is_twice).over(queue)
    twice_before = F.count_if(is_twice & F.coalesce(is_before, F.lit(False))).over(queue)
    is_alone = (F.col("class") == "TWICE") & (
        F.count_if(F.col("class") == "UNLISTED").over(queue) == 0
    )
    return spans.withColumn(
        "class",
        F.when(is_twice & (twice == twice_before) & ((twice > 1) | is_alone), "AGAIN")
        .when(is_twice, "DUPLICATE")
        .when((F.col("class") == "UNLISTED") & F.coalesce(is_earlier_life, F.lit(False)), "STRAY")
        .when((F.col("class") == "UNLISTED") & is_missed & F.col("is_former"), "FORMER")
        .when((F.col("class") != "UNLISTED") | is_missed, F.col("class")),
    )


def _with_holes(spans: Frame) -> Frame:
    """One more row for queue offsets that neither side has, between others, with the log positions
    around them. A record in between that has another's queue offset is the missing one."""
    queue = Window.partitionBy(*QUEUE)
    is_there = ~F.coalesce(
        F.col("class").isin("BLOCK", "STRAY", "DUPLICATE", "AGAIN", "FORMER"), F.lit(False)
    )
    twice_before = F.count_if(F.col("class") == "DUPLICATE").over(
        queue.orderBy("last_position").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    )
    here = F.struct("first_offset", "last_offset", "last_position", "twice_before")
    before = F.last(F.when(is_there, here), ignorenulls=True).over(
        queue.orderBy("first_offset", "last_offset").rowsBetween(Window.unboundedPreceding, -1)
    )
    missing = F.try_subtract(
        F.try_subtract(F.col("first_offset"), F.col("before.last_offset")), F.lit(1)
    )
    own = F.struct(*(F.col(name) for name in _SPAN[len(QUEUE) :]))
    hole = F.struct(
        F.lit("HOLE").alias("class"),
        missing.alias("messages"),
        F.try_add(F.col("before.last_offset"), F.lit(1)).alias("first_offset"),
        F.try_subtract(F.col("first_offset"), F.lit(1)).alias("last_offset"),
        F.col("before.last_position").alias("first_position"),
        F.col("first_position").alias("last_position"),
        F.lit(None).cast("string").alias("detail"),
    )
    is_hole = is_there & (missing > 0) & (F.col("twice_before") == F.col("before.twice_before"))
    return (
        spans.withColumn("twice_before", twice_before)
        .withColumn("before", before)
        .select(
            *QUEUE, F.explode(F.array_compact(F.array(own, F.when(is_hole, hole)))).alias("one")
        )
        .select(*QUEUE, "one.*")
        .where(~F.coalesce(F.col("class").isin("BLOCK", "STRAY"), F.lit(False)))
    )


def _with_damage(trouble: Frame, tables: Tables) -> Frame:
    """`fault_position`: the damage of the log in whose bytes a lost record was, or which is between
    the records around a hole."""
    damage = (
        tables.faults.where(F.col("kind").isin(*HIDING) & F.col("position").isNotNull())
        .groupBy(F.col("store").alias("fault_store"), F.col("position").alias("fault_begin"))
        .agg(F.max(F.coalesce("size", F.lit(1))).alias("size"))
        .withColumn(
            "fault_end", F.try_add(F.col("fault_begin"), F.greatest(F.col("size"), F.lit(1)))
        )
    )
    is_lost, is_hole = F.col("class") == "LOST", F.col("class") == "HOLE"
    begin, end = F.col("fault_begin"), F.col("fault_end")
    first, last = F.col("first_position"), F.col("last_position")
    explains = (is_lost & (begin <= first) & (end > first)) | (
        is_hole & (begin < last) & (end > first)
    )
    return (
        trouble.join_where(
            F.broadcast(damage), [F.col("store") == F.col("fault_store"), explains], "left"
        )
        .groupBy(*_SPAN)
        .agg(F.min("fault_begin").alias("fault_position"))
    )


def _summed(trouble: Frame) -> Frame:
    return trouble.groupBy(*QUEUE, "class", "fault_position").agg(
        F.try_sum("messages").alias("messages"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.min("first_position").alias("first_position"),
        F.max("last_position").alias("last_position"),
        F.min_by("detail", "first_offset").alias("detail"),
    )
