"""The kinds of `aerobee.store` whose rows are reductions: what they plan, and what they read.

`summaries` are all tables of one reading; each table alone is a kind of its own name. A partition
of the log is a whole number of the grid's ranges, and contains what its reader must know about its
store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from aerobee.offset_audit.sources.store.columns import Columns
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.kind import Kind, Wanted
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.plan import (
    IndexPiece,
    LogPiece,
    Partition,
    QueuePiece,
    plan_index,
    plan_log,
    plan_queues,
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
    RecordBatch,
    of_columns,
)
from aerobee.offset_audit.tables import LOG_RANGE_BYTES

_OF_LOG: Final = frozenset(SUMMARY_TABLES)
_OF_INDEX: Final = frozenset({INDEX_RANGES, FAULTS})


@dataclass(frozen=True, slots=True)
class WorkPartition(Partition):
    """What one executor does."""

    works: tuple[Work, ...] = ()


class RangeKind:
    """One table, or all of `summaries`."""

    condition_columns: frozenset[str] = frozenset()

    def __init__(self, *tables: str) -> None:
        self._tables = frozenset(tables)
        self._columns = COLUMNS[tables[0]] if len(tables) == 1 else SUMMARY_COLUMNS

    def columns(self, options: StoreOptions) -> Columns:
        return self._columns

    def default_columns(self, options: StoreOptions) -> Columns:
        return self._columns

    def plan(self, stores: Sequence[StoreFolder], wanted: Wanted) -> list[Partition]:
        works = [work for store in stores for work in self._works(store, wanted.options)]
        return [WorkPartition((), works=tuple(some)) for some in works]

    def batches(self, partition: Partition, wanted: Wanted) -> Iterator[RecordBatch]:
        if isinstance(partition, WorkPartition):
            for table, batch in rows_of(partition.works, self._tables):
                yield of_columns(table, batch, wanted.columns)

    def _works(self, store: StoreFolder, options: StoreOptions) -> Iterator[list[Work]]:
        """The work of one partition each."""
        tables = self._tables
        facts = store_facts(store, delays_ms=options.delays_ms, index_slots=options.index_slots)
        if PENDING in tables:
            yield [PendingWork(facts)]
        if FAULTS in tables:
            yield [FolderWork(facts)]
        if tables & _OF_LOG:
            yield from _log_works(facts, options)
        if QUEUE_RANGES in tables:
            yield from _queue_works(facts, options)
        if tables & _OF_INDEX:
            yield from _index_works(facts)


def _log_works(facts: StoreFacts, options: StoreOptions) -> Iterator[list[Work]]:
    """Pieces with as many whole ranges of the grid as fit in a partition, but at least one."""
    unit = max(1, options.partition_bytes // LOG_RANGE_BYTES) * LOG_RANGE_BYTES
    planned = plan_log([facts.store], partition_bytes=unit)
    pieces = [
        piece for partition in planned for piece in partition.pieces if isinstance(piece, LogPiece)
    ]
    for _, together in groupby(pieces, key=lambda piece: piece.begin // unit):
        yield [
            LogWork(
                facts,
                tuple(together),
                options.check_bodies,
                options.record_bytes_max,
                options.journal_since_ms,
            )
        ]


def _queue_works(facts: StoreFacts, options: StoreOptions) -> Iterator[list[Work]]:
    for partition in plan_queues([facts.store], partition_bytes=options.partition_bytes):
        pieces = [piece for piece in partition.pieces if isinstance(piece, QueuePiece)]
        # Apart, because files that are full need not be read twice by a watch.
        for is_open in (False, True):
            if some := tuple(piece for piece in pieces if piece.is_open == is_open):
                yield [QueueWork(facts, some)]


def _index_works(facts: StoreFacts) -> Iterator[list[Work]]:
    for partition in plan_index([facts.store]):
        for piece in partition.pieces:
            if isinstance(piece, IndexPiece):
                yield [IndexWork(facts, piece)]


RANGE_KINDS: Final[Mapping[str, Kind]] = {
    **{table: RangeKind(table) for table in (*SUMMARY_TABLES, PENDING)},
    SUMMARIES: RangeKind(*SUMMARY_TABLES),
}
