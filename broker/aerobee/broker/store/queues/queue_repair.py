"""What recovery does to consume queues once it knows where the log ends."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from aerobee.broker.store.disk import Disk, used_size
from aerobee.broker.store.file_cache import FileCache
from aerobee.broker.store.log.segment import Segment
from aerobee.broker.store.queues.consume_queue import ConsumeQueue, queue_directory
from aerobee.broker.store.queues.queue_check import is_queue_file
from aerobee.store_format.consume_queue_entry import (
    ENTRY_SIZE,
    PRE_BLANK_SIZE,
    unpack_entries,
    unpack_entry,
)
from aerobee.store_format.names import LIGHT_QUEUE_PREFIX, file_name, parse_file_name
from aerobee.store_format.record import Record, RecordCorrupt


def entries_match(
    disk: Disk, files: FileCache, queue: ConsumeQueue, segments: list[Segment]
) -> bool:
    """Whether the first and the last entry of each file of the queue point to whole records of this
    queue and offset. Entries of records that retention removed pass.
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
    """Drop the entries whose records lie at or after `log_end`; in memory only.

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
    """Let the queue's files end where the queue does: zeros after it, no file without an entry."""
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
    """How far a queue has surely counted, by what is left of its last file: after the last entry
    that may point into a log that ends at `log_end`. 0 if there is no file. Raises OSError."""
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
