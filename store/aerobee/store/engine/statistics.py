"""What the store reports about itself, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from aerobee.runtime.metrics.histogram import HistogramCounts
from aerobee.store.engine.retention.retention_statistics import RetentionStatistics


class StoreState(StrEnum):
    """Whether the store takes appends, and why not."""

    WRITABLE = "writable"
    DISK_FULL = "disk full"
    DISK_HUNG = "disk hung"
    READ_ONLY = "read only"
    CLOSING = "closing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """How far recovery has walked through the log; reported repeatedly. With equal numbers, it is
    busy with something that is not counted."""

    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What recovery found and did."""

    clean: bool  # the last run ended with `close`
    scan_start: int
    end: int
    scanned_bytes: int = 0
    scanned_records: int = 0
    dispatched_records: int = 0
    cut_bytes: int = 0  # not part of any complete record, past the end
    rebuilt_queues: tuple[tuple[str, int], ...] = ()
    duration_s: float = 0.0
    warnings: tuple[str, ...] = field(default_factory=tuple)
    misplaced_records: int = 0  # that did not continue where their queue ended


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """One moment of the store. Ends are exclusive byte offsets in the log."""

    state: StoreState
    min_offset: int
    appended_end: int
    flushed_end: int
    confirmed_end: int
    dispatched_end: int
    segment_count: int
    queue_count: int
    damaged_queue_count: int  # found while running: they serve nothing until the next start
    misplaced_records: int
    """Since the folder was opened: records read or copied that did not continue where their queue
    ended. Messages in between are missing or duplicated."""
    queue_tail_bytes: int
    appended_records: int
    appended_bytes: int
    appended_batches: int
    refused_batches: int
    flushes: int
    checkpoints: int
    sync_latency: HistogramCounts
    """Of the log's flushes, in seconds."""
    last_store_timestamp_ms: int
    retention: RetentionStatistics


class Appended(NamedTuple):
    """Where a batch is: the offsets of its first record, and the log's end after its last."""

    base_queue_offset: int
    base_physical_offset: int
    end: int
    store_timestamp_ms: int


@dataclass(slots=True)
class AppendCounters:
    """Since the store was opened."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    refused_batches: int = 0

    def add(self, records: int, size: int) -> None:
        self.batches += 1
        self.records += records
        self.bytes += size
