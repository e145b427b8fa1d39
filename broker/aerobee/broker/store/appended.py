"""What an append gives back, and what all of them amount to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Appended(NamedTuple):
    """Where a batch lies: the offsets of its first record, and the log's end after its last."""

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
