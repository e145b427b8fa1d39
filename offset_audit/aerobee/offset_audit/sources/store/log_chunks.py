"""The records of a piece of a log, buffer by buffer, and the places where a run of records ended.

Invariant: a record belongs to the piece in which it begins, however long it is; a place without an
expected record belongs to the piece that contains it, and reading continues after it. What follows
the last whole record of the newest segment is the log's end, unless records follow there that were
written before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.offset_audit.sources.store.plan import LogPiece
from aerobee.offset_audit.sources.store.record_search import RECORD_BYTES_MAX, Search
from aerobee.store.format.record_layout import RECORD_SIZE_MIN
from aerobee.store.format.scan import ScanEnd, ScanResult, scan_records
from aerobee.store.format.tags import TagsCodes

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Fields are gathered one after another, so a chunk should fit in the processor's cache."""

# Read past a piece's end, so that its last record seldom needs a separate read.
_BEYOND_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class LogStop:
    """A place where a run of records ended; positions are log positions."""

    position: int
    why: ScanEnd
    size: int
    """The size field found there."""
    resumed_at: int | None
    """Where records continue in the segment; None: they do not."""
    is_fault: bool
    """Whether something is wrong; false for a segment's filler and the log's end."""


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Whole records that begin in `piece`. `records` has positions relative to `buffer`, which
    begins at `position` of the log and may contain more than these records."""

    piece: LogPiece
    buffer: bytes
    position: int
    records: ScanResult
    stop: LogStop | None
    """Where and why the run of records after these ended, None if it did not."""


def log_chunks(
    piece: LogPiece,
    *,
    tags: TagsCodes,
    chunk_bytes: int = CHUNK_BYTES,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Iterator[LogChunk]:
    """The chunks of a piece, none if its segment was deleted. Bodies are not checked."""
    try:
        file = OpenFile(piece.segment)
    except FileNotFoundError:
        return
    with file:
        search = Search(file, piece.segment.base, piece.segment.end, record_bytes_max)
        position = search.first_from(piece.begin)
        record_bytes = RECORD_SIZE_MIN
        looked_twice_at = -1
        while position is not None and position < piece.end:
            end = min(position + chunk_bytes, piece.end + _BEYOND_BYTES)
            end = min(max(end, position + record_bytes), piece.segment.end)
            buffer = file.read(position, end)
            found = scan_records(buffer, check_crc=False, tags=tags)
            records = _of_piece(found, piece, position)
            at = position + records.valid_end
            stop = None
            if at < piece.end and not (records.end is ScanEnd.BUFFER_END and buffer):
                if position + len(buffer) == end and _is_cut(records, at, end, piece):
                    record_bytes = max(RECORD_SIZE_MIN, records.end_size)
                elif looked_twice_at != at and search.is_record(at):
                    # Written meanwhile, or an impossible topic name: a second read decides.
                    looked_twice_at = at
                    continue
                else:
                    stop = _judge(search, records, at, piece)
            if records.count or stop is not None:
                yield LogChunk(piece, buffer, position, records, stop)
            position = at if stop is None else stop.resumed_at


def _of_piece(found: ScanResult, piece: LogPiece, position: int) -> ScanResult:
    """Without the records that begin after the piece, and only up to one of another place."""
    places = found.positions + position
    count = int(np.searchsorted(places, piece.end))
    if count < found.count:
        found = found.before(count, ScanEnd.BUFFER_END)
        places = places[:count]
    strange = found.physical_offsets != places
    if strange.any():
        found = found.before(int(np.argmax(strange)), ScanEnd.MISPLACED)
    return found


def _is_cut(records: ScanResult, at: int, buffer_end: int, piece: LogPiece) -> bool:
    """Whether there may be a record at `at` for which only the buffer was too short."""
    return (
        records.end is ScanEnd.TRUNCATED
        and buffer_end < piece.segment.end
        and at + records.end_size <= piece.segment.end
    )


def _judge(search: Search, records: ScanResult, at: int, piece: LogPiece) -> LogStop:
    if records.end is ScanEnd.BLANK and search.is_blank(at):
        return LogStop(at, ScanEnd.BLANK, records.end_size, None, is_fault=False)
    resumed_at = search.resume(at)
    is_fault = resumed_at is not None or not piece.is_open
    return LogStop(at, records.end, records.end_size, resumed_at, is_fault)
