"""What a run makes of the kind `summaries`, and what it must know about stores besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from aerobee.offset_audit.frames import functions as columns
from aerobee.offset_audit.frames.frame import Engine, Frame
from aerobee.offset_audit.sources.store.files import log_segments
from aerobee.offset_audit.sources.store.folders import Origin, find_stores
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts, store_facts
from aerobee.offset_audit.sources.store.ranges_rows import COLUMNS, SUMMARY_TABLES
from aerobee.offset_audit.tables import ORIGIN

_Facts: TypeAlias = Mapping[str, StoreFacts]


def split_summaries(rows: Frame) -> dict[str, Frame]:
    """The tables of kind `summaries` by name; persist `rows` first, or each is a separate
    reading."""
    return {
        table: rows.where(columns.col("table") == table).select(*COLUMNS[table].names)
        for table in SUMMARY_TABLES
    }


def facts_of(options: Sequence[StoreOptions]) -> dict[str, StoreFacts]:
    """What drills need to know about stores, by their roots. Runs on the driver."""
    return {
        store.root: store_facts(store, delays_ms=one.delays_ms, index_slots=one.index_slots)
        for one in options
        for store in find_stores(one.paths, one.names)
    }


def log_begins(engine: Engine, facts: _Facts) -> Frame:
    """`store` and `log_begin`, from the names of the segments that are there now."""
    found = [
        (root, segments[0].base)
        for root, one in facts.items()
        if (segments := log_segments(one.store))
    ]
    return engine.frame("store string, log_begin long", found)


def first_whole_minutes(engine: Engine, facts: _Facts) -> Frame:
    """The origin of each store, and `whole_from`: the first minute for which its log is
    complete."""
    found: dict[Origin, int] = {}
    for one in facts.values():
        origin = one.store.origin
        found[origin] = max(found.get(origin, 0), one.whole_minutes[0])
    rows = [
        (origin.cluster, origin.broker_name, origin.broker_id, minute)
        for origin, minute in found.items()
    ]
    return engine.frame(f"{ORIGIN}, whole_from long", rows)
