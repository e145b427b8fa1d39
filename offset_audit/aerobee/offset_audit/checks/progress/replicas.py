"""Which replica's report counts for a broker group, and as of which moment.

The master's; if none answered, that of the slave that is furthest, and its rows say so; of stores
at rest the one with the longest log. Of two masters, the one of the newer epoch.

There are as many as broker groups, so they go through the driver: everything else that a run reads
is joined with them, and each such join then has only a few rows at hand on one side.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.names import JOURNAL_TOPIC
from aerobee.offset_audit.tables import Tables

BROKER: Final = ("cluster", "broker_name")
REPLICA: Final = (*BROKER, "broker_id")
_COLUMNS: Final = """cluster string, broker_name string, broker_id int, role string, epoch long,
as_of_ms long, has_topics boolean, journal_begin_ms long, journal_end_ms long,
journal_end_offset long"""


def judging_replicas(tables: Tables, limits: Limits) -> Frame:
    """The run's table, if made already; otherwise made now."""
    return tables.replicas if tables.replicas is not None else find_replicas(tables, limits)


def find_replicas(tables: Tables, limits: Limits) -> Frame:
    """One row for each broker group: cluster, broker_name, broker_id, role, epoch, and

    `as_of_ms`: the moment of its reading by the broker's clock. A store at rest has not changed
    since its newest message, so that is its moment: its age is not lag.
    `has_topics`: whether its table of topics was read at all.
    `journal_begin_ms`: from when on the journal has everything. `journal_end_ms`: its newest entry;
    both null: it was not read.
    `journal_end_offset`: the end of the journal's queue, as read together with the queues.
    """
    best = f"""partition by {", ".join(BROKER)}
        order by case role when 'MASTER' then 0 when 'STORE' then 1 else 2 end,
        epoch desc nulls last, dispatched_end desc nulls last, confirmed_end desc nulls last,
        appended_end desc nulls last, broker_id"""
    # Between a broker that answered and its files, the broker counts.
    spoke = tables.brokers.where("answered and role <> 'STORE'").select(*REPLICA).distinct()
    heard = tables.brokers.where("coalesce(answered, true)")
    chosen = (
        heard.where("coalesce(role, '') <> 'STORE'")
        .unionByName(
            heard.where("role = 'STORE'").join(F.broadcast(spoke), list(REPLICA), "leftanti")
        )
        .withColumn("place", f"row_number() over ({best})")
        .where("place = 1")
    )
    latest_ms = limits.now_ms + limits.clock_skew_ms
    of_journal = f"topic = '{JOURNAL_TOPIC}'"
    parts = [
        tables.queues.groupBy(*REPLICA).agg(
            # A flipped bit turns a time into any other: one in the future is ignored.
            f"max(if(last_store_ms <= {latest_ms}, last_store_ms, null)) newest_ms",
            f"max(if({of_journal}, min_offset, null)) journal_min_offset",
            f"max(if({of_journal}, max_offset, null)) journal_end_offset",
        ),
        tables.topics.select(*REPLICA, F.lit(True).alias("has_topics")).distinct(),
        tables.journal.groupBy(*REPLICA).agg(
            "min(timestamp_ms) first_ms",
            "min(journal_offset) first_journal_offset",
            "max(timestamp_ms) journal_end_ms",
        ),
    ]
    for part in parts:
        chosen = chosen.join(F.broadcast(part), list(REPLICA), "left")
    read_at = f"coalesce(commits_read_at_ms, ends_read_at_ms, {limits.now_ms})"
    found = chosen.selectExpr(
        *REPLICA,
        "role",
        "epoch",
        f"if(role = 'STORE', coalesce(newest_ms, {read_at}), {read_at}) as_of_ms",
        "coalesce(has_topics, false) has_topics",
        # What a live broker was asked for starts in the middle of its journal.
        f"""case when first_journal_offset = 0 then 0L
            when role <> 'STORE' and first_journal_offset > journal_min_offset
                then least(first_ms, {read_at} - {limits.reset_ms})
            else first_ms end journal_begin_ms""",
        "journal_end_ms",
        "journal_end_offset",
    ).collect()
    return tables.brokers.engine.frame(_COLUMNS, [list(row.values()) for row in found])


def of_replicas(rows: Frame, replicas: Frame) -> Frame:
    """The rows from these replicas."""
    return rows.join(F.broadcast(replicas.select(*REPLICA)), list(REPLICA), "leftsemi")
