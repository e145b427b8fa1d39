"""A master's log as received over the wire, cut anywhere: reassembled into complete records.

Owns: bytes received that do not form a complete record yet. What cannot be part of a log at its
position is refused before it is stored: the frames have checksums, so the master's own log must be
damaged, or is not the one that it claims to be.

At most one record is held: lengths are checked as soon as they arrive, and what follows a blank
record is dropped on arrival.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from aerobee.runtime.errors import CorruptFrame
from aerobee.store.engine.log.segment import BLANK_BYTES_MIN
from aerobee.store.format.record_layout import (
    BODY_AT,
    BODY_LENGTH_AT,
    HOST_V6_EXTRA,
    PHYSICAL_OFFSET_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_STORE_HOST_V6,
)
from aerobee.store.format.scan import ScanEnd, ScanResult, scan_records
from aerobee.store.format.tags import TagsCodes

_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_HEAD_BYTES_MAX: Final = BODY_AT + 2 * HOST_V6_EXTRA
# Topic and properties with their lengths: the most that a record adds to head and body.
_TRAILER_BYTES_MAX: Final = 2 + (1 << 15) + 2 + (1 << 16)


class WholeRecords(NamedTuple):
    """Records at `position` of the log: the first `result.valid_end` bytes of `data`. At the
    beginning of a segment the previous one ended with its blank record."""

    position: int
    data: bytes
    result: ScanResult


class LogBytes:
    """Takes bytes cut anywhere, returns complete records; holds at most one."""

    def __init__(self, segment_bytes: int, tags: TagsCodes, position: int) -> None:
        self._segment_bytes = segment_bytes
        self._tags = tags
        self.received_end = position
        self._parts: list[bytes] = []
        self._held = 0
        # While fewer bytes are held, they cannot contain a complete record.
        self._wanted = 0
        # Remaining bytes of the filler after a blank record.
        self._filler_bytes = 0

    def feed(self, data: bytes) -> Iterator[WholeRecords]:
        """The records completed by `data`, which continues the earlier input; each result is within
        one segment.

        Raises CorruptFrame; nothing more can be fed after that.
        """
        self.received_end += len(data)
        if self._filler_bytes:
            filler = min(self._filler_bytes, len(data))
            self._filler_bytes -= filler
            data = data[filler:]
        if self._held:
            self._parts.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return
            data = b"".join(self._parts)
        position = self.received_end - len(data)
        at = 0
        while at < len(data):
            room = self._segment_bytes - (position + at) % self._segment_bytes
            piece = data if at == 0 and len(data) <= room else data[at : at + room]
            result = scan_records(piece, check_crc=False, tags=self._tags)
            _check(result, position + at, room)
            if result.count:
                yield WholeRecords(position + at, piece, result)
            at += result.valid_end
            if result.end is ScanEnd.BLANK:
                at += self._pass_blank(result, position + at, len(data) - at)
            elif result.end is ScanEnd.TRUNCATED:
                self._wanted = _size_wanted(piece, result, position + at, room)
                break
        self._hold(data[at:])

    def _hold(self, rest: bytes) -> None:
        self._parts = [rest] if rest else []
        self._held = len(rest)
        if not rest:
            self._wanted = 0

    def _pass_blank(self, result: ScanResult, position: int, available: int) -> int:
        """How many of the available bytes belong to the blank record at `position`."""
        size = self._segment_bytes - position % self._segment_bytes
        if result.end_size != size:
            raise _corrupt(
                position, f"a blank record of {result.end_size} bytes where {size} are left"
            )
        self._filler_bytes = max(0, size - available)
        return min(size, available)


def _check(result: ScanResult, position: int, room: int) -> None:
    """`room` is what the segment has from `position` on."""
    misplaced = result.physical_offsets != result.positions + position
    if misplaced.any():
        index = int(np.argmax(misplaced))
        raise _corrupt(
            position + int(result.positions[index]),
            f"a record that gives its position as {int(result.physical_offsets[index])}",
        )
    end = position + result.valid_end
    if result.end not in (ScanEnd.BUFFER_END, ScanEnd.BLANK, ScanEnd.TRUNCATED):
        raise _corrupt(end, f"bytes that are not a record ({result.end})")
    left = room - result.valid_end
    if result.end is ScanEnd.TRUNCATED:
        left -= result.end_size
    if left < BLANK_BYTES_MIN:
        raise _corrupt(end, "a record that does not fit into its segment")


def _size_wanted(piece: bytes, result: ScanResult, position: int, room: int) -> int:
    """How many bytes of the record at `position` are needed before checking it again."""
    rest = memoryview(piece)[result.valid_end :]
    if len(rest) < _HEAD_BYTES_MAX:
        return min(_HEAD_BYTES_MAX, result.end_size) or BLANK_BYTES_MIN  # 0: not even the size
    if _I64.unpack_from(rest, PHYSICAL_OFFSET_AT)[0] != position:
        raise _corrupt(position, "a record of another position")
    (sys_flag,) = _I32.unpack_from(rest, SYS_FLAG_AT)
    extra = HOST_V6_EXTRA * (
        bool(sys_flag & SYSFLAG_BORN_HOST_V6) + bool(sys_flag & SYSFLAG_STORE_HOST_V6)
    )
    (body_length,) = _I32.unpack_from(rest, BODY_LENGTH_AT + extra)
    trailer = result.end_size - BODY_AT - extra - body_length
    if body_length < 0 or not 0 < trailer <= _TRAILER_BYTES_MAX:
        raise _corrupt(position, "a record whose lengths contradict each other")
    return result.end_size


def _corrupt(position: int, what: str) -> CorruptFrame:
    return CorruptFrame(
        f"the master's log has {what} at {position}: nothing of it was stored. Check the "
        "master's folder with `aerobee store verify`"
    )
