"""The entries of a piece of a consume queue, buffer by buffer.

Invariant: each entry is given once, at its own queue offset; blank entries before a queue's first
message are not given; zeros at the end of a queue's last file are its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.offset_audit.sources.store.plan import QueuePiece
from aerobee.store.format.consume_queue_entry import ENTRY_DTYPE, ENTRY_SIZE
from aerobee.store.format.record_arrays import BoolArray, Int64Array

CHUNK_ENTRIES: Final = 512 * 1024

_BLANK_SIZE: Final = 0x7FFF_FFFF

Entries = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class QueueChunk:
    """Entries end to end; `entries[n]` is that of queue offset `first_offset + n`."""

    piece: QueuePiece
    first_offset: int
    entries: Entries
    """Of ENTRY_DTYPE, big-endian: a view of what was read."""
    sound: BoolArray
    """Whether an entry is possible: its position is not negative, its size is positive."""

    @property
    def count(self) -> int:
        return len(self.entries)

    @property
    def queue_offsets(self) -> Int64Array:
        return np.arange(self.first_offset, self.first_offset + self.count)

    @property
    def positions(self) -> Int64Array:
        return self.entries["physical_offset"].astype(np.int64)

    @property
    def sizes(self) -> Int64Array:
        return self.entries["size"].astype(np.int64)

    @property
    def tags_codes(self) -> Int64Array:
        return self.entries["tags_code"].astype(np.int64)


def queue_chunks(piece: QueuePiece, *, chunk_entries: int = CHUNK_ENTRIES) -> Iterator[QueueChunk]:
    """The chunks of a piece, none if its file was deleted."""
    try:
        file = OpenFile(piece.file)
    except FileNotFoundError:
        return
    with file:
        step = chunk_entries * ENTRY_SIZE
        for begin in range(piece.begin, piece.end, step):
            chunk = _read(piece, file, begin, min(begin + step, piece.end))
            if piece.is_open and not chunk.sound.all():
                # Half written at the time, or damaged: a second read decides.
                chunk = _read(piece, file, begin, min(begin + step, piece.end))
            if chunk.count:
                yield chunk


def _read(piece: QueuePiece, file: OpenFile, begin: int, end: int) -> QueueChunk:
    data = file.read(begin, end)
    entries = np.frombuffer(data, ENTRY_DTYPE, len(data) // ENTRY_SIZE)
    sizes = entries["size"]
    sound = np.asarray((sizes > 0) & (entries["physical_offset"] >= 0))
    first_offset = begin // ENTRY_SIZE
    if piece.is_first and (blank := _count_blank(entries)):
        entries, sound = entries[blank:], sound[blank:]
        first_offset += blank
    if piece.is_open and not sound.all():
        written = _count_written(entries)
        entries, sound = entries[:written], sound[:written]
    return QueueChunk(piece, first_offset, entries, sound)


def _count_blank(entries: Entries) -> int:
    """How many entries at the front are for offsets before the queue's first message."""
    if not len(entries) or entries["size"][0] != _BLANK_SIZE:
        return 0
    other = (entries["size"] != _BLANK_SIZE) | (entries["physical_offset"] != 0)
    return int(np.argmax(other)) if other.any() else len(entries)


def _count_written(entries: Entries) -> int:
    """How many entries there are up to the last that is not all zeros."""
    written = (
        (entries["size"] != 0) | (entries["physical_offset"] != 0) | (entries["tags_code"] != 0)
    )
    return int(np.flatnonzero(written)[-1]) + 1 if written.any() else 0
