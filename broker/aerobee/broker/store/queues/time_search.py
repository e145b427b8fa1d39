"""Which message of a queue was stored first at, or last before, a point in time.

A binary search over the queue's entries; each probe reads one store timestamp from the log. A
search holds copies of what it needs, so it may run on any thread while the queue grows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum

from aerobee.broker.store.disk import Disk, DiskFile
from aerobee.broker.store.queues.consume_queue import ConsumeQueue
from aerobee.runtime.errors import MessageNotFound
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE, unpack_entry
from aerobee.store_format.record import SYSFLAG_BORN_HOST_V6
from aerobee.store_format.record_layout import (
    HOST_V6_EXTRA,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
)

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_HEAD_BYTES = STORE_HOST_AT + HOST_V6_EXTRA

ReadLog = Callable[[int, int], bytes]


class Boundary(StrEnum):
    """Which neighbour of the time is wanted."""

    LOWER = "LOWER"  # first message stored at or after it; none: the queue's end
    UPPER = "UPPER"  # last message stored at or before it; none: the queue's first


class TimeSearch:
    """One queue at one moment."""

    def __init__(
        self, disk: Disk, queue: ConsumeQueue, read_log: ReadLog, entries_per_file: int
    ) -> None:
        self._disk = disk
        self._read_log = read_log
        self._entries_per_file = entries_per_file
        self._files: dict[str, DiskFile] = {}
        self._file_path = queue.file_path
        self._tail = bytes(queue.tail)
        self._written_end = queue.written_end
        self._min_offset = queue.min_offset
        self._end = queue.end

    def run(self, timestamp_ms: int, boundary: Boundary) -> int:
        """[any thread] The queue offset; may block on the disk."""
        if boundary is Boundary.LOWER:
            return self._first_not_before(timestamp_ms)
        behind = self._first_not_before(timestamp_ms + 1)
        return max(self._min_offset, behind - 1)

    def _first_not_before(self, timestamp_ms: int) -> int:
        low, high = self._min_offset, self._end
        while low < high:
            middle = (low + high) // 2
            if self._store_timestamp_ms(middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _store_timestamp_ms(self, offset: int) -> int:
        try:
            position, _, _ = unpack_entry(self._entry(offset))
            head = self._read_log(position, _HEAD_BYTES)
        except (MessageNotFound, FileNotFoundError):
            return -1  # removed meanwhile: older than everything asked for
        (sys_flag,) = _I32.unpack_from(head, SYS_FLAG_AT)
        at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if sys_flag & SYSFLAG_BORN_HOST_V6 else 0)
        timestamp_ms: int = _I64.unpack_from(head, at)[0]
        return timestamp_ms

    def _entry(self, offset: int) -> bytes:
        if offset >= self._written_end:
            at = (offset - self._written_end) * ENTRY_SIZE
            return self._tail[at : at + ENTRY_SIZE]
        path = self._file_path(offset)
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self._disk.open_file(path, read_only=True)
        return file.read_at(offset % self._entries_per_file * ENTRY_SIZE, ENTRY_SIZE)
