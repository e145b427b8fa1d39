"""Single records of a log by position: the few that something else is held against."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.store_format.record_layout import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    RecordCorrupt,
)
from aerobee.store_format.record_view import Record

_FIRST_READ_BYTES = 4096
_FILES_MAX = 16


class LogLookup:
    """Keeps a few segments open. Close it."""

    def __init__(self, segments: Sequence[StoreFile]) -> None:
        self._segments = segments
        self._bases = [segment.base for segment in segments]
        self._open: dict[int, OpenFile] = {}

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def record_at(self, position: int) -> Record | None:
        """The whole record that begins at a log position and says so itself; None without one."""
        index = bisect_right(self._bases, position) - 1
        if index < 0 or position >= self._segments[index].end:
            return None
        segment = self._segments[index]
        file = self._file(segment)
        if file is None:
            return None
        data = file.read(position, min(position + _FIRST_READ_BYTES, segment.end))
        if len(data) < RECORD_SIZE_MIN:
            return None
        size = int.from_bytes(data[:4], "big", signed=True)
        magic = int.from_bytes(data[4:8], "big", signed=True)
        if magic not in (MAGIC_V1, MAGIC_V2) or not size >= RECORD_SIZE_MIN:
            return None
        if position + size > segment.end:
            return None
        if size > len(data):
            data = file.read(position, position + size)
        try:
            record = Record(data, 0, size)
            # Reading these proves the lengths.
            is_whole = bool(record.topic) and record.physical_offset == position
            _ = record.properties
        except RecordCorrupt:
            return None
        return record if is_whole else None

    def _file(self, segment: StoreFile) -> OpenFile | None:
        """None if it was deleted."""
        found = self._open.get(segment.base)
        if found is None:
            if len(self._open) >= _FILES_MAX:
                self._open.pop(next(iter(self._open))).close()
            try:
                found = self._open[segment.base] = OpenFile(segment)
            except FileNotFoundError:
                return None
        return found
