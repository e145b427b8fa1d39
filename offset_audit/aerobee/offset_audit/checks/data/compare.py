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
from aerobee.offset_audit.checks.data.blocks import OF_QUEUE, QUEUE, READ, UNLISTED, judged_blocks
from aerobee.offset_audit.checks.data.fault_kinds import HIDING
from aerobee.offset_audit.checks.data.stores import STORE, still_there
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.tables import Tables
from aerobee.store.format.tags import SCHEDULE_TOPIC

_EXT_ADDRESS_END: Final = -(1 << 31)
"""Below this, a tags code is an address in Apache's queue extension."""

TROUBLE: Final = """cluster string, broker_name string, broker_id int, store string, topic string,
queue_id int, class string, messages long, first_offset long, last_offset long,
first_position long, last_position long, fault_position long, detail string"""

_SPAN: Final = (
    *("class", "messages", "first_offset", "last_offset", "first_position", "last_position"),
    "detail",
)
_QUEUE: Final = ", ".join(QUEUE)


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
        blocks.where(f"verdict = '{READ}'").select(
            *STORE, "topic", "queue_id", "block", "first_position", "last_position"
        )
    )
    # Evaluated after the rows were read, for them and their blocks alike.
    begins = None if tables.log_begins is None else tables.log_begins()
    blocks = still_there(blocks, begins, "last_position")
    messages = _paired(_single(still_there(rows, begins, "position")))
    spans = _with_holes(_missed_only(messages.unionByName(_spans(blocks))))
    return _summed(_with_damage(spans.where("class is not null"), tables))


# Of tags codes, delivery times by delay levels may have been configured differently since.
_CLASS: Final = f"""case when main is null then 'LOST' when entry is null then 'UNLISTED'
    when main.position <> entry.position or main.size <> entry.size then 'BAD_ENTRY'
    when main.tags_code <> entry.tags_code and topic <> '{SCHEDULE_TOPIC}'
        and entry.tags_code >= {_EXT_ADDRESS_END} then 'TAGS_CODE' end"""
_DIFFERENCE: Final = """if(main is not null and entry is not null, format_string(
    'the entry says byte %d, size %d, tags code %d, the record byte %d, size %d, tags code %d',
    entry.position, entry.size, entry.tags_code, main.position, main.size, main.tags_code), null)"""
_OWN: Final = f"""named_struct('class', {_CLASS},
    'position', coalesce(entry.position, main.position), 'store_ms', main.store_ms,
    'detail', {_DIFFERENCE})"""
_FURTHER: Final = """transform(filter(records, one -> one.position <> main.position),
    one -> named_struct('class', 'DUPLICATE', 'position', one.position, 'store_ms', one.store_ms,
        'detail', concat('the other record is at byte ', cast(main.position as string))))"""


def _single(rows: Frame) -> Frame:
    """A row for each queue offset, and for each further record with it; a null class is sound."""
    record = "struct(position, size, tags_code, store_ms)"
    return (
        rows.groupBy(*QUEUE, "queue_offset")
        .agg(
            f"sort_array(collect_list(if(source = 'LOG', {record}, null))) records",
            f"first(if(source = 'ENTRIES', {record}, null), true) entry",
        )
        # Of several records, the one that the queue lists counts.
        .withColumn(
            "main",
            "coalesce(get(filter(records, one -> one.position = entry.position), 0),"
            " get(records, 0))",
        )
        .selectExpr(
            *QUEUE,
            "queue_offset",
            f"explode(concat(array({_OWN}), coalesce({_FURTHER}, array()))) one",
        )
        .select(*QUEUE, "queue_offset", "one.*")
    )


def _paired(messages: Frame) -> Frame:
    """Records to which no entry of their own points, paired with entries that have no record: if
    both are at one position, the record's header changed, and that is one problem, not two.

    The entry knows which message it was: its row becomes HEADER, the record's STRAY. But a record
    that took another one's queue offset is a DUPLICATE, and explains the offset that it left; for
    now it is TWICE if no entry points to it.
    """
    at_place = f"over (partition by {', '.join(STORE)}, position)"
    says = """format_string('the record says %s, queue %d, queue offset %d',
        topic, queue_id, queue_offset)"""
    return messages.withColumns(
        {
            "lost_here": f"count_if(class = 'LOST') {at_place}",
            "twice_here": f"count_if(class = 'DUPLICATE') {at_place}",
            "said": f"max(if(class = 'UNLISTED', {says}, null)) {at_place}",
        }
    ).selectExpr(
        *QUEUE,
        """case when class = 'LOST' and twice_here > 0 then null
            when class = 'LOST' and said is not null then 'HEADER'
            when class = 'UNLISTED' and lost_here > 0 then 'STRAY'
            when class = 'DUPLICATE' and lost_here = 0 then 'TWICE' else class end class""",
        "cast(1 as long) messages",
        "queue_offset first_offset",
        "queue_offset last_offset",
        "position first_position",
        "position last_position",
        "if(class = 'LOST' and said is not null, said, detail) detail",
        "store_ms",
        *(f"cast(null as {kind}) {name}" for name, kind in _OF_QUEUE.items()),
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
    return blocks.selectExpr(
        *QUEUE,
        f"""case verdict when '{READ}' then 'BLOCK' when '{UNLISTED}' then 'UNLISTED' end class""",
        "log_messages messages",
        "first_offset",
        "last_offset",
        "first_position",
        "last_position",
        "cast(null as string) detail",
        "last_store_ms store_ms",
        *_OF_QUEUE,
    )


_IS_MISSED: Final = "(store_ms <= until_ms and first_offset >= removed_below and not is_deleted)"
_IS_BEFORE: Final = "last_position < listed_position"
_IS_TWICE: Final = "class in ('DUPLICATE', 'TWICE')"
_IS_EARLIER_LIFE: Final = f"coalesce({_IS_BEFORE} and first_offset > queue_entry_first, false)"


def _missed_only(spans: Frame) -> Frame:
    """Without records that need no entry: too young, removed, of deleted topics.

    A topic that Apache's broker deleted and recreated counts from 0 again. A record that is before
    everything the queue lists, but has a higher offset than its first entry, belongs to the earlier
    life: lost entries have lower ones. The same holds for further records that are all before it; a
    single one may also have been changed, but then an entry still points to it, or nothing lists
    what it was.
    """
    return (
        spans.withColumns({name: f"max({name}) {OF_QUEUE}" for name in _OF_QUEUE})
        .withColumns(
            {
                "twice": f"count_if({_IS_TWICE}) {OF_QUEUE}",
                "twice_before": f"count_if({_IS_TWICE} and coalesce({_IS_BEFORE}, false))"
                f" {OF_QUEUE}",
                "unlisted": f"count_if(class = 'UNLISTED') {OF_QUEUE}",
            }
        )
        .withColumn(
            "class",
            f"""case
                when {_IS_TWICE} and twice = twice_before
                    and (twice > 1 or (class = 'TWICE' and unlisted = 0)) then 'AGAIN'
                when {_IS_TWICE} then 'DUPLICATE'
                when class = 'UNLISTED' and {_IS_EARLIER_LIFE} then 'STRAY'
                when class = 'UNLISTED' and {_IS_MISSED} and is_former then 'FORMER'
                when class <> 'UNLISTED' or {_IS_MISSED} then class end""",
        )
        .drop("twice", "twice_before", "unlisted")
    )


_IS_THERE: Final = """not coalesce(
    class in ('BLOCK', 'STRAY', 'DUPLICATE', 'AGAIN', 'FORMER'), false)"""
_MISSING: Final = "try_subtract(try_subtract(first_offset, before.last_offset), 1)"
_HOLE: Final = f"""named_struct('class', 'HOLE', 'messages', {_MISSING},
    'first_offset', try_add(before.last_offset, 1), 'last_offset', try_subtract(first_offset, 1),
    'first_position', before.last_position, 'last_position', first_position,
    'detail', cast(null as string))"""


def _with_holes(spans: Frame) -> Frame:
    """One more row for queue offsets that neither side has, between others, with the log positions
    around them. A record in between that has another's queue offset is the missing one."""
    here = "struct(first_offset, last_offset, last_position, twice_before)"
    is_hole = f"{_IS_THERE} and {_MISSING} > 0 and twice_before = before.twice_before"
    return (
        spans.withColumn(
            "twice_before",
            f"""count_if(class = 'DUPLICATE') over (partition by {_QUEUE} order by last_position
                range between unbounded preceding and current row)""",
        )
        .withColumn(
            "before",
            f"""last(if({_IS_THERE}, {here}, null), true) over (partition by {_QUEUE}
                order by first_offset, last_offset
                rows between unbounded preceding and 1 preceding)""",
        )
        .selectExpr(
            *QUEUE,
            f"""explode(array_compact(array(struct({", ".join(_SPAN)}),
                if({is_hole}, {_HOLE}, null)))) one""",
        )
        .select(*QUEUE, "one.*")
        .where("not coalesce(class in ('BLOCK', 'STRAY'), false)")
    )


def _with_damage(trouble: Frame, tables: Tables) -> Frame:
    """`fault_position`: the damage of the log in whose bytes a lost record was, or which is between
    the records around a hole."""
    damage = (
        tables.faults.where(f"kind in {HIDING} and position is not null")
        .selectExpr("store fault_store", "position fault_begin", "size")
        .groupBy("fault_store", "fault_begin")
        .agg("try_add(fault_begin, greatest(max(coalesce(size, 1)), 1)) fault_end")
    )
    explains = F.expr(
        "(class = 'LOST' and fault_begin <= first_position and fault_end > first_position)"
        " or (class = 'HOLE' and fault_begin < last_position and fault_end > first_position)"
    )
    same_store = F.col("store") == F.col("fault_store")
    return (
        trouble.join_where(F.broadcast(damage), [same_store, explains], "left")
        .groupBy(*QUEUE, *_SPAN)
        .agg("min(fault_begin) fault_position")
    )


def _summed(trouble: Frame) -> Frame:
    return trouble.groupBy(*QUEUE, "class", "fault_position").agg(
        "try_sum(messages) messages",
        "min(first_offset) first_offset",
        "max(last_offset) last_offset",
        "min(first_position) first_position",
        "max(last_position) last_position",
        "min_by(detail, first_offset) detail",
    )
