"""The file `producers.windows`: the windows as derived from the log up to a position.

A start reads it and walks the log after that position. The file is a sequence of blocks: the first
has all windows, each checkpoint appends one with the changed windows, and when these have grown too
long the file is rewritten. A block is valid as a whole or not at all. A later row replaces an
earlier one of the same name; one without intervals deletes it.

    "AQP1"  u32 crc32 of all that follows, u32 its length
    i64 log position, u32 count of rows
    rows: i32 queue id, u64 producer id, i32 floor, i64 store timestamp of the newest record,
          u16 bytes of the topic, u16 count of intervals, topic,
          intervals: i64 first number, i64 after the last number, i64 queue offset of the first
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.producers.producer_windows import (
    ProducerName,
    ProducerWindows,
    WindowRow,
)

WINDOWS_FILE: Final = "producers.windows"
_NEW_FILE: Final = "producers.windows.tmp"

_MAGIC: Final = b"AQP1"
_HEAD: Final = struct.Struct(">4sII")
_STAMP: Final = struct.Struct(">qI")
_ROW: Final = struct.Struct(">iQiqHH")
_INTERVAL_BYTES: Final = 24
# Blocks of changes may take as much again as all windows, plus this.
_SLACK_BYTES: Final = 1 << 20


class WindowsWrite:
    """What a checkpoint must write: the windows that changed, or all of them."""

    __slots__ = ("_disk", "_position", "_rows", "at", "size")

    def __init__(self, disk: Disk, at: int, position: int, rows: Sequence[WindowRow]) -> None:
        """Append at byte `at` of the file; 0: rewrite the file."""
        self._disk = disk
        self._position = position
        self._rows = rows
        self.at = at
        self.size = 0

    def run(self) -> None:
        """[any thread] May be repeated after an error; becomes durable with an fsync of the root.
        Raises OSError."""
        block = encode_block(self._position, self._rows)
        file = self._disk.open_file(WINDOWS_FILE if self.at else _NEW_FILE, create=not self.at)
        if not self.at:
            file.truncate(0)
        file.write_at(self.at, (block,))
        file.datasync()
        file.close()
        if not self.at:
            self._disk.rename(_NEW_FILE, WINDOWS_FILE)
        self.size = len(block)


class WindowsFile:
    """The file during the life of a store: its length, and when to rewrite it."""

    def __init__(self, disk: Disk, windows: ProducerWindows) -> None:
        self._disk = disk
        self._windows = windows
        # Bytes of the file known to be intact; 0: it must be rewritten.
        self._size = 0
        self._whole_size = 0

    def take_write(self, position: int) -> WindowsWrite | None:
        """What the file lacks, now that the log ends at `position`; None if nothing. Take the next
        one only when this one is finished, or lost: then the file is rewritten."""
        if self._size and not self._windows.has_unwritten:
            return None
        at, self._size = self._size, 0
        if at and at <= 2 * self._whole_size + _SLACK_BYTES:
            return WindowsWrite(self._disk, at, position, self._windows.take_changed())
        return WindowsWrite(self._disk, 0, position, self._windows.take_all())

    def finish_write(self, write: WindowsWrite) -> None:
        """`write.run` returned."""
        self._size = write.at + write.size
        if not write.at:
            self._whole_size = write.size


def encode_block(position: int, rows: Sequence[WindowRow]) -> bytes:
    parts = [_STAMP.pack(position, len(rows))]
    for (topic, queue_id, producer_id), floor, timestamp_ms, intervals in rows:
        name = topic.encode()
        count = len(intervals) // _INTERVAL_BYTES
        parts += (
            _ROW.pack(queue_id, producer_id, floor, timestamp_ms, len(name), count),
            name,
            np.frombuffer(intervals, np.int64).astype(">i8").tobytes(),
        )
    body = b"".join(parts)
    return _HEAD.pack(_MAGIC, crc32(body), len(body)) + body


@dataclass(frozen=True, slots=True)
class SavedWindows:
    """The content of the file."""

    position: int
    """The windows are derived from the log up to here."""
    rows: list[WindowRow]


def read_windows(disk: Disk) -> SavedWindows | None:
    """None if there is no file or nothing in it is intact."""
    try:
        return decode_windows(disk.read_file(WINDOWS_FILE))
    except OSError:
        return None


def decode_windows(data: bytes) -> SavedWindows | None:
    """None unless at least the first block is intact."""
    position = -1
    rows: list[WindowRow] = []
    for position, block in _blocks(data):  # noqa: B007 - the last one counts
        rows += block
    return None if position < 0 else SavedWindows(position, rows)


def _blocks(data: bytes) -> Iterator[tuple[int, list[WindowRow]]]:
    """The intact blocks at the beginning of the file."""
    at = 0
    while at + _HEAD.size + _STAMP.size <= len(data):
        magic, crc, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        end = at + size
        if magic != _MAGIC or end > len(data) or crc32(memoryview(data)[at:end]) != crc:
            return
        position, count = _STAMP.unpack_from(data, at)
        at += _STAMP.size
        rows = []
        for _ in range(count):
            queue_id, producer_id, floor, timestamp_ms, name_size, intervals = _ROW.unpack_from(
                data, at
            )
            at += _ROW.size
            topic = data[at : at + name_size].decode()
            at += name_size
            numbers = np.frombuffer(data, ">i8", 3 * intervals, at).astype(np.int64)
            at += _INTERVAL_BYTES * intervals
            name = ProducerName(topic, queue_id, producer_id)
            rows.append(WindowRow(name, floor, timestamp_ms, numbers.tobytes()))
        yield position, rows
