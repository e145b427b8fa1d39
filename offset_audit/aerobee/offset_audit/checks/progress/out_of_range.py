"""The checks of `rules.out_of_range`.

A cut or missing file of a consume queue moves the queue's ends while the messages are still in the
log: another check reports that, so the ends of the log, if they were read, count too.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.progress.history import KEY
from aerobee.offset_audit.checks.progress.judged import QUEUE, judged
from aerobee.offset_audit.checks.progress.replicas import REPLICA
from aerobee.offset_audit.checks.progress.telling import check_of
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules import out_of_range as rules
from aerobee.offset_audit.tables import Tables


def _held(tables: Tables, limits: Limits) -> Frame:
    """Judged rows with `held_min` and `held_end`: the start and end of what queue and log
    contain."""
    rows = judged(tables, limits).where(
        "committed_offset < min_offset or committed_offset > max_offset"
    )
    logs = (
        tables.queue_ranges.where("source = 'LOG'")
        .groupBy(*REPLICA, "topic", "queue_id")
        .agg(F.named("min(first_offset) log_min"), F.named("try_add(max(last_offset), 1L) log_end"))
    )
    return rows.join(logs, [*QUEUE, "broker_id"], "left").withColumns(
        {
            "held_min": F.expr("least(min_offset, log_min)"),
            "held_end": F.expr("greatest(max_offset, log_end)"),
        }
    )


def _told(tables: Tables, limits: Limits) -> Frame:
    """With `told_offset`: the group's last offset in the journal."""
    told = (
        tables.journal.where("kind not in ('sentBack', 'resent', 'returned')")
        .groupBy(*KEY)
        .agg(F.named("max_by(offset, struct(journal_offset, entry)) told_offset"))
    )
    return _held(tables, limits).join(told, list(KEY), "left")


OUT_OF_RANGE_LOW = check_of(rules.OUT_OF_RANGE_LOW, _told)
OUT_OF_RANGE_HIGH = check_of(rules.OUT_OF_RANGE_HIGH, _held)
