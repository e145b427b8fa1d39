"""All kinds of rows of `aerobee.store`, by name: what they plan, and what they read. Without Spark.

`summaries` are all tables of one reading of a store's bytes, and `snapshot` all tables that a store
keeps of itself; each of these tables is also a kind of its own name. A partition of a log's
summaries is a whole number of the grid's ranges, and contains what its reader must know about its
store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

from aerobee.offset_audit.sources.store import entry_rows, record_rows
from aerobee.offset_audit.sources.store.columns import Columns, together
from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.config_rows import (
    CONFIG_TABLES,
    ConfigReading,
    config_batches,
)
from aerobee.offset_audit.sources.store.entry_rows import ENTRIES, EntryReading, entry_batches
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.plan import (
    LogPiece,
    Partition,
    QueuePiece,
    StorePiece,
    plan_index,
    plan_log,
    plan_queue_ends,
    plan_queues,
    plan_stores,
)
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts, store_facts
from aerobee.offset_audit.sources.store.ranges_reading import (
    FolderWork,
    IndexWork,
    LogWork,
    PendingWork,
    QueueWork,
    Work,
    rows_of,
)
from aerobee.offset_audit.sources.store.ranges_rows import (
    COLUMNS,
    FAULTS,
    INDEX_RANGES,
    PENDING,
    QUEUE_RANGES,
    SUMMARIES,
    SUMMARY_COLUMNS,
    SUMMARY_TABLES,
    of_columns,
)
from aerobee.offset_audit.sources.store.record_columns import BODY, BODY_SOUND, RECORDS
from aerobee.offset_audit.sources.store.record_rows import RecordReading, record_batches
from aerobee.offset_audit.tables import LOG_RANGE_BYTES
from aerobee.runtime.clock import SystemClock

SNAPSHOT: Final = "snapshot"
_OF_INDEX: Final = frozenset({INDEX_RANGES, FAULTS})
_ORIGIN: Final = frozenset({"cluster", "broker_name", "broker_id"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a kind."""

    options: StoreOptions
    columns: Columns
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of rows."""

    columns: Columns
    """All there are."""
    plan: Callable[[Sequence[StoreFolder], Wanted], list[Partition[Any]]]
    """What executors read; runs on the driver."""
    batches: Callable[[Partition[Any], Wanted], Iterator[Any]]
    """pyarrow.RecordBatches of `wanted.columns`; runs on executors."""
    condition_columns: frozenset[str] = frozenset()
    """Columns whose conditions the reader takes over completely; Spark checks all others itself."""

    def default_columns(self, options: StoreOptions) -> Columns:
        """For a user who asked for none."""
        asked_for = {BODY: options.bodies, BODY_SOUND: options.check_bodies}
        return self.columns.without(*(name for name, wanted in asked_for.items() if not wanted))


# ------------------------------------------------------------------ records and entries


def _plan_records(stores: Sequence[StoreFolder], wanted: Wanted) -> list[Partition[LogPiece]]:
    partition_bytes = wanted.options.partition_bytes
    return plan_log(stores, partition_bytes=partition_bytes, reach=wanted.conditions.reach)


def _record_batches(partition: Partition[LogPiece], wanted: Wanted) -> Iterator[Any]:
    options = wanted.options
    reading = RecordReading(
        wanted.columns,
        wanted.conditions,
        decompress=options.decompress,
        delays_ms=options.delays_ms,
        record_bytes_max=options.record_bytes_max,
    )
    for piece in partition.pieces:
        yield from record_batches(piece, reading)


def _plan_entries(stores: Sequence[StoreFolder], wanted: Wanted) -> list[Partition[QueuePiece]]:
    return plan_queues(
        stores,
        partition_bytes=wanted.options.partition_bytes,
        is_wanted=wanted.conditions.accepts_queue,
    )


def _entry_batches(partition: Partition[QueuePiece], wanted: Wanted) -> Iterator[Any]:
    reading = EntryReading(wanted.columns, wanted.conditions)
    for piece in partition.pieces:
        yield from entry_batches(piece, reading)


# ------------------------------------------------------------------ a store's own tables


def _config_kind(table: str) -> Kind:
    is_of_queues = table in ("queues", "commits")
    return Kind(
        COLUMNS[table],
        _plan_shares if table == "queues" else lambda stores, _: plan_stores(stores),
        partial(_config_batches, (table,)),
        _ORIGIN | {"topic", "queue_id"} if is_of_queues else _ORIGIN,
    )


def _plan_shares(stores: Sequence[StoreFolder], wanted: Wanted) -> list[Partition[StorePiece]]:
    return plan_queue_ends(stores, wanted.conditions.accepts_queue)


def _config_batches(
    tables: Sequence[str], partition: Partition[StorePiece], wanted: Wanted
) -> Iterator[Any]:
    accepts = wanted.conditions.accepts_queue
    reading = ConfigReading(SystemClock(), wanted.options.record_bytes_max, accepts)
    with closing(reading):
        for piece in partition.pieces:
            # Only the table of queues is divided into shares.
            for table in tables if piece.share == 0 else ("queues",):
                for batch in config_batches(table, piece, reading):
                    yield of_columns(table, batch, wanted.columns)


# ------------------------------------------------------------------ reductions


def _range_kind(*tables: str) -> Kind:
    """One table, or several of one reading."""
    chosen = frozenset(tables)
    columns = COLUMNS[tables[0]] if len(tables) == 1 else SUMMARY_COLUMNS
    return Kind(columns, partial(_plan_works, chosen), partial(_work_batches, chosen))


def _plan_works(
    tables: frozenset[str], stores: Sequence[StoreFolder], wanted: Wanted
) -> list[Partition[Work]]:
    return [
        Partition((work,)) for store in stores for work in _works(tables, store, wanted.options)
    ]


def _work_batches(
    tables: frozenset[str], partition: Partition[Work], wanted: Wanted
) -> Iterator[Any]:
    for table, batch in rows_of(partition.pieces, tables):
        yield of_columns(table, batch, wanted.columns)


def _works(tables: frozenset[str], store: StoreFolder, options: StoreOptions) -> Iterator[Work]:
    """The work of one partition each."""
    facts = store_facts(store, delays_ms=options.delays_ms, index_slots=options.index_slots)
    if PENDING in tables:
        yield PendingWork(facts)
    if FAULTS in tables:
        yield FolderWork(facts)
    if not tables.isdisjoint(SUMMARY_TABLES):
        yield from _log_works(facts, options)
    if QUEUE_RANGES in tables:
        yield from _queue_works(facts, options)
    if tables & _OF_INDEX:
        for partition in plan_index([facts.store]):
            yield from (IndexWork(facts, piece) for piece in partition.pieces)


def _log_works(facts: StoreFacts, options: StoreOptions) -> Iterator[Work]:
    """Pieces with as many whole ranges of the grid as fit in a partition, but at least one."""
    unit = max(1, options.partition_bytes // LOG_RANGE_BYTES) * LOG_RANGE_BYTES
    planned = plan_log([facts.store], partition_bytes=unit)
    pieces = [piece for partition in planned for piece in partition.pieces]
    for _, neighbours in groupby(pieces, key=lambda piece: piece.begin // unit):
        yield LogWork(
            facts,
            tuple(neighbours),
            options.check_bodies,
            options.record_bytes_max,
            options.journal_since_ms,
        )


def _queue_works(facts: StoreFacts, options: StoreOptions) -> Iterator[Work]:
    for partition in plan_queues([facts.store], partition_bytes=options.partition_bytes):
        # Apart, because files that are full need not be read twice by a watch.
        for is_open in (False, True):
            if some := tuple(piece for piece in partition.pieces if piece.is_open == is_open):
                yield QueueWork(facts, some)


KINDS: Final[Mapping[str, Kind]] = {
    "records": Kind(RECORDS, _plan_records, _record_batches, record_rows.CONDITION_COLUMNS),
    "entries": Kind(ENTRIES, _plan_entries, _entry_batches, entry_rows.CONDITION_COLUMNS),
    **{table: _config_kind(table) for table in CONFIG_TABLES},
    SNAPSHOT: Kind(
        together([COLUMNS[table] for table in CONFIG_TABLES]),
        _plan_shares,
        partial(_config_batches, CONFIG_TABLES),
    ),
    **{table: _range_kind(table) for table in (*SUMMARY_TABLES, PENDING)},
    SUMMARIES: _range_kind(*SUMMARY_TABLES),
}
