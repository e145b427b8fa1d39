"""A log in ranges of a grid shared by all stores, and its messages by the minute.

Each range has a checksum of its bytes: equal logs have equal rows with every reader. A range cut by
the log's beginning or end, or by a missing segment, is reported in small steps instead: so logs
that end at different places are comparable up to the last step that both have. Of a blank record,
which fills the rest of a segment, only the head counts: the rest is never written.

Invariant: the rows of a reader of whole grid ranges cover all bytes of the log there, each once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from isal.isal_zlib import crc32

from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.log_chunks import LogChunk, LogStop
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.offset_audit.sources.store.plan import LogPiece
from aerobee.offset_audit.sources.store.ranges_digest import Int64Array, group_starts
from aerobee.offset_audit.sources.store.ranges_queues import QueueMessages
from aerobee.offset_audit.sources.store.ranges_rows import (
    LOG_RANGES,
    MINUTES,
    Codes,
    RecordBatch,
    make_batch,
)
from aerobee.offset_audit.tables import LOG_RANGE_BYTES, LOG_STEP_BYTES
from aerobee.store.format.record_layout import BLANK_SIZE_MIN
from aerobee.store.format.scan import ScanEnd

_READ_BYTES: Final = 4 * 1024 * 1024
_MINUTE_MS: Final = 60_000
_STORED: Final = "STORED"


@dataclass(slots=True)
class _Range:
    """One step of the finer grid so far, or many."""

    records: int = 0
    blanks: int = 0
    first_store_ms: int | None = None
    last_store_ms: int | None = None

    def add(self, store_timestamps: Int64Array) -> None:
        self.records += len(store_timestamps)
        first, last = int(store_timestamps.min()), int(store_timestamps.max())
        self.first_store_ms = min(first, first if (f := self.first_store_ms) is None else f)
        self.last_store_ms = max(last, last if (x := self.last_store_ms) is None else x)

    def join(self, other: _Range) -> None:
        self.records += other.records
        self.blanks += other.blanks
        firsts = (self.first_store_ms, other.first_store_ms)
        lasts = (self.last_store_ms, other.last_store_ms)
        self.first_store_ms = min((ms for ms in firsts if ms is not None), default=None)
        self.last_store_ms = max((ms for ms in lasts if ms is not None), default=None)


class LogRanges:
    """LOG_RANGES of neighbouring pieces of one store's log; give it their chunks, then `finish`."""

    def __init__(
        self, store: StoreFolder, log_end: int, *, range_bytes: int = LOG_RANGE_BYTES
    ) -> None:
        """`log_end`: what follows is not part of the log; `range_bytes`: the grid's width, whole
        steps or less than one."""
        self._store = store
        self._range_bytes = range_bytes
        self._step_bytes = min(LOG_STEP_BYTES, range_bytes)
        assert range_bytes % self._step_bytes == 0
        self._log_end = log_end
        self._steps: dict[int, _Range] = {}
        self._blanks: list[tuple[int, int]] = []
        self._pieces: list[LogPiece] = []

    def begin_piece(self, piece: LogPiece) -> None:
        self._pieces.append(piece)

    def add(self, chunk: LogChunk) -> None:
        positions = chunk.records.positions + chunk.position
        positions = positions[: np.searchsorted(positions, self._log_end)]
        numbers = positions // self._step_bytes
        starts = group_starts(numbers)
        ends = np.append(starts[1:], len(numbers))[: len(starts)]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            known = self._steps.setdefault(int(numbers[start]), _Range())
            known.add(chunk.records.store_timestamps[start:end])
        if chunk.stop is not None:
            self._stop(chunk.stop, chunk.piece)

    def _stop(self, stop: LogStop, piece: LogPiece) -> None:
        if stop.why is ScanEnd.BLANK and not stop.is_fault:
            known = self._steps.setdefault(stop.position // self._step_bytes, _Range())
            known.blanks += 1
            self._blanks.append((stop.position + BLANK_SIZE_MIN, piece.segment.end))
        elif stop.resumed_at is None and piece.is_open:
            self._log_end = min(self._log_end, stop.position)

    def finish(self) -> Iterator[RecordBatch]:
        """One row for each whole range, and for each step of the others that has bytes of the
        log."""
        rows = list(map(self._row, self._spans()))
        if not rows:
            return
        names = ("begin", "end", "records", "blanks", "checksum", "first_store_ms", "last_store_ms")
        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        yield make_batch(LOG_RANGES, self._store, len(rows), columns)

    def _spans(self) -> Iterator[tuple[int, int]]:
        """[begin, end) of each row."""
        for begin, end in self._stretches():
            width = self._range_bytes
            for at, border in _cut(begin, end, width):
                yield from (
                    [(at, border)] if border - at == width else _cut(at, border, self._step_bytes)
                )

    def _stretches(self) -> list[tuple[int, int]]:
        """[begin, end) of the existing pieces without gaps; a missing segment is a gap."""
        found: list[tuple[int, int]] = []
        for piece in sorted(self._pieces, key=lambda one: one.begin):
            begin, end = piece.begin, min(piece.end, self._log_end)
            if begin >= end:
                continue
            if found and found[-1][1] == begin:
                begin, _ = found.pop()
            found.append((begin, end))
        return found

    def _row(self, span: tuple[int, int]) -> tuple[int | None, ...]:
        begin, end = span
        known = _Range()
        for number in range(begin // self._step_bytes, -(-end // self._step_bytes)):
            if number in self._steps:
                known.join(self._steps[number])
        return (
            begin,
            end,
            known.records,
            known.blanks,
            self._checksum(begin, end),
            known.first_store_ms,
            known.last_store_ms,
        )

    def _checksum(self, begin: int, end: int) -> int | None:
        """None if a segment was deleted meanwhile."""
        checksum = 0
        for piece in self._pieces:
            at, stop = max(begin, piece.begin), min(end, piece.end)
            if at >= stop:
                continue
            try:
                file = OpenFile(piece.segment)
            except FileNotFoundError:
                return None
            with file:
                for start, until in _without(self._blanks, at, stop):
                    checksum = _extend(checksum, file, start, until)
        return checksum


def _cut(begin: int, end: int, width: int) -> Iterator[tuple[int, int]]:
    """[begin, end) at the multiples of `width`."""
    while begin < end:
        border = min(end, (begin // width + 1) * width)
        yield begin, border
        begin = border


def _without(blanks: Sequence[tuple[int, int]], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """[begin, end) without the bytes of blanks."""
    for blank_begin, blank_end in blanks:
        if blank_begin < end and blank_end > begin:
            yield begin, max(begin, blank_begin)
            begin = min(end, blank_end)
    yield begin, end


def _extend(checksum: int, file: OpenFile, begin: int, end: int) -> int:
    while begin < end:
        data = file.read(begin, min(begin + _READ_BYTES, end))
        if not data:
            # A file that was cut: a checksum that no intact range has.
            return crc32(b"cut", checksum)
        checksum = crc32(data, checksum)
        begin += len(data)
    return checksum


class StoredMinutes:
    """MINUTES of the messages of one reader."""

    def __init__(self, store: StoreFolder, whole_minutes: tuple[int, int]) -> None:
        """`whole_minutes`: [first, end) of those of which the log has everything."""
        self._store = store
        self._whole = whole_minutes
        self._counts: dict[tuple[int, int], int] = {}
        self._names: Sequence[str] = ()

    def add(self, messages: QueueMessages) -> None:
        self._names = messages.topic_names
        minutes = messages.store_timestamps // _MINUTE_MS
        order: Int64Array | slice = slice(None)
        topics = messages.topics
        if len(topics) and int(topics.min()) != int(topics.max()):
            order = np.lexsort((minutes, topics))
            minutes, topics = minutes[order], topics[order]
        starts = group_starts(topics, minutes)
        counts = np.diff(starts, append=len(minutes))
        groups = zip(
            topics[starts].tolist(), minutes[starts].tolist(), counts.tolist(), strict=True
        )
        for topic, minute, count in groups:
            key = (topic, minute)
            self._counts[key] = self._counts.get(key, 0) + count

    def finish(self) -> Iterator[RecordBatch]:
        counts, self._counts = self._counts, {}
        if not counts:
            return
        topics, minutes = np.array(list(counts), np.int64).T
        first, end = self._whole
        yield make_batch(
            MINUTES,
            self._store,
            len(topics),
            {
                "tier": _STORED,
                "topic": Codes(topics, self._names),
                "minute": minutes,
                "messages": list(counts.values()),
                "is_whole": (minutes >= first) & (minutes < end),
            },
        )
