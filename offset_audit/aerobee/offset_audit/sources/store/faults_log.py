"""Faults of a log: what its readers stumble over, and bodies that are not what was written.

What lies behind the end of a log that was not closed cleanly is no fault: the end is where the last
whole record ends. A damaged place is one fault, from where a record should begin to where the next
one does; what its header still says names the message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.faults import Fault, FaultKind, name_in
from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.log_chunks import LogChunk, LogStop
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.offset_audit.sources.store.plan import LogPiece
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts, used_size
from aerobee.store_format.body_checksums import sound_bodies
from aerobee.store_format.names import file_name
from aerobee.store_format.property_crc import (
    PROPERTY_CRC_NAME,
    PROPERTY_CRC_SIZE,
    property_crc_matches,
)
from aerobee.store_format.record_arrays import byte_field, parse_records, read_field
from aerobee.store_format.record_layout import (
    HOST_V6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
)
from aerobee.store_format.record_view import Record
from aerobee.store_format.scan import ScanEnd

_KINDS: Final = {
    ScanEnd.BAD_MAGIC: FaultKind.BAD_MAGIC,
    ScanEnd.BAD_LENGTHS: FaultKind.BAD_LENGTHS,
    ScanEnd.TRUNCATED: FaultKind.BAD_LENGTHS,
    ScanEnd.BLANK: FaultKind.BAD_LENGTHS,
    ScanEnd.BAD_TOPIC: FaultKind.BAD_TOPIC,
    ScanEnd.MISPLACED: FaultKind.MISPLACED,
    ScanEnd.ZERO: FaultKind.HOLE,
    ScanEnd.BUFFER_END: FaultKind.HOLE,
}
_QUIET_ENDS: Final = (ScanEnd.ZERO, ScanEnd.BLANK, ScanEnd.BUFFER_END)
_READ_BYTES: Final = 4 * 1024 * 1024
_LOOK_BACK_BYTES: Final = 64 * 1024
_MAGIC_START: Final = (MAGIC_V1 & 0xFFFF_FFFF).to_bytes(4, "big")[:3]


class LogFaults:
    """The faults of neighbouring pieces of one store's log."""

    def __init__(self, facts: StoreFacts, *, check_bodies: bool) -> None:
        self._facts = facts
        self._end = facts.bounds.end
        self._check_bodies = check_bodies
        self._last_stored_ms: int | None = None
        self._walked_to = 0

    def begin_piece(self, piece: LogPiece) -> None:
        self._walked_to = piece.begin
        if self._last_stored_ms is None:
            self._last_stored_ms = stored_before(piece, self._facts.segment_bytes)

    def of_chunk(self, chunk: LogChunk) -> Iterator[Fault]:
        """Those of a chunk, in the order of the log."""
        found = list(self._times(chunk))
        if self._check_bodies:
            found += self._bodies(chunk)
        yield from (fault for fault in found if (fault.position or 0) < self._end)
        self._walked_to = chunk.position + chunk.records.valid_end
        stop = chunk.stop
        if stop is None:
            return
        self._walked_to = stop.position if stop.resumed_at is None else stop.resumed_at
        if stop.position >= self._end or self._is_short(chunk.piece, stop):
            return
        if stop.is_fault:
            yield self._of_stop(chunk, stop)
        elif self._facts.is_clean and stop.why not in _QUIET_ENDS:
            yield self._torn(chunk, stop)

    def end_piece(self, piece: LogPiece) -> Iterator[Fault]:
        """That of a segment's file that was cut, once its last piece was read."""
        whole_end = piece.segment.base + self._facts.segment_bytes
        if piece.end < piece.segment.end or piece.segment.end >= whole_end:
            return
        at = min(max(self._walked_to, piece.begin), piece.segment.end)
        yield Fault(
            FaultKind.CUT_SEGMENT,
            self._file(piece),
            at,
            f"the file has {piece.segment.size} bytes, segments have {self._facts.segment_bytes}",
            size=whole_end - at,
        )

    def _is_short(self, piece: LogPiece, stop: LogStop) -> bool:
        """Whether the walk ended because the file was cut, which is a fault of its own."""
        whole = piece.segment.size >= self._facts.segment_bytes
        return not whole and stop.resumed_at is None and piece.end == piece.segment.end

    def _file(self, piece: LogPiece) -> str:
        return name_in(self._facts.store, piece.segment.path)

    # ------------------------------------------------------------------------------- stops

    def _of_stop(self, chunk: LogChunk, stop: LogStop) -> Fault:
        until = chunk.piece.segment.end if stop.resumed_at is None else stop.resumed_at
        until = min(until, self._end)
        size = until - stop.position
        topic, queue_id, queue_offset = _named_by(chunk, stop.position, size)
        return Fault(
            _KINDS.get(stop.why, FaultKind.BAD_MAGIC),
            self._file(chunk.piece),
            stop.position,
            f"no whole record from log position {stop.position} to {until} ({stop.why})",
            size=size,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
        )

    def _torn(self, chunk: LogChunk, stop: LogStop) -> Fault:
        end = stop.position
        with OpenFile(chunk.piece.segment) as file:
            for begin in range(stop.position, chunk.piece.segment.end, _READ_BYTES):
                data = file.read(begin, min(begin + _READ_BYTES, chunk.piece.segment.end))
                if used := used_size(data):
                    end = begin + used
        return Fault(
            FaultKind.TORN,
            self._file(chunk.piece),
            stop.position,
            f"the last whole record ends at {stop.position}, but bytes are set up to {end} "
            f"({stop.why}), though the store was stopped cleanly",
            size=end - stop.position,
        )

    # ------------------------------------------------------------------------------- records

    def _times(self, chunk: LogChunk) -> Iterator[Fault]:
        records = chunk.records
        times = records.store_timestamps
        if not len(times):
            return
        before = times[0] if self._last_stored_ms is None else self._last_stored_ms
        steps = np.diff(times, prepend=before)
        self._last_stored_ms = int(times[-1])
        for row in np.flatnonzero(steps < 0).tolist():
            yield self._of_record(
                chunk,
                row,
                FaultKind.TIME_BACKWARD,
                f"stored {-int(steps[row])} ms before the record in front of it",
                size=-int(steps[row]),
            )

    def _bodies(self, chunk: LogChunk) -> Iterator[Fault]:
        records, buffer = chunk.records, chunk.buffer
        starts = records.positions
        ends = starts + records.sizes
        unsound = ~sound_bodies(buffer, records.arrays)
        for row in np.flatnonzero(unsound).tolist():
            yield self._of_record(
                chunk, row, FaultKind.BAD_CRC, "the body is not the one that was written"
            )
        if not len(starts):
            return
        named = read_field(byte_field(buffer, ">i8"), ends - PROPERTY_CRC_SIZE) == PROPERTY_CRC_NAME
        for row in np.flatnonzero(named & ~unsound).tolist():
            start, end = int(starts[row]), int(ends[row])
            place = int(records.properties_starts[row])
            if property_crc_matches(buffer, start, place, end) is False:
                yield self._of_record(
                    chunk, row, FaultKind.BAD_CRC, "the checksum over the record does not fit"
                )

    def _of_record(
        self, chunk: LogChunk, row: int, kind: str, detail: str, *, size: int | None = None
    ) -> Fault:
        records = chunk.records
        return Fault(
            kind,
            self._file(chunk.piece),
            chunk.position + int(records.positions[row]),
            detail,
            size=size,
            topic=records.topic_table[int(records.topic_codes[row])],
            queue_id=int(records.queue_ids[row]),
            queue_offset=int(records.queue_offsets[row]),
        )


def stored_before(piece: LogPiece, segment_bytes: int) -> int | None:
    """When the record in front of a piece was stored; None if there is none close by."""
    segment = piece.segment
    if piece.begin == segment.base:
        base = segment.base - segment_bytes
        if base < 0:
            return None
        path = os.path.join(os.path.dirname(segment.path), file_name(base))
        segment = StoreFile(path, base, segment_bytes)
    begin = max(segment.base, piece.begin - _LOOK_BACK_BYTES)
    try:
        with OpenFile(segment) as file:
            data = file.read(begin, piece.begin)
    except FileNotFoundError:
        return None
    at = len(data)
    while (at := data.rfind(_MAGIC_START, 0, at)) >= MAGIC_AT:
        start = at - MAGIC_AT
        head = data[start : start + RECORD_SIZE_MIN]
        place = head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8]
        if len(head) == RECORD_SIZE_MIN and int.from_bytes(place, "big") == begin + start:
            is_v6 = head[SYS_FLAG_AT + 3] & SYSFLAG_BORN_HOST_V6
            time_at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if is_v6 else 0)
            return int.from_bytes(head[time_at : time_at + 8], "big", signed=True)
    return None


def _named_by(
    chunk: LogChunk, position: int, size: int
) -> tuple[str | None, int | None, int | None]:
    """Topic, queue and offset of a damaged record, as far as its header can be believed: it must
    say that it lies where it does."""
    at = position - chunk.position
    buffer = chunk.buffer
    if size < RECORD_SIZE_MIN or at < 0 or at + RECORD_SIZE_MIN > len(buffer):
        return None, None, None

    def number(field_at: int, width: int) -> int:
        return int.from_bytes(buffer[at + field_at : at + field_at + width], "big", signed=True)

    queue_id, queue_offset = number(QUEUE_ID_AT, 4), number(QUEUE_OFFSET_AT, 8)
    if number(PHYSICAL_OFFSET_AT, 8) != position or queue_id < 0 or queue_offset < 0:
        return None, None, None
    data = bytearray(buffer[at : at + size])
    if len(data) < size or size >= 1 << 31:
        return None, queue_id, queue_offset
    # With the size and the magic that it must have had, the rest may be whole.
    data[:8] = size.to_bytes(4, "big") + MAGIC_V1.to_bytes(4, "big", signed=True)
    arrays = parse_records(data, np.zeros(1, np.int64), np.array([size]))
    if not arrays.legal[0]:
        return None, queue_id, queue_offset
    return Record(data, 0, size).topic, queue_id, queue_offset
