"""INDEX_MISSING: keys of records that a search would not find, and damage of the index files.

Damage of the index is reported here, not as CORRUPT, because its cost is keys: one finding for each
store covers both.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits, Severity
from aerobee.offset_audit.checks.data import fault_kinds
from aerobee.offset_audit.checks.data.stores import (
    ORIGIN,
    STORE,
    still_there,
    store_check,
    whole_until,
)
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

_MISSING = """cluster string, broker_name string, broker_id int, store string, keys long,
first_position long, last_position long, topics array<string>"""
_TOPICS_NAMED_MAX = 3
_KEYS_TOLD: Final = either(
    "keys > 0",
    "A search would not find {keys|key|keys} of records between byte {first_position} and "
    "{last_position} of the log, topics {named}{more}",
    "Every key is found, but the index is damaged",
    named=f"coalesce(array_join(slice(topics, 1, {_TOPICS_NAMED_MAX}), ', '), '?')",
    more=either(
        f"size(topics) > {_TOPICS_NAMED_MAX}", f" and {{size(topics) - {_TOPICS_NAMED_MAX}}} more"
    ),
)
_FAULT_TOLD: Final = either(
    "faults > 0",
    "; {fault.kind} in {fault.file}{place}{why}{others}",
    place=either("fault.position is not null", " at byte {fault.position}"),
    why=either("fault.detail is not null", " ({fault.detail})"),
    others=either("faults > 1", " and {faults - 1} more"),
)


def _found(tables: Tables, limits: Limits) -> Frame:
    """One finding for each store."""
    missing = _missing(tables, limits)
    damage = (
        tables.faults.where(f"startswith(kind, '{fault_kinds.INDEX_PREFIX}')")
        .groupBy(*STORE)
        .agg(
            "count(1) faults",
            "min_by(struct(kind, file, position, detail), struct(file, position)) fault",
        )
    )
    return missing.join(damage, STORE, "full")


def _missing(tables: Tables, limits: Limits) -> Frame:
    """Keys that are in the log but not in the index, by store."""
    if tables.key_rows is None:
        return tables.brokers.engine.frame(_MISSING, [])
    differing = (
        tables.index_ranges.groupBy(*STORE, "block")
        .agg(
            *(
                f"sum(if(source = '{source}', {column}, null)) {source}_{column}"
                for source in ("LOG", "INDEX")
                for column in ("keys", "digest")
            )
        )
        .where("LOG_keys > 0 and not (LOG_keys <=> INDEX_keys and LOG_digest <=> INDEX_digest)")
        .select(*STORE, "block")
    )
    until = F.broadcast(whole_until(tables, limits, "keys_until_ms"))
    rows = tables.key_rows(differing)
    begins = None if tables.log_begins is None else tables.log_begins()
    return (
        still_there(rows, begins, "position")
        .groupBy(*STORE, "position", "key_hash")
        .agg(
            "count_if(source = 'LOG') in_log",
            "count_if(source = 'INDEX') in_index",
            "max(store_ms) store_ms",
            "max(topic) topic",
        )
        .where("in_log > 0 and in_index = 0")
        .join(until, ORIGIN, "left")
        .where(f"store_ms <= coalesce(until_ms, {limits.now_ms - limits.settle_ms})")
        .groupBy(*STORE)
        .agg(
            "count(1) keys",
            "min(position) first_position",
            "max(position) last_position",
            "sort_array(collect_set(topic)) topics",
        )
    )


CHECK = store_check(
    "INDEX_MISSING",
    "Keys of messages are not found by a search.",
    _found,
    severity=Severity.ERROR,
    evidence=phrase("{keys}{fault}; store {store}.", keys=_KEYS_TOLD, fault=_FAULT_TOLD),
    affected="coalesce(keys, 0)",
    command="aerobee store repair --rebuild-index {store}",
    needs={
        "index_ranges": "count(1) > 0",
        "faults": f"bool_or(startswith(kind, '{fault_kinds.INDEX_PREFIX}'))",
    },
)
