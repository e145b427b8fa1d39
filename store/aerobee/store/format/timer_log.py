"""The files of `timerlog/`: where each timer message is in the commit log, linked by slot.

   0      4          12      16           24      28              36     40           44         52
   | size | previous | magic | write time | delay | commit offset | size | topic hash | reserved |

Records of 52 bytes end to end. If fewer than a record and 16 more bytes remain, there is an end
mark: the remaining length (i32), 0 (i64), and the magic of a blank (i32). `previous` is the
position of the previous record in the same slot; the slot's time is write time + delay.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

TIMER_RECORD_SIZE: Final = 52
END_MARK_SIZE: Final = 16
COMMIT_OFFSET_AT: Final = 28

MAGIC_BASE: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
MAGIC_END: Final = 0xCBD43194 - (1 << 32)
_MAGIC_BITS: Final = 0xF
_RECORDS_PER_STEP: Final = 4_096

_RECORD: Final = struct.Struct(">iqiqiqiiq")
_END_MARK: Final = struct.Struct(">iqi")
TIMER_RECORD_DTYPE: Final = np.dtype(
    [
        ("record_size", ">i4"),
        ("previous_position", ">i8"),
        ("magic", ">i4"),
        ("write_time_ms", ">i8"),
        ("delay_ms", ">i4"),
        ("commit_offset", ">i8"),
        ("size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)


class TimerLogCorrupt(ValueError):
    """Bytes that are not a timer log record."""


@dataclass(frozen=True, slots=True)
class TimerRecord:
    """One entry. Times in ms; `topic_hash` is the Java hash of the target topic, or 0."""

    previous_position: int
    magic: int
    write_time_ms: int
    delay_ms: int
    commit_offset: int
    size: int
    topic_hash: int
    reserved: int = 0

    @property
    def slot_time_ms(self) -> int:
        return self.write_time_ms + self.delay_ms

    def encode(self) -> bytes:
        """Its 52 bytes."""
        return _RECORD.pack(
            TIMER_RECORD_SIZE,
            self.previous_position,
            self.magic,
            self.write_time_ms,
            self.delay_ms,
            self.commit_offset,
            self.size,
            self.topic_hash,
            self.reserved,
        )


@dataclass(frozen=True, slots=True)
class TimerScan:
    """The records at the start of a file, where they end, and whether there is an end mark."""

    records: npt.NDArray[np.void]
    end: int
    is_full: bool

    def slot_times_ms(self) -> list[int]:
        """The slot's time of each record."""
        times: list[int] = (
            self.records["write_time_ms"].astype(np.int64) + self.records["delay_ms"]
        ).tolist()
        return times

    def __iter__(self) -> Iterator[TimerRecord]:
        for first in range(0, len(self.records), _RECORDS_PER_STEP):
            for _, *fields in self.records[first : first + _RECORDS_PER_STEP].tolist():
                yield TimerRecord(*fields)


def is_timer_magic(magic: int) -> bool:
    """Whether only bits are set that have, or may get, a meaning."""
    return magic | _MAGIC_BITS == _MAGIC_BITS


def records_per_file(file_bytes: int) -> int:
    """How many records fit in a file before its end mark."""
    return max(0, file_bytes - END_MARK_SIZE) // TIMER_RECORD_SIZE


def encode_end_mark(remaining_bytes: int) -> bytes:
    """The 16 bytes after the last record of a full file; the rest stays zero."""
    return _END_MARK.pack(remaining_bytes, 0, MAGIC_END)


def decode_timer_record(data: bytes | bytearray | memoryview, position: int = 0) -> TimerRecord:
    """The record at `position`. Raises TimerLogCorrupt for an end mark, zeros, or anything else."""
    try:
        size, *fields = _RECORD.unpack_from(data, position)
    except struct.error:
        raise TimerLogCorrupt(f"no whole timer record at byte {position} of {len(data)}") from None
    record = TimerRecord(*fields)
    if size != TIMER_RECORD_SIZE or not is_timer_magic(record.magic):
        raise TimerLogCorrupt(
            f"no timer record at byte {position}: size {size}, magic {record.magic & 0xFFFFFFFF:#x}"
        )
    return record


def scan_timer_log(data: bytes | bytearray | memoryview) -> TimerScan:
    """All records from the start of a file up to the first bytes that are not one."""
    count = len(data) // TIMER_RECORD_SIZE
    records = np.frombuffer(data, TIMER_RECORD_DTYPE, count)
    valid = (records["record_size"] == TIMER_RECORD_SIZE) & (records["magic"] & ~_MAGIC_BITS == 0)
    usable = count if valid.all() else int(valid.argmin())
    end = usable * TIMER_RECORD_SIZE
    is_full = end + END_MARK_SIZE <= len(data) and _END_MARK.unpack_from(data, end)[2] == MAGIC_END
    return TimerScan(records[:usable], end, is_full)
