"""Single entries of a queue that decide what may go, each judged before it is believed.

Entries have no checksum. One that was lost or changed would let a search for the first message the
log still has end anywhere, and messages that are there would never be served again. So each entry
is read together with those around it, and counts only if all of them may stand where they do.
"""

from __future__ import annotations

from aerobee.broker.store.disk import Disk, DiskFile
from aerobee.broker.store.queues.consume_queue import ConsumeQueue
from aerobee.broker.store.queues.queue_check import are_sound
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE

# As many on each side of the entry in question are read with it.
_NEIGHBOURS = 8


class EntriesUnsound(Exception):
    """What a queue's files hold cannot be its entries; the text says what of it."""


class JudgedEntries:
    """Entries [begin, end) of a queue as it was at one moment: from its files, and from `tail`,
    which begins with entry `written_end`. Keeps the file that it looked at open."""

    def __init__(
        self, disk: Disk, queue: ConsumeQueue, *, begin: int, written_end: int, tail: bytes
    ) -> None:
        """`queue` is asked for paths only."""
        self._disk = disk
        self._queue = queue
        self.begin = begin
        """No neighbour is looked at before it."""
        self._written_end = written_end
        self._end = written_end + len(tail) // ENTRY_SIZE
        self._tail = tail
        self._file: DiskFile | None = None
        self.path = ""
        """The file that was looked at last."""

    def at(self, offset: int, *, file_before_gone: bool = False) -> bytes:
        """[any thread] Raises EntriesUnsound, FileNotFoundError, OSError."""
        start = max(self.begin, offset - _NEIGHBOURS)
        if file_before_gone:
            start = max(start, offset - offset % self._queue.entries_per_file)
        end = min(self._end, offset + 1 + _NEIGHBOURS)
        data = self._read(start, end)
        if len(data) != (end - start) * ENTRY_SIZE or not are_sound(data):
            raise EntriesUnsound(f"its entries around {offset} are no entries")
        at = (offset - start) * ENTRY_SIZE
        return data[at : at + ENTRY_SIZE]

    def _read(self, start: int, end: int) -> bytes:
        parts: list[bytes] = []
        while start < min(end, self._written_end):
            in_file = start % self._queue.entries_per_file
            piece_end = min(end, self._written_end, start - in_file + self._queue.entries_per_file)
            path = self._queue.file_path(start)
            if path != self.path or self._file is None:
                self.path, self._file = path, None
                self._file = self._disk.open_file(path, read_only=True)
            size = (piece_end - start) * ENTRY_SIZE
            parts.append(self._file.read_at(in_file * ENTRY_SIZE, size))
            start = piece_end
        if start < end:
            first = self._written_end
            parts.append(self._tail[(start - first) * ENTRY_SIZE : (end - first) * ENTRY_SIZE])
        return b"".join(parts)
