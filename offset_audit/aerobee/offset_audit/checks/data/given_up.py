"""GIVEN_UP: messages that were due, but that their broker set aside instead of delivering.

Reported while the timer journal has it, until retention removes that part of the log.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Limits, Severity
from aerobee.offset_audit.checks.data.overdue import ID_AND_TARGET
from aerobee.offset_audit.checks.data.stores import ORIGIN, STORE, store_check
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import phrase
from aerobee.offset_audit.tables import Tables


def _given_up(tables: Tables, limits: Limits) -> Frame:
    """One finding for each queue of the system topics. If all were for topics that no longer exist,
    this was intended: a warning."""
    topics = tables.topics.selectExpr(*ORIGIN, "topic real_topic", "true is_there").distinct()
    return (
        tables.pending.where("kind = 'GIVEN_UP'")
        .join(F.broadcast(topics), [*ORIGIN, "real_topic"], "left")
        .groupBy(*STORE, "topic", "queue_id")
        .agg(
            "count(1) messages",
            "bool_or(coalesce(is_there, real_topic is null)) is_wrong",
            "min_by(struct(queue_offset, unique_key, real_topic, due_ms, reason), queue_offset)"
            " first",
        )
    )


GIVEN_UP = store_check(
    "GIVEN_UP",
    "Delayed messages were set aside instead of being delivered.",
    _given_up,
    severity=f"if(is_wrong, '{Severity.ERROR}', '{Severity.WARNING}')",
    evidence=phrase(
        "{messages|message of |messages of }{topic}/{queue_id} could not be "
        "delivered and will not be; the first, queue offset "
        "{first.queue_offset}{id_and_target}, was due at {first.due_ms|instant}: "
        "{first.reason}; store {store}.",
        id_and_target=ID_AND_TARGET,
    ),
    needs={"pending": "bool_or(kind = 'GIVEN_UP')"},
)
