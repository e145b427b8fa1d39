"""SET_ASIDE: transactions that no producer ended, and that wait for an operator."""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Limits, Severity
from aerobee.offset_audit.checks.data.stores import STORE, store_check
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import phrase
from aerobee.offset_audit.tables import Tables


def _set_aside(tables: Tables, limits: Limits) -> Frame:
    """One finding for each store that has some."""
    return (
        tables.pending.where("kind = 'ASIDE' and not coalesce(resolved, false)")
        .groupBy(*STORE, "topic", "queue_id")
        .agg(
            "count(1) messages",
            "min_by(struct(queue_offset, unique_key, real_topic, store_ms), queue_offset) first",
        )
    )


SET_ASIDE = store_check(
    "SET_ASIDE",
    "Transactions were set aside, and nobody has decided them.",
    _set_aside,
    severity=Severity.WARNING,
    evidence=phrase(
        "{messages|transaction waits|transactions wait} for an operator, since no "
        "producer said how it ends; the first, queue offset {first.queue_offset} "
        "of {topic}, id {id}, for topic {target}, was set aside at "
        "{first.store_ms|instant}; store {store}.",
        id="coalesce(first.unique_key, 'unknown')",
        target="coalesce(first.real_topic, 'unknown')",
    ),
    command="aerobee transaction list --set-aside",
    needs={"pending": "bool_or(kind = 'ASIDE' and not coalesce(resolved, false))"},
)
