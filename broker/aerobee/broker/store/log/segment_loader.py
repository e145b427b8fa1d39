"""The log's files as they lie in the folder, before recovery looks into them."""

from __future__ import annotations

from itertools import pairwise

from aerobee.broker.store.disk import DirectoryEntry, Disk
from aerobee.broker.store.errors import StoreUnusable
from aerobee.broker.store.log.preallocation import SPARE_PREFIX
from aerobee.broker.store.log.segment import COMMIT_LOG_DIRECTORY, Segment
from aerobee.store_format.names import FileNameIllegal, parse_file_name


def load_segments(disk: Disk, segment_bytes: int, *, read_only: bool) -> list[Segment]:
    """All segments, taken as full. Empty last files are removed; folders are passed over.

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
            f"{segment_bytes}: open the store with the segment size it was written with"
        )
    return base
