"""Reads single records of a log that may be damaged, wherever its files are."""

from __future__ import annotations

from bisect import bisect_right

from aerobee.store.engine.file_cache import FileCache
from aerobee.store.format.record_layout import RECORD_SIZE_MIN, RecordCorrupt
from aerobee.store.format.record_view import Record
from aerobee.store.repair.folder import Folder, SegmentFile

_FILES_MAX = 16


class LogReader:
    """Reads by log offset."""

    def __init__(self, folder: Folder) -> None:
        self._segments = folder.segments
        self._segment_bytes = folder.segment_bytes
        self._bases = [segment.base for segment in folder.segments]
        self._files = FileCache(folder.disk, _FILES_MAX)

    def segment_of(self, position: int) -> SegmentFile | None:
        """The segment that contains a log offset."""
        index = bisect_right(self._bases, position) - 1
        if index < 0 or position >= self._bases[index] + self._segment_bytes:
            return None
        return self._segments[index]

    def path_of(self, position: int) -> str:
        segment = self.segment_of(position)
        return "commitlog" if segment is None else segment.name

    def in_file(self, position: int) -> int:
        return position % self._segment_bytes

    def read(self, position: int, size: int) -> bytes:
        """The bytes that exist; fewer if a file is missing or short."""
        segment = self.segment_of(position)
        if segment is None or segment.path is None:
            return b""
        try:
            file = self._files.get(segment.path)
        except FileNotFoundError:
            return b""
        return file.read_at(position - segment.base, size)

    def record_at(self, position: int, size: int) -> Record | None:
        """The record of `size` bytes, if there is a whole one with an intact body."""
        if not RECORD_SIZE_MIN <= size <= self._segment_bytes:
            return None
        try:
            record = Record(self.read(position, size), 0, size)
            record.check()
        except RecordCorrupt:
            return None
        return record
