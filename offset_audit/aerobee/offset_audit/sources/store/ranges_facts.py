"""What readers of one store must know in advance: where its log begins and ends, how far the index
goes, with which settings its files were written. Determined once, on the driver, with few reads.

A store that was not stopped cleanly, or is in use, ends in what a crash left: the log there ends
with the last whole record that no other follows, and what queue and index files have of later ones
is not a fault, nor is what they lack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from aerobee.offset_audit.sources.store.config_files import read_topics
from aerobee.offset_audit.sources.store.files import StoreFile, index_files, log_segments
from aerobee.offset_audit.sources.store.folders import INDEX, StoreFolder
from aerobee.offset_audit.sources.store.index_geometry import (
    IndexFile,
    find_geometry,
)
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.offset_audit.sources.store.ranges_index import IndexedReach
from aerobee.offset_audit.sources.store.ranges_queues import LogBounds
from aerobee.offset_audit.sources.store.record_search import Search
from aerobee.store.format.index_file import (
    HEADER_SIZE,
    INDEX_ENTRY_SIZE,
    SLOT_SIZE,
    IndexGeometry,
    IndexHeader,
)
from aerobee.store.format.scan import ScanEnd, ScanResult, scan_records
from aerobee.store.format.tags import TagsCodes

OPEN_END: Final = 1 << 62
"""A log's end where nothing after it needs to be left out."""

ABORT_FILE: Final = "abort"
_INDEX_MARK: Final = "index.end"
_MINUTE_MS: Final = 60_000
_TAIL_BYTES: Final = (256 * 1024, 32 * 1024 * 1024)
"""How much of a log's end is read: little, and more if no whole record begins in that."""
_FIRST_BYTES: Final = 8 * 1024 * 1024
_READ_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Facts about one store; small, because they are sent with each of its partitions."""

    store: StoreFolder
    segment_bytes: int
    is_clean: bool
    bounds: LogBounds
    batch_topics: frozenset[str]
    index_geometry: IndexGeometry | None
    indexed: IndexedReach
    whole_minutes: tuple[int, int]
    """Unix minutes [first, end) of which the log has all records that it ever had."""
    last_stored_ms: int
    """Store time of the log's last record; 0 without one."""
    delays_ms: tuple[int, ...] | None = None

    def tags(self) -> TagsCodes:
        return TagsCodes(delays_ms=self.delays_ms)


def store_facts(
    store: StoreFolder,
    *,
    delays_ms: tuple[int, ...] | None = None,
    index_slots: int | None = None,
) -> StoreFacts:
    """Examine a store; `index_slots` gives what index files may not show."""
    segments = log_segments(store)
    is_clean = not store.path(ABORT_FILE).exists()
    begin = segments[0].base if segments else 0
    end, last_stored_ms = _log_end(segments, is_clean)
    files = index_files(store)
    geometry = find_geometry(files) if index_slots is None else _with_slots(files, index_slots)
    return StoreFacts(
        store,
        usual_size(segments),
        is_clean,
        LogBounds(begin, end),
        _batch_topics(store),
        geometry,
        _indexed(store, files, begin, end, is_clean=is_clean),
        (_first_whole_minute(segments), last_stored_ms // _MINUTE_MS),
        last_stored_ms,
        delays_ms,
    )


def _batch_topics(store: StoreFolder) -> frozenset[str]:
    """Topics whose queues lie in `batchconsumequeue/`; none where the table cannot be read."""
    topics, _ = read_topics(store)
    return frozenset(topic.name for topic in topics if topic.is_batch)


def usual_size(files: Sequence[StoreFile]) -> int:
    """The length of the files of a sequence: that of most of them, or the distance between their
    names."""
    votes = Counter(file.size for file in files)
    votes.update(after.base - before.base for before, after in pairwise(files))
    return votes.most_common(1)[0][0] if votes else 0


# ------------------------------------------------------------------------------------ the log


def _log_end(segments: Sequence[StoreFile], is_clean: bool) -> tuple[int, int]:
    """Where the log ends (OPEN_END after a clean stop), and its last record's store time."""
    for segment in reversed(segments):
        try:
            file = OpenFile(segment)
        except FileNotFoundError:
            continue
        with file:
            end, stored_ms = _end_in(file, segment)
        if end > segment.base:
            return (OPEN_END if is_clean else end), stored_ms
    return (OPEN_END if is_clean else 0), 0


def _end_in(file: OpenFile, segment: StoreFile) -> tuple[int, int]:
    """The end of the last whole record of a segment, and its store time."""
    used_end = file.used_end(segment.base, segment.end)
    for tail_bytes in _TAIL_BYTES:
        begin = max(segment.base, used_end - tail_bytes)
        end, stored_ms = _end_from(file, segment, begin, used_end)
        if end > segment.base:
            break
    return end, stored_ms


def _end_from(file: OpenFile, segment: StoreFile, begin: int, used_end: int) -> tuple[int, int]:
    """The same, by the records that begin from `begin` on; the segment's base if none does."""
    search = Search(file, segment.base, segment.end)
    position = search.first_from(begin)
    end, stored_ms = segment.base, 0
    tags = TagsCodes()
    while position is not None and position < used_end:
        result = _scan(file, position, segment.end, tags)
        position += result.valid_end
        if result.count:
            end, stored_ms = position, int(result.store_timestamps[-1])
        if result.end is ScanEnd.BUFFER_END:
            continue
        if result.end is ScanEnd.BLANK and search.is_blank(position):
            return segment.end, stored_ms
        position = search.next_sound(position + 1)
    return end, stored_ms


def _scan(file: OpenFile, position: int, segment_end: int, tags: TagsCodes) -> ScanResult:
    """Whole records from `position` on; `end` is BUFFER_END only if the read was too short."""
    wanted = _READ_BYTES
    while True:
        data = file.read(position, min(position + wanted, segment_end))
        result = scan_records(data, check_crc=True, tags=tags)
        left = segment_end - position - result.valid_end
        is_cut = result.end is ScanEnd.TRUNCATED and result.end_size <= left
        if not is_cut or position + len(data) >= segment_end:
            return result
        if result.count:
            return replace(result, end=ScanEnd.BUFFER_END)
        wanted = max(wanted * 2, result.end_size)


def _first_whole_minute(segments: Sequence[StoreFile]) -> int:
    """The minute after that of the log's first record; 0 for a log that begins at 0."""
    if not segments or segments[0].base == 0:
        return 0
    try:
        with OpenFile(segments[0]) as file:
            search = Search(file, segments[0].base, segments[0].end)
            first = search.first_from(segments[0].base)
            end = min((first or 0) + _FIRST_BYTES, segments[0].end)
            data = b"" if first is None else file.read(first, end)
    except FileNotFoundError:
        return 0
    result = scan_records(data, check_crc=False, tags=TagsCodes())
    return int(result.store_timestamps[0]) // _MINUTE_MS + 1 if result.count else 0


# ---------------------------------------------------------------------------------- the index


def _indexed(
    store: StoreFolder,
    files: Sequence[StoreFile],
    begin: int,
    end: int,
    *,
    is_clean: bool,
) -> IndexedReach:
    """For which records the index should have all keys.

    A broker stops cleanly only after it has indexed everything: then the index has all of the log,
    even if none of its files is left. Aerobee's own mark says how far its index went, for it may be
    switched off. After a crash, the index has what is between its first and its last key.
    """
    headers = [header for header in map(_header, files) if header is not None]
    first = headers[0].begin_physical_offset if headers else 0
    last = headers[-1].end_physical_offset if headers else 0
    if not is_clean:
        return IndexedReach(max(begin, first), min(last, end)) if headers else IndexedReach()
    if not files and not store.path(INDEX).is_dir():
        return IndexedReach()
    marked = _marked_end(store)
    return IndexedReach(begin, end if marked is None else min(max(marked, last + 1), end))


def _with_slots(files: Sequence[StoreFile], slots: int) -> IndexGeometry | None:
    """The rest follows from the files' length."""
    usual = usual_size(files) if files else 0
    entries = (usual - HEADER_SIZE - SLOT_SIZE * slots) // INDEX_ENTRY_SIZE
    return IndexGeometry(slots, entries) if entries >= 2 else None


def _header(file: StoreFile) -> IndexHeader | None:
    """None for a file without keys, or without a credible header."""
    try:
        index = IndexFile(file)
    except FileNotFoundError:
        return None
    header = index.header()
    index.close()
    if header is None or not header.has_entries:
        return None
    return header if 0 <= header.begin_physical_offset <= header.end_physical_offset else None


def _marked_end(store: StoreFolder) -> int | None:
    """None without a readable mark."""
    try:
        text = store.path(_INDEX_MARK).read_bytes().split(b" ", 1)[0]
    except OSError:
        return None
    return int(text) if text.isdigit() and len(text) < 19 else None
