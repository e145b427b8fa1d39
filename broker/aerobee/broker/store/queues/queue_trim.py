"""Letting queues begin where the log does, after the log's oldest segments were removed.

Planned on the loop, done on another thread, finished on the loop. Only queues whose first message
lies below the log's new minimum are looked at; the others are passed over by one comparison.

What goes: the files whose last entry lies below the minimum, never a queue's last file. A queue
then begins at its first entry at or above the minimum; one that lies below it altogether is empty
and goes on counting where it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from aerobee.broker.store.disk import Disk, DiskFile
from aerobee.broker.store.queues.consume_queue import ConsumeQueue
from aerobee.broker.store.queues.queue_bounds import PRE_BLANK_SIZE
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE, unpack_entry


@dataclass(slots=True)
class QueueBeginning:
    """One queue as it was when the trim was taken, and what became of it."""

    queue: ConsumeQueue
    first_offset: int
    written_end: int
    end: int
    physical_end: int
    tail: bytes
    new_first_offset: int = 0
    new_min_offset: int = 0
    new_min_position: int = 0
    removed: list[str] = field(default_factory=list)


class QueueTrim:
    """Made by `QueueSet.take_trim`, run once, handed to `QueueSet.finish_trim`."""

    def __init__(
        self,
        disk: Disk,
        log_min_offset: int,
        queues: Sequence[ConsumeQueue],
        *,
        keep_files: bool = False,
    ) -> None:
        """With `keep_files` the queues' beginnings are only worked out."""
        self._disk = disk
        self._keep_files = keep_files
        self.log_min_offset = log_min_offset
        self.beginnings = [self._snapshot(queue) for queue in queues]
        self.removed_files = 0

    def _snapshot(self, queue: ConsumeQueue) -> QueueBeginning:
        wholly_below = queue.physical_end <= self.log_min_offset
        return QueueBeginning(
            queue,
            queue.first_offset,
            queue.written_end,
            queue.end,
            queue.physical_end,
            b"" if wholly_below else bytes(queue.tail),
        )

    def run(self) -> None:
        """[any thread] Raises OSError; then the trim may be run again, or dropped."""
        for beginning in self.beginnings:
            self._trim(beginning)

    def _trim(self, beginning: QueueBeginning) -> None:
        queue = beginning.queue
        first = beginning.first_offset
        beginning.new_first_offset = first
        # The last file stays, whatever it holds: it carries the queue's end.
        last_file = max(first, beginning.written_end - 1) // queue.entries_per_file
        while first // queue.entries_per_file < last_file and self._is_wholly_below(
            beginning, first
        ):
            gone = self._remove(queue.file_path(first), beginning)
            in_file = first % queue.entries_per_file
            if gone:
                # Also past files that are there: of several removals a power cut may undo any.
                beginning.new_first_offset = first - in_file + queue.entries_per_file
            first += queue.entries_per_file - in_file
        self._find_minimum(beginning, first)

    def _remove(self, path: str, beginning: QueueBeginning) -> bool:
        """Whether the file is gone now; an earlier trim may have removed it."""
        if self._disk.exists(path):
            if self._keep_files:
                return False
            self._disk.remove(path)
            self.removed_files += 1
            beginning.removed.append(path)
        return True

    def _is_wholly_below(self, beginning: QueueBeginning, first: int) -> bool:
        """Whether the file that begins with entry `first`, not the last one, holds nothing that
        the log still has. A file that is missing was removed before."""
        if beginning.physical_end <= self.log_min_offset:
            return True
        queue = beginning.queue
        try:
            file = self._disk.open_file(queue.file_path(first), read_only=True)
        except FileNotFoundError:
            return True
        try:
            last = queue.entries_per_file - 1
            return not self._is_kept(file.read_at(last * ENTRY_SIZE, ENTRY_SIZE))
        finally:
            file.close()

    def _is_kept(self, entry: bytes) -> bool:
        """Entries rise, behind blank ones, which have the physical offset 0 even where the log
        begins there."""
        if len(entry) < ENTRY_SIZE:
            return False
        position, size, _ = unpack_entry(entry)
        return position >= self.log_min_offset and size != PRE_BLANK_SIZE

    def _find_minimum(self, beginning: QueueBeginning, first: int) -> None:
        beginning.new_min_offset = beginning.end
        beginning.new_min_position = beginning.physical_end
        if beginning.physical_end <= self.log_min_offset:
            return
        entries = _Entries(self._disk, beginning)
        offsets = range(first, beginning.end)
        index = bisect_left(offsets, True, key=lambda offset: self._is_kept(entries.at(offset)))
        if index < len(offsets):
            beginning.new_min_offset = offsets[index]
            beginning.new_min_position = unpack_entry(entries.at(offsets[index]))[0]


class _Entries:
    """Single entries of a queue, from its files or its tail; keeps the file that it looked at."""

    def __init__(self, disk: Disk, beginning: QueueBeginning) -> None:
        self._disk = disk
        self._beginning = beginning
        self._path = ""
        self._file: DiskFile | None = None

    def at(self, offset: int) -> bytes:
        """Empty if there is none."""
        beginning = self._beginning
        if offset >= beginning.written_end:
            at = (offset - beginning.written_end) * ENTRY_SIZE
            return beginning.tail[at : at + ENTRY_SIZE]
        queue = beginning.queue
        path = queue.file_path(offset)
        if path != self._path:
            try:
                self._file = self._disk.open_file(path, read_only=True)
            except FileNotFoundError:
                self._file = None
            self._path = path
        if self._file is None:
            return b""
        return self._file.read_at(offset % queue.entries_per_file * ENTRY_SIZE, ENTRY_SIZE)
