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
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.names import IS_SYSTEM_GROUP, JOURNAL_TOPIC
from aerobee.offset_audit.tables import Tables

_TOPIC: Final = [*ORIGIN, "topic"]
_BLOCK: Final = [*ORIGIN, "journal_block"]
_READER: Final = [*ORIGIN, "group", "topic"]
_MINUTE_MS: Final = 60_000
_UP_TO_NOW: Final = "rows between unbounded preceding and current row"


def too_many_deliveries(tables: Tables) -> Frame:
    """Minutes by whose end a group had been given more of a topic than the store contained: ORIGIN,
    topic, group, minute, `claimed`, `stored`."""
    stored = _stored_by(tables)
    minutes = stored.selectExpr(*_TOPIC, "minute stored_minute", "ends")
    # The topic's last minute with messages, up to that of the commit; before all of them: none.
    return (
        _delivered_by(tables, stored)
        .join(minutes, _TOPIC)
        .groupBy(*_READER, "minute", "claimed")
        .agg(
            """max_by(if(stored_minute <= minute, ends, null),
                if(stored_minute <= minute, stored_minute, null)) stored"""
        )
        .where("claimed > stored")
    )


def _stored_by(tables: Tables) -> Frame:
    """By topic and minute with messages: `ends`, the sum of its queues' ends when the minute ended.
    Counted back from the log's end, which every message moved by one."""
    return (
        tables.minutes.where("tier = 'STORED'")
        .groupBy(*_TOPIC, "minute")
        .agg("try_sum(messages) messages")
        .join(_whole_topics(tables), _TOPIC)
        .withColumn(
            "since",
            f"""try_sum(messages) over (partition by {", ".join(_TOPIC)}
                order by minute desc nulls last {_UP_TO_NOW})""",
        )
        .withColumn("ends", "try_add(try_subtract(topic_end, since), messages)")
        .select(*_TOPIC, "minute", "ends", "messages")
    )


def _whole_topics(tables: Tables) -> Frame:
    """`topic_end`: the sum of the ends of a topic's queues according to the log, for topics of
    which the log has all messages between the first and the last of each queue, each once and in
    order."""
    queue = [*_TOPIC, "queue_id"]
    before = f"""lag(last_position) over (partition by {", ".join(queue)} order by first_offset)"""
    return (
        _whole_stores(tables, tables.queue_ranges.where("source = 'LOG'"))
        .withColumn("is_after", f"coalesce({before} < first_position, true)")
        .groupBy(*queue)
        .agg(
            "try_add(max(last_offset), 1) queue_end",
            """bool_and(is_after) and try_sum(disorders) = 0 and try_sum(messages) =
                try_add(try_subtract(max(last_offset), min(first_offset)), 1) is_whole""",
        )
        .groupBy(*_TOPIC)
        .agg("try_sum(queue_end) topic_end", "bool_and(is_whole) is_whole")
        .where("is_whole")
        .drop("is_whole")
    )


def _whole_stores(tables: Tables, rows: Frame) -> Frame:
    """Rows of stores whose own journal was read, and in whose log the minute never falls."""
    spoke = tables.brokers.where("answered and role <> 'STORE'").select(*ORIGIN)
    before_ms = "try_add(store_ms, back_ms)"
    fallen = tables.faults.where(
        f"""kind = '{fault_kinds.BAD_TIME}' or (kind = '{fault_kinds.TIME_BACKWARD}'
            and not coalesce(
                store_ms div {_MINUTE_MS} = floor({before_ms} / {_MINUTE_MS}), false))"""
    ).select(*ORIGIN)
    return rows.join(F.broadcast(spoke.unionByName(fallen).distinct()), ORIGIN, "left_anti")


def _delivered_by(tables: Tables, stored: Frame) -> Frame:
    """By group, topic and minute with commits: `claimed`, the sum of the group's highest offsets
    when the minute ended, for queues with messages in the log."""
    queues = tables.queue_ranges.where("source = 'LOG'").select(*_TOPIC, "queue_id")
    reader = ", ".join(_READER)
    of_queue = f"max(offset) over (partition by {reader}, queue_id order by minute"
    earlier = f"{of_queue} rows between unbounded preceding and 1 preceding)"
    return (
        tables.journal.where(f"kind = 'commit' and not {IS_SYSTEM_GROUP}")
        .join(F.broadcast(queues.distinct()), [*_TOPIC, "queue_id"], "left_semi")
        .withColumn("journal_block", f"journal_offset div {BLOCK_RECORDS}")
        .join(_journal_minutes(stored), _BLOCK)
        .where("journal_offset >= records_begin and journal_offset < records_end")
        .groupBy(*_READER, "queue_id", "minute")
        .agg("max(offset) offset")
        .withColumn("delivered", f"try_subtract({of_queue} {_UP_TO_NOW}), coalesce({earlier}, 0))")
        .groupBy(*_READER, "minute")
        .agg("try_sum(delivered) delivered")
        .selectExpr(
            *_READER,
            "minute",
            f"""try_sum(delivered) over (partition by {reader} order by minute {_UP_TO_NOW})
                claimed""",
        )
    )


def _journal_minutes(stored: Frame) -> Frame:
    """The journal records stored in each minute, once for each block that they are in, so that
    commits can be joined by equality."""
    return (
        stored.where(f"topic = '{JOURNAL_TOPIC}'")
        .selectExpr(
            *ORIGIN, "minute", "try_subtract(ends, messages) records_begin", "ends records_end"
        )
        .where("records_begin >= 0 and records_begin < records_end")
        .selectExpr(
            *ORIGIN,
            "minute",
            "records_begin",
            "records_end",
            f"""explode(sequence(records_begin div {BLOCK_RECORDS},
                (records_end - 1) div {BLOCK_RECORDS})) journal_block""",
        )
    )
