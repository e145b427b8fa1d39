"""The log's files as a recovery finds them, and how it changes them.

Nothing that was read as a complete record is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from aerobee.store.engine.disk import Advice, DirectoryEntry, Disk, DiskFile, used_size
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, Segment
from aerobee.store.engine.log.segment_supply import SPARE_PREFIX
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.names import FileNameIllegal, parse_file_name
from aerobee.store.format.record import Record, RecordCorrupt

_CHUNK_BYTES = 1 << 20
_PAGE_BYTES = 4096
# The maximum size of a record's head: everything before the body, both hosts IPv6.
_HEAD_BYTES = 112


# ---------------------------------------------------------------------------------- finding


def load_segments(disk: Disk, segment_bytes: int, *, read_only: bool) -> list[Segment]:
    """All segments, assumed to be full. Empty last files are removed; folders are ignored.

    Raises StoreUnusable for other lengths, other names, and a missing segment in between.
    """
    entries = [
        entry
        for entry in disk.list(COMMIT_LOG_DIRECTORY)
        if not entry.is_directory and not entry.name.startswith(SPARE_PREFIX)
    ]
    while entries and entries[-1].size_bytes == 0 and _is_segment(entries[-1]):
        if not read_only:
            disk.remove(f"{COMMIT_LOG_DIRECTORY}/{entries[-1].name}")
        entries.pop()
    segments = [Segment(_base(entry, segment_bytes), segment_bytes, 0) for entry in entries]
    for segment, following in pairwise(segments):
        if segment.base + segment_bytes != following.base:
            raise StoreUnusable(
                f"the log has a hole between {segment.path} and {following.path}: "
                "restore the missing segments"
            )
    for segment in segments:
        segment.wrote = segment_bytes
    return segments


def _is_segment(entry: DirectoryEntry) -> bool:
    try:
        parse_file_name(entry.name)
    except FileNameIllegal:
        return False
    return True


def _base(entry: DirectoryEntry, segment_bytes: int) -> int:
    try:
        base = parse_file_name(entry.name)
    except FileNameIllegal:
        raise StoreUnusable(
            f"{COMMIT_LOG_DIRECTORY}/{entry.name} does not belong there: move it away"
        ) from None
    if entry.size_bytes != segment_bytes:
        raise StoreUnusable(
            f"{COMMIT_LOG_DIRECTORY}/{entry.name} has {entry.size_bytes} bytes, not "
            f"{segment_bytes}: open the store with the segment size that it was written with"
        )
    return base


def first_segment_after_close(segments: Sequence[Segment], queues_physical_end: int) -> int:
    """Index of the last segment that begins at or below what the queues know of the log."""
    for index in range(len(segments) - 1, 0, -1):
        if segments[index].base <= queues_physical_end:
            return index
    return 0


def first_segment_after_crash(
    disk: Disk, segments: Sequence[Segment], checkpoint: Checkpoint
) -> int:
    """Index of the newest segment that begins with a record stored before the checkpoint."""
    flushed_ms = checkpoint.min_timestamp()
    for index in range(len(segments) - 1, 0, -1):
        store_timestamp_ms = first_store_timestamp_ms(disk, segments[index])
        if 0 < store_timestamp_ms <= flushed_ms:
            return index
    return 0


def first_store_timestamp_ms(disk: Disk, segment: Segment) -> int:
    """The store time of the segment's first record; 0 if it does not begin with one."""
    file = disk.open_file(segment.path, read_only=True)
    size = int.from_bytes(file.read_at(0, 4), "big", signed=True)
    if not _HEAD_BYTES <= size <= segment.size:
        size = _HEAD_BYTES
    try:
        return Record(file.read_at(0, size)).store_timestamp_ms
    except RecordCorrupt:
        return 0


# ---------------------------------------------------------------------------------- mending


def clear_behind(disk: Disk, segment: Segment, *, read_only: bool) -> int:
    """Zero what follows the segment's used part, so that nothing there looks like a record.

    Returns how many bytes were there, up to the last non-zero one.
    """
    file = disk.open_file(segment.path, read_only=read_only)
    stale = 0
    at = file.next_data(segment.wrote)
    while at is not None and at < segment.size:
        data = file.read_at(at, _chunk_size(at, segment.size))
        used = used_size(data)
        if used:
            stale = at + used - segment.wrote
            if not read_only:
                file.write_at(at, (bytes(used),))
        at = file.next_data(at + len(data))
    file.close()
    return stale


def remove_segments(disk: Disk, segments: Sequence[Segment], *, read_only: bool) -> int:
    """Remove whole segments, newest first; returns how many bytes of them were in use."""
    used = 0
    for segment in reversed(segments):
        file = disk.open_file(segment.path, read_only=True)
        used += _used_bytes(file, segment.size)
        file.close()
        if not read_only:
            disk.remove(segment.path)
    return used


def _used_bytes(file: DiskFile, size: int) -> int:
    used = 0
    at = file.next_data(0)
    while at is not None and at < size:
        data = file.read_at(at, _chunk_size(at, size))
        if in_chunk := used_size(data):
            used = at + in_chunk
        at = file.next_data(at + len(data))
    return used


def _chunk_size(at: int, size: int) -> int:
    """Up to the next multiple of the chunk: a read that ends inside a page leaves the rest of it in
    the page cache, where it looks like data, and the walk would never find a hole."""
    return min(_CHUNK_BYTES - at % _CHUNK_BYTES, size - at)


def read_from_disk(disk: Disk, segments: Sequence[Segment], start: int) -> None:
    """Make reads after the log offset `start` come from disk, not from the page cache.

    After a failed sync the page cache has bytes that are not on disk, in clean pages that no later
    sync would write.
    """
    for segment in segments:
        file = disk.open_file(segment.path, read_only=True)
        at = max(0, start - segment.base)
        file.advise(at - at % _PAGE_BYTES, 0, Advice.DONT_NEED)
        file.close()


def sync_segments(disk: Disk, segments: Sequence[Segment]) -> None:
    """What was read back may be only in the page cache: write it to disk."""
    for segment in segments:
        file = disk.open_file(segment.path)
        file.datasync()
        file.close()
    disk.fsync_directory(COMMIT_LOG_DIRECTORY)
