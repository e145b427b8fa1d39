"""Offsets outside what a queue holds, as far as the log itself does not say otherwise.

A cut or missing file of a consume queue moves the queue's ends while the messages are still in the
log: that is another check's finding, so the ends of the log, where they were read, count too.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.progress.judged import QUEUE, judged
from aerobee.offset_audit.checks.progress.replicas import REPLICA
from aerobee.offset_audit.tables import Tables


def outside(tables: Tables, limits: Limits) -> DataFrame:
    """Judged rows whose offset lies outside their queue, with `held_min` and `held_end`: where what
    queue and log hold begins and ends. Rows whose lag cannot be said are left out."""
    rows = judged(tables, limits).filter(
        """(committed_offset < min_offset or committed_offset > max_offset)
        and not is_broadcasting and not is_gone
        and (lag >= 0 or role = 'STORE'
            or not coalesce(commit_read_at_ms > queue_read_at_ms, false))"""
    )
    logs = (
        tables.queue_ranges.filter("source = 'LOG'")
        .groupBy(*REPLICA, "topic", "queue_id")
        .agg(F.expr("min(first_offset) log_min"), F.expr("try_add(max(last_offset), 1L) log_end"))
    )
    return rows.join(logs, [*QUEUE, "broker_id"], "left").withColumns(
        {
            "held_min": F.expr("least(min_offset, log_min)"),
            "held_end": F.expr("greatest(max_offset, log_end)"),
        }
    )
