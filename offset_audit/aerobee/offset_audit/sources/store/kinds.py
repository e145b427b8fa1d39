"""All kinds of rows of `aerobee.store`, by name; those that are reductions: ranges_kinds.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from aerobee.offset_audit.sources.store import entry_rows, record_rows
from aerobee.offset_audit.sources.store.columns import Columns, together
from aerobee.offset_audit.sources.store.config_rows import (
    CONFIG_COLUMNS,
    ConfigReading,
    config_batches,
)
from aerobee.offset_audit.sources.store.entry_rows import ENTRIES, EntryReading, entry_batches
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.kind import Kind, Wanted
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.plan import (
    LogPiece,
    Partition,
    QueuePiece,
    StorePiece,
    plan_log,
    plan_queue_ends,
    plan_queues,
    plan_stores,
)
from aerobee.offset_audit.sources.store.ranges_kinds import RANGE_KINDS
from aerobee.offset_audit.sources.store.ranges_rows import of_columns
from aerobee.offset_audit.sources.store.record_columns import BODY, BODY_SOUND, RECORDS
from aerobee.offset_audit.sources.store.record_rows import RecordReading, record_batches
from aerobee.runtime.clock import Clock, SystemClock


class RecordKind:
    """`records`."""

    condition_columns = record_rows.CONDITION_COLUMNS

    def columns(self, options: StoreOptions) -> Columns:
        return RECORDS

    def default_columns(self, options: StoreOptions) -> Columns:
        left_out = [
            name
            for name, wanted in ((BODY, options.bodies), (BODY_SOUND, options.check_bodies))
            if not wanted
        ]
        return RECORDS.without(*left_out)

    def plan(self, stores: Sequence[StoreFolder], wanted: Wanted) -> list[Partition]:
        return plan_log(
            stores,
            partition_bytes=wanted.options.partition_bytes,
            reach=wanted.conditions.reach,
        )

    def batches(self, partition: Partition, wanted: Wanted) -> Iterator[Any]:
        options = wanted.options
        reading = RecordReading(
            wanted.columns,
            wanted.conditions,
            decompress=options.decompress,
            delays_ms=options.delays_ms,
            record_bytes_max=options.record_bytes_max,
        )
        for piece in partition.pieces:
            if isinstance(piece, LogPiece):
                yield from record_batches(piece, reading)


class EntryKind:
    """`entries`."""

    condition_columns = entry_rows.CONDITION_COLUMNS

    def columns(self, options: StoreOptions) -> Columns:
        return ENTRIES

    def default_columns(self, options: StoreOptions) -> Columns:
        return ENTRIES

    def plan(self, stores: Sequence[StoreFolder], wanted: Wanted) -> list[Partition]:
        return plan_queues(
            stores,
            partition_bytes=wanted.options.partition_bytes,
            is_wanted=wanted.conditions.accepts_queue,
        )

    def batches(self, partition: Partition, wanted: Wanted) -> Iterator[Any]:
        reading = EntryReading(wanted.columns, wanted.conditions)
        for piece in partition.pieces:
            if isinstance(piece, QueuePiece):
                yield from entry_batches(piece, reading)


def _reading(clock: Clock, wanted: Wanted) -> closing[ConfigReading]:
    accepts = wanted.conditions.accepts_queue
    return closing(ConfigReading(clock, wanted.options.record_bytes_max, accepts))


class ConfigKind:
    """One of the tables that a store itself keeps, with the columns of `tables.py`."""

    condition_columns: frozenset[str] = frozenset({"cluster", "broker_name", "broker_id"})

    def __init__(self, table: str, *, clock: Clock | None = None) -> None:
        self._table = table
        self._clock = clock or SystemClock()

    def columns(self, options: StoreOptions) -> Columns:
        return CONFIG_COLUMNS[self._table]

    def default_columns(self, options: StoreOptions) -> Columns:
        return CONFIG_COLUMNS[self._table]

    def plan(self, stores: Sequence[StoreFolder], wanted: Wanted) -> list[Partition]:
        if self._table == "queues":
            return plan_queue_ends(stores, wanted.conditions.accepts_queue)
        return plan_stores(stores)

    def batches(self, partition: Partition, wanted: Wanted) -> Iterator[Any]:
        with _reading(self._clock, wanted) as reading:
            for piece in partition.pieces:
                if isinstance(piece, StorePiece):
                    yield from config_batches(self._table, piece, wanted.columns, reading)


class QueueConfigKind(ConfigKind):
    """The same of tables with a row for each queue."""

    condition_columns = frozenset({"cluster", "broker_name", "broker_id", "topic", "queue_id"})


class SnapshotKind:
    """All tables that a store itself keeps, from one reading: `table` says which one a row belongs
    to, and columns that it does not have are null."""

    condition_columns: frozenset[str] = frozenset()

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def columns(self, options: StoreOptions) -> Columns:
        return _SNAPSHOT_COLUMNS

    def default_columns(self, options: StoreOptions) -> Columns:
        return _SNAPSHOT_COLUMNS

    def plan(self, stores: Sequence[StoreFolder], wanted: Wanted) -> list[Partition]:
        return plan_queue_ends(stores)

    def batches(self, partition: Partition, wanted: Wanted) -> Iterator[Any]:
        with _reading(self._clock, wanted) as reading:
            for piece in partition.pieces:
                if isinstance(piece, StorePiece):
                    for table in CONFIG_COLUMNS if piece.share == 0 else ("queues",):
                        for batch in config_batches(table, piece, CONFIG_COLUMNS[table], reading):
                            yield of_columns(table, batch, wanted.columns)


_SNAPSHOT_COLUMNS: Final = together(CONFIG_COLUMNS.values())
SNAPSHOT: Final = "snapshot"

KINDS: Final[Mapping[str, Kind]] = {
    "records": RecordKind(),
    "entries": EntryKind(),
    "brokers": ConfigKind("brokers"),
    "topics": ConfigKind("topics"),
    "queues": QueueConfigKind("queues"),
    "commits": QueueConfigKind("commits"),
    "epochs": ConfigKind("epochs"),
    "segments": ConfigKind("segments"),
    SNAPSHOT: SnapshotKind(),
    **RANGE_KINDS,
}
