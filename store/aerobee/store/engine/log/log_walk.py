"""Walks the log record by record and finds where it ends.

Reads bounded chunks, so memory does not depend on the log's size. A walk goes from segment to
segment over blank records and ends at the first bytes that are not a complete record of that
position: a record contains its own log position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.log.segment import Segment
from aerobee.store.engine.log.torn_records import before_torn, lengths_add_up
from aerobee.store.format.scan import ScanEnd, ScanResult, scan_records
from aerobee.store.format.tags import TagsCodes

# Enough to see any record's size.
_CHUNK_BYTES_MIN = 512


@dataclass(frozen=True, slots=True)
class WalkedChunk:
    """Complete records; those of `result` are at `position` + their own positions."""

    position: int
    result: ScanResult
    data: bytes


class LogWalk:
    """Iterate once; then `end` says where the log ends and `stopped_by` why."""

    def __init__(
        self,
        disk: Disk,
        segments: Sequence[Segment],
        start_index: int,
        *,
        tags: TagsCodes,
        check_crc: bool,
        chunk_bytes: int,
        start: int | None = None,
        end: int | None = None,
        torn_from: int | None = None,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        """Begins with the segment of index `start_index`, at its first record or at the one that
        begins at the log offset `start`; `end` stops the walk at that log offset. Records from
        `torn_from` on may have lost sectors in a power failure. `on_read` gets each chunk."""
        self._disk = disk
        self._segments = segments
        self._start_index = start_index
        self._tags = tags
        self._check_crc = check_crc
        self._chunk_bytes = chunk_bytes
        self._stop_at = end
        self._torn_from = torn_from
        self._on_read = on_read
        self.end = segments[start_index].base if start is None else start
        self.stopped_by = ScanEnd.BUFFER_END

    def __iter__(self) -> Iterator[WalkedChunk]:
        last_index = len(self._segments) - 1
        for index in range(self._start_index, len(self._segments)):
            segment = self._segments[index]
            if index > self._start_index:
                self.end = segment.base
            yield from self._walk_segment(segment)
            if self.stopped_by is not ScanEnd.BLANK or self._is_at_stop():
                return
            if index == last_index:
                return  # the blank is cut off: the next record is tried in its place

    def _is_at_stop(self) -> bool:
        return self._stop_at is not None and self.end >= self._stop_at

    def _walk_segment(self, segment: Segment) -> Iterator[WalkedChunk]:
        """Starts at `end`, which is in the segment."""
        file = self._disk.open_file(segment.path, read_only=True)
        limit = segment.size
        if self._stop_at is not None:
            limit = min(limit, self._stop_at - segment.base)
        at = self.end - segment.base
        chunk_bytes = self._chunk_bytes
        while at < limit:
            data = file.read_at(at, min(chunk_bytes, limit - at))
            self._on_read()
            has_rest = at + len(data) < limit
            result = scan_records(data, check_crc=self._check_crc, tags=self._tags)
            result = _before_misplaced(result, segment.base + at)
            if self._torn_from is not None:
                torn_from = self._torn_from - segment.base
                result = before_torn(data, result, position=at, torn_from=torn_from)
            if result.count:
                yield WalkedChunk(segment.base + at, result, data)
            at += result.valid_end
            self.end = segment.base + at
            self.stopped_by = result.end
            if result.end is ScanEnd.BUFFER_END:
                continue
            if result.end is not ScanEnd.TRUNCATED:
                return
            # A record that continues after the chunk, if possible; otherwise it is torn.
            if not has_rest or at + result.end_size > segment.size:
                return
            chunk_bytes = max(self._chunk_bytes, _CHUNK_BYTES_MIN)
            if result.end_size > chunk_bytes:
                if not lengths_add_up(file, at, result.end_size):
                    return
                chunk_bytes = result.end_size


def _before_misplaced(result: ScanResult, position: int) -> ScanResult:
    """The records before the first one that belongs elsewhere in the log: a segment may have been
    overwritten by a copy of another, whose records are all intact."""
    misplaced = result.physical_offsets != result.positions + position
    if misplaced.any():
        return result.before(int(np.argmax(misplaced)), ScanEnd.MISPLACED)
    return result
