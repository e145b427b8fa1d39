"""Consume queues as a recovery finds them in their files, and how it changes them.

Without a list of queue ends, a queue is accepted only if its files are contiguous, of the right
length, and contain only rising entries up to one point and zeros after it. Anything else makes it
damaged: it will be rebuilt from the log, so nothing here ever prevents a start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from aerobee.store.engine.disk import Disk, used_size
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.log.segment import Segment
from aerobee.store.engine.queues.consume_queue import (
    CONSUME_QUEUE_DIRECTORY,
    ConsumeQueue,
    queue_directory,
)
from aerobee.store.engine.queues.sound_entries import FiledEntries, is_queue_file
from aerobee.store.format.consume_queue_entry import (
    ENTRY_SIZE,
    PRE_BLANK_SIZE,
    unpack_entries,
    unpack_entry,
)
from aerobee.store.format.names import LIGHT_QUEUE_PREFIX, file_name, parse_file_name
from aerobee.store.format.record import Record, RecordCorrupt

_ENTRIES_PER_READ = 50_000
# This many of a queue's newest files are checked entry by entry, as in Apache's recovery. Of the
# others only the first and the last entry are compared with the log.
_FILES_CHECKED = 3


@dataclass(slots=True)
class LoadedQueues:
    """The content of the folder. Damaged queues are listed with the reason, not loaded. Untidy ones
    have a last file without any entry, which must be removed."""

    queues: list[ConsumeQueue] = field(default_factory=list)
    untidy: list[ConsumeQueue] = field(default_factory=list)
    damaged: dict[tuple[str, int], str] = field(default_factory=dict)


class _Damaged(Exception):
    """Why a queue's files cannot be used."""


def load_queues(disk: Disk, entries_per_file: int) -> LoadedQueues:
    """Every queue below `consumequeue/`. Files and folders with other names are ignored."""
    loaded = LoadedQueues()
    for topic in disk.list(CONSUME_QUEUE_DIRECTORY):
        if not topic.is_directory:
            continue
        for entry in disk.list(f"{CONSUME_QUEUE_DIRECTORY}/{topic.name}"):
            if not (entry.is_directory and entry.name.isascii() and entry.name.isdigit()):
                continue
            name = topic.name, int(entry.name)
            loader = _Loader(disk, *name, entries_per_file)
            try:
                queue = loader.load()
            except (_Damaged, OSError) as error:
                loaded.damaged[name] = str(error)
                continue
            if loader.untidy:
                loaded.untidy.append(queue)
            if queue.end:
                loaded.queues.append(queue)
    return loaded


class _Loader:
    """Loads one queue."""

    def __init__(self, disk: Disk, topic: str, queue_id: int, entries_per_file: int) -> None:
        self._disk = disk
        self._queue = ConsumeQueue(topic, queue_id, entries_per_file)
        self._entries = FiledEntries(disk, self._queue.directory, entries_per_file)
        self._entries_per_file = entries_per_file
        self._physical_end = 0
        self.untidy = False

    def load(self) -> ConsumeQueue:
        firsts = self._file_firsts()
        if not firsts:
            return self._queue
        start = max(0, len(firsts) - _FILES_CHECKED)
        while start and not self._has_entries(firsts[start]):
            start -= 1
        end = self._walk(firsts[start:])
        queue = self._queue
        self.untidy |= end <= firsts[-1]
        if self._physical_end == 0:
            if end > firsts[0]:
                raise _Damaged("it has blank entries only")
            return queue
        queue.first_offset = queue.min_offset = firsts[0]
        queue.end = queue.written_end = queue.next_offset = end
        queue.physical_end = self._physical_end
        return queue

    def _file_firsts(self) -> list[int]:
        """The first entry of each file."""
        file_bytes = self._entries_per_file * ENTRY_SIZE
        files = [entry for entry in self._disk.list(self._queue.directory) if is_queue_file(entry)]
        if files and files[-1].size_bytes == 0:
            files.pop()
            self.untidy = True
        firsts: list[int] = []
        for file in files:
            base = parse_file_name(file.name)
            if file.size_bytes != file_bytes:
                raise _Damaged(f"{file.name} has {file.size_bytes} bytes, not {file_bytes}")
            if base % file_bytes:
                raise _Damaged(f"{file.name} does not begin at a multiple of {file_bytes}")
            first = base // ENTRY_SIZE
            if firsts and first != firsts[-1] + self._entries_per_file:
                raise _Damaged(f"a file is missing before {file.name}")
            firsts.append(first)
        return firsts

    def _has_entries(self, first: int) -> bool:
        return used_size(self._entries.read(first, first + 1)) > 0

    def _walk(self, firsts: Sequence[int]) -> int:
        """The end of the queue. Raises _Damaged for anything but entries, then zeros."""
        ended_at: int | None = None
        for first in firsts:
            entry = first
            while entry < first + self._entries_per_file:
                count = min(_ENTRIES_PER_READ, first + self._entries_per_file - entry)
                data = self._entries.read(entry, entry + count)
                if len(data) != count * ENTRY_SIZE:
                    raise _Damaged(f"the file with entry {entry} is short")
                usable = self._usable(data, entry) if ended_at is None else 0
                if usable < count:
                    ended_at = entry + usable if ended_at is None else ended_at
                    if used_size(data[usable * ENTRY_SIZE :]):
                        raise _Damaged(f"entries follow past the end at entry {ended_at}")
                entry += count
        return firsts[-1] + self._entries_per_file if ended_at is None else ended_at

    def _usable(self, data: bytes, entry: int) -> int:
        """How many valid entries `data` begins with."""
        positions, sizes, _ = unpack_entries(data)
        valid = (positions >= 0) & (sizes > 0)
        usable = len(valid) if valid.all() else int(valid.argmin())
        real = sizes[:usable] != PRE_BLANK_SIZE
        starts = positions[:usable][real]
        ends = starts + sizes[:usable][real]
        if len(starts):
            if starts[0] < self._physical_end or np.any(starts[1:] < ends[:-1]):
                raise _Damaged(f"entries at or after {entry} are out of order")
            self._physical_end = int(ends[-1])
        return usable


# ---------------------------------------------------------------------------------- mending


def entries_match(
    disk: Disk, files: FileCache, queue: ConsumeQueue, segments: list[Segment]
) -> bool:
    """Whether the first and the last entry of each file of the queue point to intact records of
    this queue and offset. Entries of records removed by retention pass.
    """
    if queue.topic.startswith(LIGHT_QUEUE_PREFIX):
        return True
    for first in range(queue.first_offset, queue.written_end, queue.entries_per_file):
        end = min(first + queue.entries_per_file, queue.written_end)
        for offset in {first, end - 1}:
            if not _entry_matches(disk, files, queue, segments, offset):
                return False
    return True


def _entry_matches(
    disk: Disk, files: FileCache, queue: ConsumeQueue, segments: list[Segment], offset: int
) -> bool:
    position, size, _ = unpack_entry(queue.read_entries(files, offset, 1))
    if position < segments[0].base or size == PRE_BLANK_SIZE:
        return position >= 0
    data = _log_bytes(disk, segments, position, size)
    if data is None:
        return False
    try:
        record = Record(data, 0, size)
        return (
            record.queue_id == queue.queue_id
            and record.queue_offset == offset
            and record.topic == queue.topic
        )
    except RecordCorrupt:
        return False


def _log_bytes(disk: Disk, segments: list[Segment], position: int, size: int) -> bytes | None:
    index = (position - segments[0].base) // segments[0].size
    if index >= len(segments):
        return None
    segment = segments[index]
    at = position - segment.base
    if size <= 0 or at + size > segment.size:
        return None
    file = disk.open_file(segment.path, read_only=True)
    data = file.read_at(at, size)
    file.close()
    return data


def cut_queue(files: FileCache, queue: ConsumeQueue, log_end: int) -> None:
    """Drop the entries whose records are at or after `log_end`; in memory only.

    Such entries are in files: nothing after them can have been dispatched.
    """
    assert not queue.tail

    def position_of(offset: int) -> int:
        return unpack_entry(queue.read_entries(files, offset, 1))[0]

    offsets = range(queue.first_offset, queue.end)
    kept = bisect_left(offsets, log_end, key=position_of)
    end = queue.first_offset + kept
    physical_end = 0
    if kept:
        position, size, _ = unpack_entry(queue.read_entries(files, end - 1, 1))
        physical_end = position + size
    queue.end = queue.written_end = queue.next_offset = end
    queue.min_offset = min(queue.min_offset, end)
    queue.physical_end = physical_end


def trim_queue_files(disk: Disk, queue: ConsumeQueue, entries_per_file: int) -> None:
    """Make the queue's files end where the queue does: zeros after it, no file without entries."""
    end = queue.written_end
    in_file = end % entries_per_file
    if in_file:
        file = disk.open_file(queue.file_path(end))
        rest = file.read_at(in_file * ENTRY_SIZE, (entries_per_file - in_file) * ENTRY_SIZE)
        if stale := used_size(rest):
            file.write_at(in_file * ENTRY_SIZE, (bytes(stale),))
            file.datasync()
        file.close()
        end += entries_per_file - in_file
    remove_queue_files(disk, queue.topic, queue.queue_id, from_entry=end)


def counted_end(
    disk: Disk, topic: str, queue_id: int, entries_per_file: int, *, log_end: int
) -> int:
    """How far a queue has certainly counted, according to what is left of its last file: after the
    last entry that may point into a log ending at `log_end`. 0 if there is no file. Raises
    OSError."""
    directory = queue_directory(topic, queue_id)
    file_bytes = entries_per_file * ENTRY_SIZE
    names = [
        entry.name
        for entry in disk.list(directory)
        if is_queue_file(entry)
        and entry.size_bytes
        and parse_file_name(entry.name) % file_bytes == 0
    ]
    if not names:
        return 0
    file = disk.open_file(f"{directory}/{names[-1]}", read_only=True)
    data = file.read_at(0, file_bytes)
    file.close()
    positions, sizes, _ = unpack_entries(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE])
    plausible = (positions >= 0) & (sizes > 0) & (positions < log_end)
    plausible &= (sizes == PRE_BLANK_SIZE) | (sizes <= log_end - positions)
    last = np.flatnonzero(plausible)
    count = int(last[-1]) + 1 if len(last) else 0
    return parse_file_name(names[-1]) // ENTRY_SIZE + count


def remove_queue_files(disk: Disk, topic: str, queue_id: int, *, from_entry: int = 0) -> None:
    """Remove the queue's files that begin at or after `from_entry`, and empty ones."""
    directory = queue_directory(topic, queue_id)
    first_removed = file_name(from_entry * ENTRY_SIZE)
    removed = [
        entry.name
        for entry in disk.list(directory)
        if is_queue_file(entry) and (entry.name >= first_removed or entry.size_bytes == 0)
    ]
    for name in reversed(removed):
        disk.remove(f"{directory}/{name}")
    if removed:
        disk.fsync_directory(directory)
