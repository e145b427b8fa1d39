"""A queue's entries in a store's files, looked up by offset, position or time without reading all.

Files may be preallocated with zeros, start before the queue's first message, and name records that
the log no longer has. Entries rise with their records' positions; where they do not (damage), two
searches of the same queue still cut it at the same entries, so that nothing is read twice or left
out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.messages.place import Bounds
from aerobee.offset_audit.sources.store.open_file import OpenFile, OpenFiles
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entries, unpack_entry
from aerobee.store.format.record_arrays import Int64Array
from aerobee.store.format.record_layout import (
    BORN_HOST_AT,
    HOST_V6_EXTRA,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
)

PRE_BLANK_SIZE: Final = 0x7FFF_FFFF
_SCAN_ENTRIES: Final = 4_096
_SEARCH_ENTRIES: Final = 1_024
_HEAD_BYTES: Final = BORN_HOST_AT + 20 + 8


class QueueEntries(OpenFiles):
    """The entries of one queue. Raises FileNotFoundError if a file has just been deleted."""

    def bounds(self, log_begin: int) -> Bounds:
        """Offsets of the messages that the log still has."""
        if not self.files:
            return Bounds(0, 0)
        end = self._end()
        begin = self._start(0)
        # Usually the first file has neither blanks nor entries that the log has lost.
        if begin < end and self._is_blank(begin):
            begin = self._search(begin, end, lambda offset: not self._is_blank(offset))
        if begin < end and self._position(begin) < log_begin:
            begin = self._search(begin, end, lambda offset: self._position(offset) >= log_begin)
        return Bounds(begin, end)

    def between(self, begin: int, end: int) -> tuple[Int64Array, Int64Array]:
        """Positions and sizes of the entries [begin, end); zeros after a file's end."""
        positions = np.zeros(end - begin, np.int64)
        sizes = np.zeros(end - begin, np.int64)
        at = begin
        while at < end:
            index = self.index_of(at * ENTRY_SIZE)
            stop = min(end, self._start(index + 1)) if index + 1 < len(self.files) else end
            if index >= 0:
                data = self._file(index).read(at * ENTRY_SIZE, stop * ENTRY_SIZE)
                whole = len(data) // ENTRY_SIZE
                found = unpack_entries(data[: whole * ENTRY_SIZE])
                positions[at - begin : at - begin + whole] = found[0]
                sizes[at - begin : at - begin + whole] = found[1]
            at = stop
        return positions, sizes

    def first_at(self, position: int, begin: int, end: int) -> int:
        """The first of the offsets [begin, end) whose record is at or after `position` of the log;
        `end` if there is none."""
        while end - begin > _SEARCH_ENTRIES:
            middle = (begin + end) // 2
            if self._position(middle) >= position:
                end = middle
            else:
                begin = middle + 1
        # One read is cheaper than the last ten steps' reads.
        return begin + bisect_left(self.between(begin, end)[0], position)

    def first_stored(
        self, time_ms: int, bounds: Bounds, read_log: Callable[[int, int], bytes]
    ) -> int:
        """The first offset stored at or after a time; the end if there is none. `read_log` gives
        bytes of the log by position and count, fewer where it ends."""

        def is_late(offset: int) -> bool:
            head = read_log(self._position(offset), _HEAD_BYTES)
            if len(head) < _HEAD_BYTES:
                return True
            sys_flag = int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
            at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if sys_flag & SYSFLAG_BORN_HOST_V6 else 0)
            return int.from_bytes(head[at : at + 8], "big", signed=True) >= time_ms

        return self._search(bounds.begin, bounds.end, is_late)

    # ------------------------------------------------------------------------------ inside

    def _end(self) -> int:
        """After the last entry that was written."""
        index = len(self.files) - 1
        while index >= 0:
            begin = self._start(index)
            stop = begin + self.files[index].size // ENTRY_SIZE
            end = self._search(begin, stop, lambda offset: self._entry(offset)[1] <= 0)
            # Entries after a damaged one are still there.
            end = max(end, self._last_written(index, end, stop))
            if end > begin or index == 0:
                return end
            index -= 1
        return 0

    def _last_written(self, index: int, begin: int, stop: int) -> int:
        file = self._file(index)
        end = begin
        at = begin
        while at < stop:
            data_at = file.next_data(at * ENTRY_SIZE)
            if data_at is None:
                break
            at = max(at, data_at // ENTRY_SIZE)
            upto = min(at + _SCAN_ENTRIES, stop)
            _, sizes = self.between(at, upto)
            written = np.flatnonzero(sizes > 0)
            if len(written):
                end = at + int(written[-1]) + 1
            at = upto
        return end

    def _search(self, begin: int, end: int, holds: Callable[[int], bool]) -> int:
        """The first offset of [begin, end) from which on `holds` is true; `end` if there is
        none."""
        while begin < end:
            middle = (begin + end) // 2
            if holds(middle):
                end = middle
            else:
                begin = middle + 1
        return begin

    def _is_blank(self, offset: int) -> bool:
        return self._entry(offset)[1] == PRE_BLANK_SIZE

    def _position(self, offset: int) -> int:
        return self._entry(offset)[0]

    def _entry(self, offset: int) -> tuple[int, int]:
        index = max(0, self.index_of(offset * ENTRY_SIZE))
        data = self._file(index).read(offset * ENTRY_SIZE, (offset + 1) * ENTRY_SIZE)
        if len(data) < ENTRY_SIZE:
            return 0, 0
        position, size, _ = unpack_entry(data)
        return position, size

    def _start(self, index: int) -> int:
        """The offset of a file's first entry."""
        return self.bases[index] // ENTRY_SIZE

    def _file(self, index: int) -> OpenFile:
        file = self.opened(index)
        if file is None:
            raise FileNotFoundError(self.files[index].path)
        return file
