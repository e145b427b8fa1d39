"""Marks of parts of stores: a part whose mark is that of an earlier reading has the same rows.

A mark names the part, what its readers must know about the store, and the state of its files:
inode, length, and the times of the last change to content and to the inode. So it changes whenever
a file was written to, exchanged, or given an old modification time.

The newest segment of a running broker changes all the time. A part of it that is wholly before the
log's end is marked without times: what is done to it is seen once the segment is full, because its
mark is then another. Parts that are still written to have no mark, and neither have those that
depend on more than their own files.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aerobee.offset_audit.sources.store.index_geometry import IndexFile
from aerobee.offset_audit.sources.store.kinds import Wanted
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.offset_audit.sources.store.plan import LogPiece, Partition, QueuePiece
from aerobee.offset_audit.sources.store.ranges_ext import has_ext_tags
from aerobee.offset_audit.sources.store.ranges_reading import IndexWork, LogWork, QueueWork, Work
from aerobee.offset_audit.sources.store.ranges_rows import FAULTS, MINUTES, SUMMARIES
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.names import file_name

Key = tuple[Hashable, ...]

_OPEN: Final = "open"


@dataclass(frozen=True, slots=True)
class Mark:
    """Of one part."""

    key: Key
    bytes: int
    """How many of a log, a queue or an index need not be read again."""
    minutes_end: int = 0
    """Minutes before it get no more messages."""

    def is_final(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a later reading gives exactly these rows. A part with faults is always read
        again: how far they reach, and whether they were cured, other files may decide."""
        return not any(
            row.get("table") == FAULTS
            or row.get("disorders")
            or (row.get("table") == MINUTES and row["minute"] >= self.minutes_end)
            for row in rows
        )


def mark_of(partition: Partition[Any], wanted: Wanted) -> Mark | None:
    """None: the part must be read."""
    try:
        return _of_summaries(partition.pieces, wanted)
    except OSError:  # retention removes files meanwhile
        return None


def _of_summaries(works: Sequence[Work], wanted: Wanted) -> Mark | None:
    if wanted.options.kind != SUMMARIES or len(works) != 1:
        return None
    (work,) = works
    if isinstance(work, LogWork):
        return _of_log(work)
    if isinstance(work, QueueWork):
        return _of_queues(work)
    return _of_index(work) if isinstance(work, IndexWork) else None


def _of_log(work: LogWork) -> Mark | None:
    facts = work.facts
    first, last = work.pieces[0].begin, work.pieces[-1].end
    files = _log_files(work.pieces, facts.bounds.end, facts.segment_bytes, is_clean=facts.is_clean)
    if files is None or facts.bounds.end < last:
        return None
    indexed = max(facts.indexed.begin, first), min(facts.indexed.end, last)
    known = (
        *(work.pieces, work.check_bodies, work.record_bytes_max, work.journal_since_ms),
        *(facts.segment_bytes, facts.is_clean, facts.batch_topics, facts.delays_ms),
        indexed if indexed[0] < indexed[1] else None,
    )
    size = sum(piece.bytes for piece in work.pieces)
    return Mark((*known, *files), size, facts.whole_minutes[1])


def _log_files(
    pieces: Sequence[LogPiece], end: int, segment_bytes: int, *, is_clean: bool
) -> Key | None:
    """The state of the files of neighbouring pieces, and of the segment before them, whose last
    records readers look at."""
    found: list[Hashable] = []
    for piece in pieces:
        if not piece.is_open or is_clean:
            found.append(_state(piece.segment.path))
        elif piece.end <= end:
            found.append((_OPEN, os.stat(piece.segment.path).st_ino))
        else:
            return None
    first = pieces[0]
    if first.begin == first.segment.base >= segment_bytes:
        name = file_name(first.segment.base - segment_bytes)
        before = os.path.join(os.path.dirname(first.segment.path), name)
        found.append(_state(before) if os.path.exists(before) else None)
    return tuple(found)


def _of_queues(work: QueueWork) -> Mark | None:
    facts = work.facts
    if any(piece.is_open for piece in work.pieces) or has_ext_tags(facts.store):
        return None
    if any(_last_position(piece) >= facts.bounds.end for piece in work.pieces):
        return None
    files = tuple(_state(piece.file.path) for piece in work.pieces)
    size = sum(piece.bytes for piece in work.pieces)
    return Mark((work.pieces, facts.bounds.begin, *files), size)


def _last_position(piece: QueuePiece) -> int:
    """Of the piece's last entry: entries rise, so all lead to places before a log's end if it
    does."""
    with OpenFile(piece.file) as file:
        return int.from_bytes(file.read(piece.end - ENTRY_SIZE, piece.end)[:8], "big")


def _of_index(work: IndexWork) -> Mark | None:
    facts, piece = work.facts, work.piece
    if piece.is_open:
        return None
    index = IndexFile(piece.file)
    header = index.header()
    index.close()
    if header is None or header.end_physical_offset >= facts.indexed.end:
        return None
    known = (piece, facts.index_geometry, facts.indexed.begin, _state(piece.file.path))
    return Mark(known, piece.bytes)


def _state(path: str) -> Key:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
