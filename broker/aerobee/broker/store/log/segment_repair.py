"""What recovery does to the log's files: nothing that was read as a whole record is touched."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.broker.store.disk import Advice, Disk, DiskFile
from aerobee.broker.store.log.segment import COMMIT_LOG_DIRECTORY, Segment
from aerobee.broker.store.zeros import used_size

_CHUNK_BYTES = 1 << 20
_PAGE_BYTES = 4096


def clear_behind(disk: Disk, segment: Segment, *, read_only: bool) -> int:
    """Zero what lies after the segment's used part, so that nothing there can pass for a record.

    Returns how many bytes, up to the last that was not zero, lay there.
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
    """Remove whole segments, newest first; returns how many bytes in them were in use."""
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
    the page cache, where it passes for data, and the walk would never find a hole."""
    return min(_CHUNK_BYTES - at % _CHUNK_BYTES, size - at)


def read_from_disk(disk: Disk, segments: Sequence[Segment], start: int) -> None:
    """Let what lies after the log offset `start` be read from the disk, not from the page cache.

    After a failed sync the page cache shows bytes that are not on the disk, as clean ones that no
    later sync would write.
    """
    for segment in segments:
        file = disk.open_file(segment.path, read_only=True)
        at = max(0, start - segment.base)
        file.advise(at - at % _PAGE_BYTES, 0, Advice.DONT_NEED)
        file.close()


def sync_segments(disk: Disk, segments: Sequence[Segment]) -> None:
    """What was read back may be in the page cache only: bring it to the disk."""
    for segment in segments:
        file = disk.open_file(segment.path)
        file.datasync()
        file.close()
    disk.fsync_directory(COMMIT_LOG_DIRECTORY)
