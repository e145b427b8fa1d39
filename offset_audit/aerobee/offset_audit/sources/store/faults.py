"""Faults: bytes that are not what they should be, one row for each cause.

`position` and `size` say which bytes nobody can read because of it: of the log as a log position,
of other files as a position in the file. `size` is null where all around can be read, as with a
body that lost a bit. What only comparing log and queues shows is no fault here: the rows of the
ranges tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.ranges_rows import FAULTS, RecordBatch, make_batch


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
    """One record whose store time those around it contradict."""
    TIME_BACKWARD: Final = "TIME_BACKWARD"
    """From here on all were stored earlier than the record before: the clock was set back."""
    MISSING_SEGMENT: Final = "MISSING_SEGMENT"
    CUT_SEGMENT: Final = "CUT_SEGMENT"
    """A segment's file is shorter than segments are, without all that was after its end."""
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
    """The index cannot be read: how many slots its files have is not known."""
    BAD_CONFIG: Final = "BAD_CONFIG"
    BAD_CHECKPOINT: Final = "BAD_CHECKPOINT"


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them; None is what is not known or does not apply."""

    kind: str
    file: str
    position: int | None
    detail: str
    size: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    store_ms: int | None = None
    """What a record of BAD_TIME or TIME_BACKWARD says."""
    back_ms: int | None = None
    """By how much the store time falls there."""


def fault_rows(store: StoreFolder, faults: Sequence[Fault]) -> RecordBatch:
    """FAULTS."""
    names = [one.name for one in fields(Fault)]
    columns = {name: [getattr(fault, name) for fault in faults] for name in names}
    return make_batch(FAULTS, store, len(faults), columns)


def name_in(store: StoreFolder, path: str) -> str:
    """A file's name as it stands below the store's root."""
    return path.removeprefix(store.root).lstrip("/")
