"""Faults of a log: whatever stops its readers, and bodies that are not what was written.

Anything after the end of a log that was not closed cleanly is not a fault: the end is where the
last whole record ends. A damaged place is one fault, from where a record should begin to where the
next one does; its header, if readable, names the message.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aerobee.offset_audit.sources.store.faults import Fault, FaultKind, name_in
from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.log_chunks import LogChunk, LogStop
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.offset_audit.sources.store.plain_values import INT64_MAX
from aerobee.offset_audit.sources.store.plan import LogPiece
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.store.format.body_checksums import sound_bodies
from aerobee.store.format.names import file_name
from aerobee.store.format.property_crc import (
    PROPERTY_CRC_NAME,
    PROPERTY_CRC_SIZE,
    property_crc_matches,
)
from aerobee.store.format.record_arrays import byte_field, parse_records, read_field
from aerobee.store.format.record_layout import (
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
from aerobee.store.format.record_view import Record
from aerobee.store.format.scan import ScanEnd

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
_JOURNALS: Final = frozenset(
    f"AEROBEE_{name}_JOURNAL" for name in ("OFFSET", "POP", "TIMER", "TRANSACTION")
)
"""Topics whose records have a body of JSON."""
_LOOK_BACK_BYTES: Final = 64 * 1024
_TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999."""
_MAGIC_START: Final = (MAGIC_V1 & 0xFFFF_FFFF).to_bytes(4, "big")[:3]


@dataclass(frozen=True, slots=True)
class _Stored:
    """When a record was stored, according to its header, and which one it is."""

    position: int
    at_ms: int
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


class LogFaults:
    """The faults of neighbouring pieces of one store's log."""

    def __init__(self, facts: StoreFacts, *, check_bodies: bool) -> None:
        self._facts = facts
        self._end = facts.bounds.end
        self._check_bodies = check_bodies
        self._last: list[_Stored] = []
        """The last records, at most three, oldest first."""
        self._is_undecided = False
        """Whether the very last one was stored before its predecessor: what follows decides."""
        self._piece: LogPiece | None = None
        self._walked_to = 0

    def begin_piece(self, piece: LogPiece) -> None:
        self._piece, self._walked_to = piece, piece.begin
        if not self._last:
            before = stored_before(piece, self._facts.segment_bytes)
            self._last = [_Stored(position, at_ms) for position, at_ms in before]

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
        """The fault of a segment's file that was cut, once its last piece was read."""
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
        """Whether the walk ended because the file was cut, which is a separate fault."""
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
        with OpenFile(chunk.piece.segment) as file:
            end = file.used_end(stop.position, chunk.piece.segment.end)
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
        """Falls of the store time. A single record that its neighbours contradict is damaged, since
        no checksum covers the time; if everything after it is earlier, the clock was set back."""
        times = chunk.records.store_timestamps
        if not len(times):
            return
        count = len(self._last)
        known = np.array([one.at_ms for one in self._last], np.int64)
        together = np.concatenate((known, times))
        first = count - 1 if self._is_undecided else count
        self._is_undecided = False
        for at in (np.flatnonzero(together[1:] < together[:-1]) + 1).tolist():
            if at < first:
                continue
            if at == len(together) - 1:
                self._is_undecided = True
                break
            low = max(0, at - 2)
            around = [self._stored(chunk, row - count) for row in range(low, at + 2)]
            yield self._of_fall(chunk.piece, around[: at - low + 1], around[-1].at_ms)
        kept = range(max(0, len(together) - 3), len(together))
        self._last = [self._stored(chunk, row - count) for row in kept]

    def finish(self) -> Iterator[Fault]:
        """That of the last record, after all pieces."""
        if not self._is_undecided or self._piece is None:
            return
        with LogLookup(self._facts.store) as lookup:
            after_ms = lookup.store_ms(self._walked_to)
            if after_ms is None:
                after_ms = lookup.store_ms(self._piece.segment.end)
        fault = self._of_fall(self._piece, self._last, after_ms)
        if (fault.position or 0) < self._end:
            yield fault

    def _stored(self, chunk: LogChunk, row: int) -> _Stored:
        """Of a row of the chunk; of a negative row, counted from the end of those before it."""
        if row < 0:
            return self._last[row]
        records = chunk.records
        return _Stored(
            chunk.position + int(records.positions[row]),
            int(records.store_timestamps[row]),
            records.topic_table[int(records.topic_codes[row])],
            int(records.queue_ids[row]),
            int(records.queue_offsets[row]),
        )

    def _of_fall(self, piece: LogPiece, until: Sequence[_Stored], after_ms: int | None) -> Fault:
        """`until`: the record that was stored before its predecessor, and at most two before it."""
        here, last = until[-1], until[-2]
        back_ms = last.at_ms - here.at_ms
        is_last_wrong = len(until) > 2 and until[-3].at_ms <= here.at_ms
        if is_last_wrong or last.at_ms > _TIME_MS_MAX:
            kind, wrong = FaultKind.BAD_TIME, last
            detail = f"its store time is {last.at_ms}, {back_ms} ms after that of the next record"
        elif here.at_ms < 0 or (after_ms is not None and after_ms >= last.at_ms):
            kind, wrong = FaultKind.BAD_TIME, here
            detail = f"its store time is {here.at_ms}, {back_ms} ms before the previous record"
        else:
            kind, wrong = FaultKind.TIME_BACKWARD, here
            detail = f"stored {back_ms} ms before the previous record"
        return Fault(
            kind,
            self._file(piece),
            wrong.position,
            detail,
            topic=wrong.topic,
            queue_id=wrong.queue_id,
            queue_offset=wrong.queue_offset,
            store_ms=wrong.at_ms,
            back_ms=min(back_ms, INT64_MAX),
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
        yield from self._journals(chunk, unsound)
        named = read_field(byte_field(buffer, ">i8"), ends - PROPERTY_CRC_SIZE) == PROPERTY_CRC_NAME
        for row in np.flatnonzero(named & ~unsound).tolist():
            start, end = int(starts[row]), int(ends[row])
            place = int(records.properties_starts[row])
            if property_crc_matches(buffer, start, place, end) is False:
                yield self._of_record(
                    chunk, row, FaultKind.BAD_CRC, "the checksum of the record does not match"
                )

    def _journals(self, chunk: LogChunk, unsound: NDArray[np.bool_]) -> Iterator[Fault]:
        """Records of the broker's own journals that its start could not use. A body that fails its
        checksum is another fault."""
        records = chunk.records
        topics = records.topic_table
        codes = [code for code, topic in enumerate(topics) if topic in _JOURNALS]
        for row in np.flatnonzero(np.isin(records.topic_codes, codes) & ~unsound).tolist():
            start = int(records.positions[row])
            record = Record(chunk.buffer, start, start + int(records.sizes[row]))
            try:
                whole = isinstance(json.loads(record.body), list | dict)
            except ValueError:
                whole = False
            if not whole:
                text = "a start of the broker cannot use it"
                yield self._of_record(chunk, row, FaultKind.BAD_JOURNAL, text)

    def _of_record(self, chunk: LogChunk, row: int, kind: str, detail: str) -> Fault:
        record = self._stored(chunk, row)
        return Fault(
            kind,
            self._file(chunk.piece),
            record.position,
            detail,
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
        )


def stored_before(piece: LogPiece, segment_bytes: int) -> list[tuple[int, int]]:
    """The start and store time of the last records before a piece, in order: two, or what is close
    by."""
    segment = piece.segment
    if piece.begin == segment.base:
        base = segment.base - segment_bytes
        if base < 0:
            return []
        path = os.path.join(os.path.dirname(segment.path), file_name(base))
        segment = StoreFile(path, base, segment_bytes)
    begin = max(segment.base, piece.begin - _LOOK_BACK_BYTES)
    try:
        with OpenFile(segment) as file:
            data = file.read(begin, piece.begin)
    except FileNotFoundError:
        return []
    found: list[tuple[int, int]] = []
    at = len(data)
    while len(found) < 2 and (at := data.rfind(_MAGIC_START, 0, at)) >= MAGIC_AT:
        start = at - MAGIC_AT
        head = data[start : start + RECORD_SIZE_MIN]
        place = head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8]
        if len(head) == RECORD_SIZE_MIN and int.from_bytes(place, "big") == begin + start:
            is_v6 = head[SYS_FLAG_AT + 3] & SYSFLAG_BORN_HOST_V6
            time_at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if is_v6 else 0)
            at_ms = int.from_bytes(head[time_at : time_at + 8], "big", signed=True)
            found.insert(0, (begin + start, at_ms))
    return found


def _named_by(
    chunk: LogChunk, position: int, size: int
) -> tuple[str | None, int | None, int | None]:
    """Topic, queue and offset of a damaged record, as far as its header is credible: it must name
    its own position."""
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
    # With the correct size and magic, the rest may be intact.
    data[:8] = size.to_bytes(4, "big") + MAGIC_V1.to_bytes(4, "big", signed=True)
    arrays = parse_records(data, np.zeros(1, np.int64), np.array([size]))
    if not arrays.legal[0]:
        return None, queue_id, queue_offset
    return Record(data, 0, size).topic, queue_id, queue_offset
