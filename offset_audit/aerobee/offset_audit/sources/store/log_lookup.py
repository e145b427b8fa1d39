"""Lookups of single places in a store's log: its bounds, single records, store times."""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.sources.store.files import StoreFile, log_segments
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.open_file import OpenFiles
from aerobee.offset_audit.sources.store.record_search import RECORD_BYTES_MAX, Search
from aerobee.store.format.record_layout import (
    HOST_V6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    RecordCorrupt,
)
from aerobee.store.format.record_view import Record

_HEAD_BYTES: Final = STORE_TIMESTAMP_AT + HOST_V6_EXTRA + 8
_FIRST_READ_BYTES: Final = 4096


class LogLookup(OpenFiles):
    """The log of one store. Close it."""

    def __init__(self, store: StoreFolder, record_bytes_max: int = RECORD_BYTES_MAX) -> None:
        super().__init__(log_segments(store))
        self._record_bytes_max = record_bytes_max
        self.begin = self.bases[0] if self.bases else 0
        """Where the log begins."""
        self._found_end: tuple[int | None, int] | None = None

    @property
    def end(self) -> int:
        """The end of its last whole record."""
        return self._last_and_end[1]

    def record_at(self, position: int) -> Record | None:
        """The whole record at a log position that it names itself; None if there is none."""
        index = self.index_of(position)
        if index < 0 or position >= self.files[index].end:
            return None
        segment = self.files[index]
        data = self.read(position, min(_FIRST_READ_BYTES, segment.end - position))
        if len(data) < RECORD_SIZE_MIN:
            return None
        size = int.from_bytes(data[:4], "big", signed=True)
        magic = int.from_bytes(data[4:8], "big", signed=True)
        if magic not in (MAGIC_V1, MAGIC_V2) or not size >= RECORD_SIZE_MIN:
            return None
        if position + size > segment.end:
            return None
        if size > len(data):
            data = self.read(position, size)
        try:
            record = Record(data, 0, size)
            # Reading these proves the lengths.
            is_whole = bool(record.topic) and record.physical_offset == position
            _ = record.properties
        except RecordCorrupt:
            return None
        return record if is_whole else None

    def store_ms(self, position: int) -> int | None:
        """When the record at `position` was stored; None if there is none."""
        head = self.read(position, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES:
            return None
        if _signed(head, MAGIC_AT, 4) not in (MAGIC_V1, MAGIC_V2):
            return None
        if _signed(head, PHYSICAL_OFFSET_AT, 8) != position:
            return None
        is_v6 = _signed(head, SYS_FLAG_AT, 4) & SYSFLAG_BORN_HOST_V6
        return _signed(head, STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if is_v6 else 0), 8)

    def last_store_ms(self) -> int | None:
        """When the log's last record was stored."""
        last = self._last_and_end[0]
        return None if last is None else self.store_ms(last)

    def first_store_ms(self, segment: StoreFile) -> int | None:
        """When a segment's first record was stored."""
        return self.store_ms(segment.base)

    @property
    def _last_and_end(self) -> tuple[int | None, int]:
        """Where the last whole record begins, and the log's end; looked for when first needed."""
        if self._found_end is None:
            self._found_end = self._find_end()
        return self._found_end

    def _find_end(self) -> tuple[int | None, int]:
        for index in reversed(range(len(self.files))):
            segment = self.files[index]
            file = self.opened(index)
            if file is None:
                continue
            search = Search(file, segment.base, segment.end, self._record_bytes_max)
            last = search.last_record(file.used_end(segment.base, segment.end))
            if last is not None:
                return last.position, last.log_end
        return None, self.begin


def _signed(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "big", signed=True)
