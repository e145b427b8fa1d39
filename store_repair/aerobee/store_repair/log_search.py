"""Finding the next whole record after bytes that are none.

A record counts only if it is whole, its body has its CRC, and it says itself that it lies where it
was found: bytes inside a message's body that look like a record do not say that.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.broker.store.disk import Disk, DiskFile, used_size
from aerobee.store_format.record_layout import (
    BLANK_SIZE_MIN,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_SIZE_MIN,
    RecordCorrupt,
)
from aerobee.store_format.record_view import Record
from aerobee.store_repair.folder import SegmentFile

_CHUNK_BYTES = 1 << 22
# As many bytes of a candidate as its place in the log needs to be seen.
_HEAD_BYTES = PHYSICAL_OFFSET_AT + 8
_RECORD_MAGICS = tuple(magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2))
_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big", signed=True)


class LogSearch:
    """Searches in segments of one log. `is_live` forbids hints to the page cache."""

    def __init__(self, disk: Disk, segment_bytes: int, *, is_live: bool) -> None:
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._is_live = is_live

    def is_boundary(self, segment: SegmentFile, file: DiskFile, at: int) -> bool:
        """Whether a whole record, or a filler that reaches to the end, begins at byte `at`."""
        if not 0 <= at <= self._segment_bytes - BLANK_SIZE_MIN:
            return False
        head = file.read_at(at, _HEAD_BYTES)
        return self._is_boundary(segment, file, at, head)

    def _is_boundary(self, segment: SegmentFile, file: DiskFile, at: int, head: bytes) -> bool:
        magic = head[MAGIC_AT : MAGIC_AT + 4]
        size = int.from_bytes(head[:4], "big", signed=True)
        if magic == _BLANK_MAGIC:
            return at + size == self._segment_bytes
        if magic not in _RECORD_MAGICS or not RECORD_SIZE_MIN <= size <= self._segment_bytes - at:
            return False
        said = int.from_bytes(head[PHYSICAL_OFFSET_AT:_HEAD_BYTES], "big", signed=True)
        if len(head) < _HEAD_BYTES or said != segment.base + at:
            return False
        try:
            Record(file.read_at(at, size), 0, size).check()
        except RecordCorrupt:
            return False
        return True

    def next_boundary(self, segment: SegmentFile, file: DiskFile, start: int) -> int | None:
        """The first boundary at or after byte `start` of the segment; None if there is none."""
        size = min(segment.file_bytes, self._segment_bytes)
        at = self._data_from(file, start, size)
        while at is not None:
            # The overlap lets a head that a chunk's end cuts be seen in the next one.
            data = file.read_at(at, min(_CHUNK_BYTES + _HEAD_BYTES, size - at))
            if used_size(data):
                found = self._first_in(segment, file, at, data)
                if found is not None:
                    return found
            at = self._data_from(file, at + _CHUNK_BYTES, size)
        return None

    def _first_in(self, segment: SegmentFile, file: DiskFile, at: int, data: bytes) -> int | None:
        best: int | None = None
        for magic in (*_RECORD_MAGICS, _BLANK_MAGIC):
            position = data.find(magic, MAGIC_AT)
            while position >= 0 and (best is None or at + position - MAGIC_AT < best):
                start = position - MAGIC_AT
                head = data[start : start + _HEAD_BYTES]
                if self._is_boundary(segment, file, at + start, head):
                    best = at + start
                    break
                position = data.find(magic, position + 1)
        return best

    def _data_from(self, file: DiskFile, at: int, size: int) -> int | None:
        """Where bytes may be set, at or after `at`."""
        if at >= size:
            return None
        if self._is_live:
            return at
        data = file.next_data(at)
        if data is None or data >= size:
            return None
        # A hole ends at a page; what was asked for may lie inside one.
        return max(at, data)

    def has_record(self, segments: Sequence[SegmentFile]) -> bool:
        """Whether any of the segments holds a whole record."""
        for segment in segments:
            if segment.path is None or segment.is_foreign:
                continue
            file = self._disk.open_file(segment.path, read_only=True)
            if self.next_boundary(segment, file, 0) is not None:
                return True
        return False

    def used_end(self, segment: SegmentFile, start: int) -> tuple[int, int]:
        """After the last byte that is set at or after `start`, or `start`; and how many are."""
        if segment.path is None or start >= segment.file_bytes:
            return start, 0
        file = self._disk.open_file(segment.path, read_only=True)
        end, count = start, 0
        size = segment.file_bytes
        at = self._data_from(file, start, size)
        while at is not None:
            # Up to a multiple of the chunk: a read that ends inside a page would cache the rest.
            data = file.read_at(at, min(_CHUNK_BYTES - at % _CHUNK_BYTES, size - at))
            if used := used_size(data):
                end = at + used
                count += len(data) - data.count(0)
            at = self._data_from(file, at + len(data), size)
        return end, count
