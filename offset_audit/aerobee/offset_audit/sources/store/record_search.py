"""Finds where records begin in a segment that is entered in its middle, or after damage.

The truth is the walk from the segment's first byte: each record ends where the next begins, and
after a damaged one the walk continues at the next bytes that prove to be a record. To enter in the
middle, the bytes before are searched for everything that looks like a record naming its own
position, further back than any record is long. If everything found is one chain, each ending where
the next begins, and its first proves to be a record, it is the walk's: a true record begins among
them, or the walk looked for such a first one after damage. Anything else (records hidden in a body,
damage) is rare, and then the walk itself is done: so every entry point gives the same records.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from isal.isal_zlib import crc32

from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.store.format.record_arrays import (
    Int64Array,
    RecordArrays,
    byte_field,
    parse_records,
    read_field,
)
from aerobee.store.format.record_hops import SIZE_AND_MAGIC, hop
from aerobee.store.format.record_layout import (
    BLANK_SIZE_MIN,
    BODY_CRC_AT,
    CRC_MASK,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_SIZE_MIN,
)

RECORD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Records are assumed to be at most this long when a segment is entered in its middle. Apache's
brokers allow 4 MiB and 64 KiB by default."""

_MAGIC: Final = re.compile(
    b"|".join(re.escape(struct.pack(">i", magic)) for magic in (MAGIC_V1, MAGIC_V2))
)
_WINDOW_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LastRecord:
    """Where it begins, and where the log ends after it (and after a filler that follows)."""

    position: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Search:
    """How to look for records in a segment that ends at `segment_end`."""

    file: OpenFile
    segment_begin: int
    segment_end: int
    record_bytes_max: int = RECORD_BYTES_MAX
    window_bytes: int = _WINDOW_BYTES

    def first_from(self, begin: int) -> int | None:
        """The first place of the walk at or after `begin`, None if it ends before.

        There, a record or a blank begins, or there is neither although the walk expects a record.
        """
        window_begin = begin - self.record_bytes_max - 1
        if begin <= self.segment_begin or window_begin <= self.segment_begin:
            return self._walk_to(self.segment_begin, begin)
        if self.file.next_data(window_begin) is None:
            return None
        buffer = self.file.read(window_begin, begin)
        starts, ends = self._alike(buffer, window_begin)
        if not len(starts):
            if np.frombuffer(buffer, np.uint8).any():
                return self._walk_to(self.segment_begin, begin)
            return self.next_sound(begin)
        is_chain = np.array_equal(ends[:-1], starts[1:])
        if not is_chain or not self._is_sound(int(starts[0])):
            return self._walk_to(self.segment_begin, begin)
        return self._walk_to(int(ends[-1]), begin)

    def _walk_to(self, position: int, begin: int) -> int | None:
        """From record to record from `position` on, until `begin` is reached or passed."""
        while position < begin:
            buffer = self.file.read(position, min(position + self.window_bytes, self.segment_end))
            starts, ends = _own_records(buffer, position)
            if len(ends):
                reached = int(np.searchsorted(starts, begin - position))
                position += int(starts[reached] if reached < len(starts) else ends[-1])
                continue
            if self.is_blank(position):
                return None
            behind = self.resume(position)
            if behind is None:
                return None
            position = behind
        return position if position < self.segment_end else None

    def last_record(self, used_end: int) -> LastRecord | None:
        """The segment's last whole record; None if there is no record.

        From `used_end` on the segment is all zeros.
        """
        begin = self.segment_begin
        tail = max(begin, used_end - 2 * self.record_bytes_max)
        position = self.first_from(tail)
        last = None
        while position is not None and position < self.segment_end:
            buffer = self.file.read(position, min(position + self.window_bytes, self.segment_end))
            starts, ends = _own_records(buffer, position)
            if len(ends):
                last = LastRecord(position + int(starts[-1]), position + int(ends[-1]))
                position = last.log_end
            elif self.is_blank(position):
                return last and LastRecord(last.position, self.segment_end)
            else:
                behind = self.resume(position)
                if behind is not None and self.is_record(position):
                    last = LastRecord(position, behind)
                position = behind
        return last if last is not None or tail == begin else self.last_record(begin)

    def is_blank(self, position: int) -> bool:
        """Whether the filler of the segment's end begins here."""
        size, magic = self._head(position)
        return magic == MAGIC_BLANK and position + size == self.segment_end

    def resume(self, position: int) -> int | None:
        """Where the walk continues after `position`, where it cannot take a normal step."""
        record = self._record(position)
        if record is not None:
            end = position + len(record.data)
            if record.place == position or self._leads_on(end):
                return end
        return self.next_sound(position + 1)

    def is_record(self, position: int) -> bool:
        """Whether a whole record with this position begins here."""
        record = self._record(position)
        return record is not None and record.place == position

    def next_sound(self, begin: int) -> int | None:
        """The first place from `begin` on where a record proves to be one: it names its own
        position, its lengths agree, and its body matches its checksum or another record follows."""
        position = begin
        while position < self.segment_end - RECORD_SIZE_MIN:
            data = self.file.next_data(position)
            if data is None:
                return None
            position = max(position, data - RECORD_SIZE_MIN)
            end = min(position + self.window_bytes, self.segment_end)
            buffer = self.file.read(position, min(end + RECORD_SIZE_MIN, self.segment_end))
            for candidate in _candidates(buffer, position):
                if candidate >= end:
                    break
                if self._is_sound(candidate):
                    return candidate
            position = end
        return None

    def _is_sound(self, position: int) -> bool:
        record = self._record(position)
        if record is None or record.place != position:
            return False
        return self._leads_on(position + len(record.data)) or record.has_checksum

    def _record(self, position: int) -> _Whole | None:
        """The record with sound lengths at `position`."""
        size, magic = self._head(position)
        if magic not in (MAGIC_V1, MAGIC_V2) or size < RECORD_SIZE_MIN:
            return None
        if position + size > self.segment_end:
            return None
        data = self.file.read(position, position + size)
        if len(data) < size:
            return None
        arrays = parse_records(data, np.zeros(1, np.int64), np.array([size]))
        return _Whole(data, arrays) if arrays.legal[0] else None

    def _leads_on(self, position: int) -> bool:
        """Whether a record, or what ends a log, is at `position`."""
        head = self.file.read(position, min(position + RECORD_SIZE_MIN, self.segment_end))
        if len(head) < BLANK_SIZE_MIN or not any(head):
            return True
        size, magic = SIZE_AND_MAGIC.unpack_from(head)
        if magic == MAGIC_BLANK:
            return bool(position + size == self.segment_end)
        return magic in (MAGIC_V1, MAGIC_V2) and _place(head) == position

    def _alike(self, buffer: bytes, position: int) -> tuple[Int64Array, Int64Array]:
        """Starts and ends of everything that looks like a record naming its own position."""
        starts = _all_candidates(buffer, position)
        sizes = read_field(byte_field(buffer, ">i4"), starts - position)
        fitting = (sizes >= RECORD_SIZE_MIN) & (starts + sizes <= self.segment_end)
        starts, ends = starts[fitting], (starts + sizes)[fitting]
        whole = ends <= position + len(buffer)
        arrays = parse_records(buffer, starts[whole] - position, ends[whole] - position)
        legal = np.ones(len(starts), np.bool_)
        legal[whole] = arrays.legal
        legal[~whole] = [self.is_record(start) for start in starts[~whole].tolist()]
        return starts[legal], ends[legal]

    def _head(self, position: int) -> tuple[int, int]:
        head = self.file.read(position, min(position + BLANK_SIZE_MIN, self.segment_end))
        if len(head) < BLANK_SIZE_MIN:
            return 0, 0
        size, magic = SIZE_AND_MAGIC.unpack(head)
        return size, magic


@dataclass(frozen=True, slots=True)
class _Whole:
    """A record whose lengths agree."""

    data: bytes
    arrays: RecordArrays

    @property
    def place(self) -> int:
        return _place(self.data)

    @property
    def has_checksum(self) -> bool:
        """Whether it has a body, and the body has its checksum."""
        body = self.data[int(self.arrays.body_starts[0]) : int(self.arrays.body_ends[0])]
        stored = int.from_bytes(self.data[BODY_CRC_AT : BODY_CRC_AT + 4], "big", signed=True)
        return bool(body) and crc32(body) & CRC_MASK == stored


def _place(head: bytes) -> int:
    field = head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8]
    return int.from_bytes(field, "big", signed=True) if len(field) == 8 else -1


def _own_records(buffer: bytes, position: int) -> tuple[Int64Array, Int64Array]:
    """Starts and ends of whole records end to end from the first byte, each naming its own
    position."""
    starts, ends = hop(buffer)
    sound = parse_records(buffer, starts, ends).legal
    sound &= read_field(byte_field(buffer, ">i8"), starts + PHYSICAL_OFFSET_AT) == starts + position
    count = len(starts) if sound.all() else int(np.argmin(sound))
    return starts[:count], ends[:count]


def _all_candidates(buffer: bytes, position: int) -> Int64Array:
    """What `_candidates` gives, where all are wanted: there are as many as records."""
    found = [match.start() for match in _MAGIC.finditer(buffer, MAGIC_AT)]
    starts = np.array(found, np.int64) - MAGIC_AT
    starts = starts[: np.searchsorted(starts, len(buffer) - PHYSICAL_OFFSET_AT - 8, side="right")]
    places = read_field(byte_field(buffer, ">i8"), starts + PHYSICAL_OFFSET_AT)
    starts += position
    own: Int64Array = starts[places == starts]
    return own


def _candidates(buffer: bytes, position: int) -> Iterator[int]:
    """Places with a record's magic and this position as the record's own, rising."""
    for match in _MAGIC.finditer(buffer, MAGIC_AT):
        start = match.start() - MAGIC_AT
        if _place(buffer[start : start + RECORD_SIZE_MIN]) == position + start:
            yield position + start
