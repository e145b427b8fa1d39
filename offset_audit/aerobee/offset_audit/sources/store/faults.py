"""Faults: bytes that are not what they should be, one row for each cause.

`position` and `size` give the bytes that are unreadable because of it: as a log position in the
log, as a position in the file otherwise. `size` is null if everything around can be read, as with a
body that lost a bit. What shows only when log and queues are compared is not a fault here: the rows
of the ranges show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.ranges_rows import FAULTS, RecordBatch, batch_of


class FaultKind:
    """The kinds of faults."""

    BAD_MAGIC: Final = "BAD_MAGIC"
    BAD_LENGTHS: Final = "BAD_LENGTHS"
    BAD_CRC: Final = "BAD_CRC"
    BAD_TOPIC: Final = "BAD_TOPIC"
    MISPLACED: Final = "MISPLACED"
    HOLE: Final = "HOLE"
    """Zeros where records must have been."""
    TORN: Final = "TORN"
    """Bytes after the last whole record of a store that was stopped cleanly."""
    BAD_TIME: Final = "BAD_TIME"
    """A record whose store time contradicts its neighbours'."""
    TIME_BACKWARD: Final = "TIME_BACKWARD"
    """From here on everything was stored earlier than the record before: the clock was set back."""
    MISSING_SEGMENT: Final = "MISSING_SEGMENT"
    LOST_BEGIN: Final = "LOST_BEGIN"
    """Queues begin below the log's first segment, though the store was stopped cleanly."""
    CUT_SEGMENT: Final = "CUT_SEGMENT"
    """A segment's file is too short; everything after its end is missing."""
    MISSING_FILE: Final = "MISSING_FILE"
    """Of a queue."""
    QUEUE_FILE_SIZE: Final = "QUEUE_FILE_SIZE"
    BAD_FILE_SIZE: Final = "BAD_FILE_SIZE"
    STRAY_FILE: Final = "STRAY_FILE"
    INDEX_HEADER: Final = "INDEX_HEADER"
    INDEX_SLOT: Final = "INDEX_SLOT"
    INDEX_ENTRY: Final = "INDEX_ENTRY"
    INDEX_FILE_SIZE: Final = "INDEX_FILE_SIZE"
    INDEX_SIZES: Final = "INDEX_SIZES"
    """The index cannot be read: the number of slots in its files is unknown."""
    BAD_JOURNAL: Final = "BAD_JOURNAL"
    """A record of one of the broker's own journals whose body no broker writes."""
    BAD_CONFIG: Final = "BAD_CONFIG"
    CHANGED_TABLE: Final = "CHANGED_TABLE"
    """Something else than a broker has changed a table since one wrote it."""
    LOST_ROW: Final = "LOST_ROW"
    """A table lacks what other files of a store that was stopped cleanly have."""
    BAD_CHECKPOINT: Final = "BAD_CHECKPOINT"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; None is what is unknown or does not apply."""

    kind: str
    file: str
    position: int | None
    detail: str
    size: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    store_ms: int | None = None
    """The store time of a record of BAD_TIME or TIME_BACKWARD."""
    back_ms: int | None = None
    """By how much the store time falls there."""


def fault_rows(store: StoreFolder, faults: Sequence[Fault]) -> RecordBatch:
    """FAULTS."""
    return batch_of(FAULTS, store, faults)


def name_in(store: StoreFolder, path: str) -> str:
    """A file's name relative to the store's root."""
    return path.removeprefix(store.root).lstrip("/")
