"""Reads the log once, in order: whole records, and everything that is not one.

Iterating yields the whole records chunk by chunk; meanwhile damaged places become regions, the end
of the log is found, and the log's own rules are checked: each record names its own position, store
times do not fall, fillers reach to their segment's end, only zeros follow.

On a live folder the bytes at the log's end change while they are read: incomplete ones there are
read a second time, and are not damage unless whole records follow.

After other bytes, the next whole record is searched for. A record counts only if it is whole, its
body matches its CRC, and it names the position where it was found: bytes inside a message's body
that look like a record name another.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from aerobee.store.engine.disk import Disk, DiskFile, used_size
from aerobee.store.format.property_crc import (
    PROPERTY_CRC_NAME,
    PROPERTY_CRC_SIZE,
    property_crc_matches,
)
from aerobee.store.format.record_arrays import byte_field, read_field
from aerobee.store.format.record_layout import (
    BLANK_SIZE_MIN,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_SIZE_MIN,
    RecordCorrupt,
)
from aerobee.store.format.record_view import Record
from aerobee.store.format.scan import ScanEnd, ScanResult, scan_records
from aerobee.store.format.tags import TagsCodes
from aerobee.store.repair.damage import Damage, DamagedRegion, HeaderFix, Int64Array
from aerobee.store.repair.findings import Findings, Kind
from aerobee.store.repair.folder import Folder, SegmentFile

_CHUNK_BYTES = 1 << 22
# How many bytes of a candidate are needed to see its position in the log.
_HEAD_BYTES = PHYSICAL_OFFSET_AT + 8
_RECORD_MAGICS = tuple(magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2))
_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big", signed=True)


class LogSearch:
    """Searches in the segments of one log. `is_live` forbids hints to the page cache."""

    def __init__(self, disk: Disk, segment_bytes: int, *, is_live: bool) -> None:
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._is_live = is_live

    def is_boundary(self, segment: SegmentFile, file: DiskFile, at: int) -> bool:
        """Whether a whole record, or a filler that reaches to the end, starts at byte `at`."""
        if not 0 <= at <= self._segment_bytes - BLANK_SIZE_MIN:
            return False
        head = file.read_at(at, _HEAD_BYTES)
        return self._is_boundary(segment, file, at, head)

    def _is_boundary(self, segment: SegmentFile, file: DiskFile, at: int, head: bytes) -> bool:
        magic = head[MAGIC_AT : MAGIC_AT + 4]
        size = int.from_bytes(head[:4], "big", signed=True)
        if magic == _BLANK_MAGIC:
            return at + size == self._segment_bytes
        if magic not in _RECORD_MAGICS or not RECORD_SIZE_MIN <= size <= self._segment_bytes - at:
            return False
        said = int.from_bytes(head[PHYSICAL_OFFSET_AT:_HEAD_BYTES], "big", signed=True)
        if len(head) < _HEAD_BYTES or said != segment.base + at:
            return False
        try:
            Record(file.read_at(at, size), 0, size).check()
        except RecordCorrupt:
            return False
        return True

    def next_boundary(self, segment: SegmentFile, file: DiskFile, start: int) -> int | None:
        """The first boundary at or after byte `start` of the segment; None if there is none."""
        size = min(segment.file_bytes, self._segment_bytes)
        at = self._data_from(file, start, size)
        while at is not None:
            # The overlap lets a head that is cut by a chunk's end be seen in the next chunk.
            data = file.read_at(at, min(_CHUNK_BYTES + _HEAD_BYTES, size - at))
            if used_size(data):
                found = self._first_in(segment, file, at, data)
                if found is not None:
                    return found
            at = self._data_from(file, at + _CHUNK_BYTES, size)
        return None

    def _first_in(self, segment: SegmentFile, file: DiskFile, at: int, data: bytes) -> int | None:
        best: int | None = None
        for magic in (*_RECORD_MAGICS, _BLANK_MAGIC):
            position = data.find(magic, MAGIC_AT)
            while position >= 0 and (best is None or at + position - MAGIC_AT < best):
                start = position - MAGIC_AT
                head = data[start : start + _HEAD_BYTES]
                if self._is_boundary(segment, file, at + start, head):
                    best = at + start
                    break
                position = data.find(magic, position + 1)
        return best

    def _data_from(self, file: DiskFile, at: int, size: int) -> int | None:
        """The first position at or after `at` where bytes may be set."""
        if at >= size:
            return None
        if self._is_live:
            return at
        data = file.next_data(at)
        if data is None or data >= size:
            return None
        # A hole ends at a page; the requested position may be inside one.
        return max(at, data)

    def has_record(self, segments: Sequence[SegmentFile]) -> bool:
        """Whether any of the segments contains a whole record."""
        for segment in segments:
            if segment.path is None or segment.is_foreign:
                continue
            file = self._disk.open_file(segment.path, read_only=True)
            if self.next_boundary(segment, file, 0) is not None:
                return True
        return False

    def used_end(self, segment: SegmentFile, start: int) -> tuple[int, int]:
        """The end of the last nonzero byte at or after `start`, or `start`; and the number of such
        bytes."""
        if segment.path is None or start >= segment.file_bytes:
            return start, 0
        file = self._disk.open_file(segment.path, read_only=True)
        end, count = start, 0
        size = segment.file_bytes
        at = self._data_from(file, start, size)
        while at is not None:
            # Up to a multiple of the chunk: a read that ends inside a page would cache the rest.
            data = file.read_at(at, min(_CHUNK_BYTES - at % _CHUNK_BYTES, size - at))
            if used := used_size(data):
                end = at + used
                count += len(data) - data.count(0)
            at = self._data_from(file, at + len(data), size)
        return end, count


_FIXES_MAX = 100_000

_KIND_OF_END = {
    ScanEnd.BAD_CRC: Kind.LOG_RECORD_CRC,
    ScanEnd.BAD_LENGTHS: Kind.LOG_RECORD_LENGTHS,
    ScanEnd.TRUNCATED: Kind.LOG_RECORD_LENGTHS,
    ScanEnd.BAD_TOPIC: Kind.LOG_RECORD_TOPIC,
    ScanEnd.BAD_MAGIC: Kind.LOG_RECORD_MAGIC,
    ScanEnd.ZERO: Kind.LOG_HOLE,
    ScanEnd.BLANK: Kind.LOG_BLANK_WRONG,
    ScanEnd.BUFFER_END: Kind.LOG_HOLE,
}

OnBytes = Callable[[int], None]
"""Called with the number of log bytes passed."""


@dataclass(frozen=True, slots=True)
class CheckedChunk:
    """Whole records; those of `result` are at `position` + their own positions."""

    position: int
    result: ScanResult
    data: bytes


@dataclass(slots=True)
class LogTotals:
    """What the walk counted. Times are store times, the highest and the lowest one seen."""

    records: int = 0
    record_bytes: int = 0
    first_timestamp_ms: int = 0
    last_timestamp_ms: int = 0


class LogCheck:
    """Iterate once. Then `damage.log_end` is where the log ends, and `stopped_by` why."""

    def __init__(
        self,
        folder: Folder,
        findings: Findings,
        damage: Damage,
        *,
        tags: TagsCodes,
        on_bytes: OnBytes,
        chunk_bytes: int = _CHUNK_BYTES,
    ) -> None:
        self._folder = folder
        self._findings = findings
        self._damage = damage
        self._tags = tags
        self._on_bytes = on_bytes
        self._chunk_bytes = chunk_bytes
        self._search = LogSearch(folder.disk, folder.segment_bytes, is_live=folder.is_live)
        self.totals = LogTotals()
        self.stopped_by = ScanEnd.ZERO
        damage.log_end = damage.tail_end = folder.log_min_offset

    def __iter__(self) -> Iterator[CheckedChunk]:
        for index, segment in enumerate(self._folder.segments):
            self._tell(segment.base)
            goes_on = yield from self._walk_segment(index, segment)
            if not goes_on:
                break
        self._tell(self._folder.log_files_end)
        if not self._folder.is_live:
            self._look_behind_the_end()

    def _tell(self, position: int) -> None:
        self._on_bytes(position - self._folder.log_min_offset)

    # ------------------------------------------------------------------------------ walking

    def _walk_segment(
        self, index: int, segment: SegmentFile
    ) -> Generator[CheckedChunk, None, bool]:
        """Yields the segment's records; returns whether the log continues after it."""
        size = self._folder.segment_bytes
        file = self._open(segment)
        if file is None:
            return self._pass_over(index, segment, None, 0, ScanEnd.ZERO) is not None
        self._damage.log_end = max(self._damage.log_end, segment.base)
        limit = min(segment.file_bytes, size)
        at, chunk_bytes = 0, self._chunk_bytes
        while at < size:
            data = file.read_at(at, min(chunk_bytes, limit - at)) if at < limit else b""
            has_rest = at + len(data) < limit
            result = scan_records(data, check_crc=True, tags=self._tags)
            if result.count:
                self._check_chunk(segment, at, result, data)
                yield CheckedChunk(segment.base + at, result, data)
                self._damage.log_end = segment.base + at + result.valid_end
                self._tell(self._damage.log_end)
            at += result.valid_end
            chunk_bytes = max(self._chunk_bytes, result.end_size)
            is_cut_by_us = result.end is ScanEnd.TRUNCATED and at + result.end_size <= limit
            if has_rest and (is_cut_by_us or result.end is ScanEnd.BUFFER_END):
                continue
            chunk_bytes = self._chunk_bytes
            if result.end is ScanEnd.BLANK and at + result.end_size == size:
                self.stopped_by = ScanEnd.BLANK
                return True
            if at >= size:
                return True
            passed = self._pass_over(index, segment, file, at, result.end, result.end_size)
            if passed is None:
                return False
            at = passed
        return True

    def _open(self, segment: SegmentFile) -> DiskFile | None:
        if segment.path is None or segment.is_foreign:
            return None
        try:
            return self._folder.disk.open_file(segment.path, read_only=True)
        except FileNotFoundError:
            if not self._folder.is_live:
                raise
            return None  # retention has removed it in the meantime

    def _pass_over(
        self,
        index: int,
        segment: SegmentFile,
        file: DiskFile | None,
        at: int,
        reason: ScanEnd,
        size: int = 0,
    ) -> int | None:
        """No whole record starts at byte `at`: returns where to continue in the segment; None at
        its end."""
        folder, segment_bytes = self._folder, self._folder.segment_bytes
        end: int | None = None
        if file is not None:
            if size >= RECORD_SIZE_MIN and self._search.is_boundary(segment, file, at + size):
                end = at + size
            else:
                end = self._search.next_boundary(segment, file, at + 1)
        if end is None:
            if not self._search.has_record(folder.segments[index + 1 :]):
                self.stopped_by = reason
                return None
            end = segment_bytes
        if folder.is_live:
            if file is None:
                return end
            if self._search.is_boundary(segment, file, at):
                return at  # it was being written
        kind = Kind.LOG_RECORD_MAGIC if segment.is_foreign else _KIND_OF_END[reason]
        if end == segment_bytes and segment_bytes - at <= BLANK_SIZE_MIN:
            kind = Kind.LOG_BLANK_WRONG
        if segment.path is not None and not segment.is_foreign:
            self._findings.add(
                kind,
                segment.name,
                f"no whole record from byte {at} to {end} of the file ({reason})",
                position=at,
                log_position=segment.base + at,
                bytes=end - at,
            )
        self._damage.regions.append(
            DamagedRegion(
                segment.base + at,
                segment.base + end,
                segment.base,
                kind,
                str(reason),
                self.totals.last_timestamp_ms,
            )
        )
        return end

    # ------------------------------------------------------------------------------ rules

    def _check_chunk(self, segment: SegmentFile, at: int, result: ScanResult, data: bytes) -> None:
        totals = self.totals
        totals.records += result.count
        totals.record_bytes += result.valid_end
        times = result.store_timestamps
        first = int(times.min())
        totals.first_timestamp_ms = min(totals.first_timestamp_ms or first, first)
        self._check_times(segment, at, result)
        totals.last_timestamp_ms = max(totals.last_timestamp_ms, int(times.max()))
        said_elsewhere = result.physical_offsets != result.positions + (segment.base + at)
        if said_elsewhere.any():
            self._report_said_elsewhere(segment, at, result, np.flatnonzero(said_elsewhere))
        self._check_property_ends(segment, at, result, data)
        self._check_property_crcs(segment, at, result, data)

    def _check_times(self, segment: SegmentFile, at: int, result: ScanResult) -> None:
        times = result.store_timestamps
        back = np.flatnonzero(np.diff(times, prepend=self.totals.last_timestamp_ms) < 0)
        if len(back):
            first = int(back[0])
            before = int(times[first - 1]) if first else self.totals.last_timestamp_ms
            self._findings.add(
                Kind.LOG_TIME_BACKWARD,
                segment.name,
                f"{len(back)} records are older than the previous one, the first by "
                f"{before - int(times[first])} ms",
                position=at + int(result.positions[first]),
            )

    def _report_said_elsewhere(
        self, segment: SegmentFile, at: int, result: ScanResult, indexes: Int64Array
    ) -> None:
        topics = result.topics
        for index in indexes.tolist():
            position = at + int(result.positions[index])
            self._findings.add(
                Kind.LOG_PHYSICAL_OFFSET,
                segment.name,
                f"the record at log position {segment.base + position} says that it is at "
                f"{int(result.physical_offsets[index])}",
                position=position,
                log_position=segment.base + position,
            )
            if len(self._damage.header_fixes) < _FIXES_MAX:
                self._damage.header_fixes.append(
                    HeaderFix(
                        segment.base + position,
                        int(result.sizes[index]),
                        topics[index],
                        int(result.queue_ids[index]),
                        int(result.queue_offsets[index]),
                    )
                )

    def _check_property_ends(
        self, segment: SegmentFile, at: int, result: ScanResult, data: bytes
    ) -> None:
        ends = result.positions + result.sizes
        torn = (read_field(byte_field(data, "u1"), ends - 1) == 0) & (
            ends > result.properties_starts
        )
        for index in np.flatnonzero(torn).tolist():
            position = at + int(result.positions[index])
            self._findings.add(
                Kind.LOG_RECORD_PROPERTIES,
                segment.name,
                f"the properties of the record at log position {segment.base + position} end in "
                "zeros",
                position=position,
                log_position=segment.base + position,
            )

    def _check_property_crcs(
        self, segment: SegmentFile, at: int, result: ScanResult, data: bytes
    ) -> None:
        ends = result.positions + result.sizes
        names = read_field(byte_field(data, ">i8"), ends - PROPERTY_CRC_SIZE)
        for index in np.flatnonzero(names == PROPERTY_CRC_NAME).tolist():
            start, end = int(result.positions[index]), int(ends[index])
            # Any property may end like this; `property_crc_matches` checks what precedes it.
            if property_crc_matches(data, start, start, end) is False:
                self._findings.add(
                    Kind.LOG_RECORD_PROPERTY_CRC,
                    segment.name,
                    f"the record at log position {segment.base + at + start} differs from its "
                    "checksum",
                    position=at + start,
                    log_position=segment.base + at + start,
                )
                self._damage.property_crc_wrong.append((segment.base + at + start, end - start))

    # ------------------------------------------------------------------------------ the end

    def _look_behind_the_end(self) -> None:
        """Only zeros may follow: otherwise the next start has something to cut off."""
        damage, folder = self._damage, self._folder
        for segment in folder.segments:
            start = max(0, damage.log_end - segment.base)
            if start >= folder.segment_bytes:
                continue
            if start and self.stopped_by is ScanEnd.BLANK:
                start += BLANK_SIZE_MIN  # the filler is cut off: try a record in its place
            end, count = self._search.used_end(segment, start)
            if count:
                damage.tail_end = segment.base + end
                damage.tail_bytes += count


def segment_of(segments: list[SegmentFile], position: int) -> SegmentFile | None:
    """The segment that contains the log offset; None outside the log."""
    for segment, following in pairwise([*segments, SegmentFile(1 << 62, None, 0)]):
        if segment.base <= position < following.base:
            return segment
    return None
