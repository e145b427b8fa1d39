"""Which message of a queue was stored first at or after, or last at or before, a point in time.

A binary search over the queue's entries; each probe reads one store timestamp from the log. A
search holds copies of what it needs, so it may run on any thread while the queue grows.

A wrong answer would make a consumer skip messages, so the queue's files are checked as in any other
read, and only what is below the minimum counts as removed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum

from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import EntryMismatch, QueueDamaged
from aerobee.store.engine.queues.consume_queue import ConsumeQueue
from aerobee.store.engine.queues.sound_entries import EntriesUnsound, JudgedEntries
from aerobee.store.format.consume_queue_entry import unpack_entry
from aerobee.store.format.record import SYSFLAG_BORN_HOST_V6
from aerobee.store.format.record_layout import (
    HOST_V6_EXTRA,
    PHYSICAL_OFFSET_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
)

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_HEAD_BYTES = STORE_HOST_AT + HOST_V6_EXTRA

# Removed meanwhile: older than any requested time.
_REMOVED_MS = -1

ReadLog = Callable[[int, int], bytes]


class Boundary(StrEnum):
    """Which neighbour of the time is wanted."""

    LOWER = "LOWER"  # first message stored at or after it; none: the queue's end
    UPPER = "UPPER"  # last message stored at or before it; none: the queue's first


class TimeSearch:
    """A search in one queue at one moment."""

    def __init__(self, disk: Disk, queue: ConsumeQueue, read_log: ReadLog) -> None:
        self._disk = disk
        self._read_log = read_log
        self._queue = queue
        self._claim = queue.take_claim()
        self._min_offset = queue.served_from
        self._end = queue.end
        self._entries = JudgedEntries(
            disk,
            queue.directory,
            queue.entries_per_file,
            begin=queue.min_offset,
            written_end=queue.written_end,
            tail=bytes(queue.tail),
        )

    def run(self, timestamp_ms: int, boundary: Boundary) -> int:
        """[any thread] The queue offset; may block on the disk.

        Raises QueueDamaged, EntryMismatch."""
        self._queue.check_files(self._disk, self._claim)
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
        entry = self._entry(offset)
        if entry is None:
            return _REMOVED_MS
        position = unpack_entry(entry)[0]
        try:
            head = self._read_log(position, _HEAD_BYTES)
        except MessageNotFound:
            return _REMOVED_MS
        if _I64.unpack_from(head, PHYSICAL_OFFSET_AT)[0] != position:
            raise EntryMismatch(
                self._queue.topic, self._queue.queue_id, f"at log offset {position}"
            )
        (sys_flag,) = _I32.unpack_from(head, SYS_FLAG_AT)
        at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if sys_flag & SYSFLAG_BORN_HOST_V6 else 0)
        timestamp_ms: int = _I64.unpack_from(head, at)[0]
        return timestamp_ms

    def _entry(self, offset: int) -> bytes | None:
        """None if retention removed it meanwhile. Raises QueueDamaged."""
        queue = self._queue
        try:
            try:
                return self._entries.at(offset)
            except FileNotFoundError:  # even if only the file of a neighbour is missing
                return self._entries.at(offset, file_before_gone=True)
        except FileNotFoundError:
            # Read in the reverse of the order in which the end of a trim sets them.
            if queue.is_trimmed or offset < queue.min_offset:
                return None
            queue.damage = f"its file {self._entries.path} is missing"
        except EntriesUnsound as error:
            queue.damage = str(error)
        raise QueueDamaged(queue.topic, queue.queue_id, queue.damage)
