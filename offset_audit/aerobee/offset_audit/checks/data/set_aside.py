"""SET_ASIDE: transactions that no producer ended, and that wait for an operator."""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.stores import STORE, with_roles
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import phrase
from aerobee.offset_audit.tables import Tables


def _set_aside(tables: Tables, limits: Limits) -> Frame:
    """One finding for each store that has some."""
    found = (
        tables.pending.where("kind = 'ASIDE' and not coalesce(resolved, false)")
        .groupBy(*STORE, "topic", "queue_id")
        .agg(
            "count(1) messages",
            "min_by(struct(queue_offset, unique_key, real_topic, store_ms), queue_offset) first",
        )
    )
    return finding_rows(
        with_roles(found, tables),
        "SET_ASIDE",
        severity=Severity.WARNING,
        evidence=phrase(
            "{messages|transaction waits|transactions wait} for an operator, since no "
            "producer said how it ends; the first, queue offset {first.queue_offset} "
            "of {topic}, id {id}, for topic {target}, was set aside at "
            "{first.store_ms|instant}; store {store}.",
            id="coalesce(first.unique_key, 'unknown')",
            target="coalesce(first.real_topic, 'unknown')",
        ),
        affected="messages",
        command="aerobee transaction list --set-aside",
    )


SET_ASIDE = Check(
    "SET_ASIDE",
    "Transactions were set aside, and nobody has decided them.",
    _set_aside,
    is_deep=True,
    needs={"pending": "bool_or(kind = 'ASIDE' and not coalesce(resolved, false))"},
)
