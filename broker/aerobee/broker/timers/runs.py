"""Runs: files of waiting messages sorted by key, written once.

    blocks of BLOCK_ROWS rows of PENDING_DTYPE; the last one may be shorter
    directory: a row of _BLOCK_DTYPE for each block
    "AQT1"  u32 blocks, u64 rows, u32 crc32 of the directory      little-endian, 20 bytes

The directory is in memory: 44 bytes for 160 KiB of rows. A block is checked each time it is read.
Nothing here makes decisions; all of it may block on the disk.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Generator, Sequence
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from aerobee.broker.timers.frontier import Frontier
from aerobee.broker.timers.pending import (
    PENDING_DTYPE,
    Key,
    Rows,
    in_order,
    key_of,
    rank,
)
from aerobee.broker.timers.progress import DoneView
from aerobee.store.engine.disk import Disk, DiskFile

BLOCK_ROWS: Final = 4_096

_MAGIC: Final = b"AQT1"
_TAIL: Final = struct.Struct("<4sIQI")
_BLOCK_DTYPE: Final = np.dtype(
    [
        ("first_ms", "<i8"),
        ("first_offset", "<i8"),
        ("offset_min", "<i8"),
        ("offset_max", "<i8"),
        ("position_min", "<i8"),
        ("crc", "<u4"),
    ]
)


class IndexDamaged(Exception):
    """A file of the index is not as it was written: the index must be rebuilt."""


class Run:
    """One file, as its directory describes it."""

    def __init__(self, name: str, rows: int, directory: npt.NDArray[np.void], last: Key) -> None:
        self.name = name
        self.rows = rows
        self.directory = directory
        self.last = last
        self.offset_max = int(directory["offset_max"].max())

    def __repr__(self) -> str:
        return f"Run({self.name}, {self.rows} rows)"

    def is_passed(self, frontier: Frontier) -> bool:
        """Whether everything in it is done. False if it would have to be read to find out."""
        steps = frontier.steps
        return bool(steps) and self.last <= steps[0].high and self.offset_max < steps[0].end

    def block_before(self, key: Key) -> int:
        """The first block that may have rows after `key`."""
        starts: Any = self.directory["first_ms"]
        block = bisect_right(starts, key.due_ms) - 1
        while (
            block > 0 and Key(int(starts[block]), int(self.directory["first_offset"][block])) > key
        ):
            block -= 1
        return max(block, 0)

    def read_block(self, file: DiskFile, block: int) -> Rows:
        """Raises IndexDamaged, OSError."""
        first = block * BLOCK_ROWS
        count = min(BLOCK_ROWS, self.rows - first)
        data = file.read_at(first * PENDING_DTYPE.itemsize, count * PENDING_DTYPE.itemsize)
        if crc32(data) != int(self.directory["crc"][block]):
            raise IndexDamaged(f"block {block} of {self.name} is damaged")
        return np.frombuffer(data, PENDING_DTYPE)


class RunWriter:
    """Writes one run to disk."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._file = disk.open_file(name, create=True)
        self._file.truncate(0)
        self._name = name
        self._waiting: list[Rows] = []
        self._waiting_rows = 0
        self._rows = 0
        self._blocks: list[tuple[int, ...]] = []
        self._last: Key | None = None

    def add(self, rows: Rows) -> None:
        """Add the next rows, in key order."""
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows >= BLOCK_ROWS:
            rows = np.concatenate(self._waiting)
            whole = len(rows) - len(rows) % BLOCK_ROWS
            for first in range(0, whole, BLOCK_ROWS):
                self._write(rows[first : first + BLOCK_ROWS])
            self._waiting, self._waiting_rows = [rows[whole:]], len(rows) - whole

    def _write(self, rows: Rows) -> None:
        data = rows.tobytes()
        self._file.write_at(self._rows * PENDING_DTYPE.itemsize, [data])
        self._rows += len(rows)
        offsets = rows["offset"]
        self._blocks.append(
            (
                *key_of(rows[0]),
                int(offsets.min()),
                int(offsets.max()),
                int(rows["position"].min()),
                crc32(data),
            )
        )
        self._last = key_of(rows[-1])

    def finish(self) -> Run | None:
        """Everything is on disk, except the file's name; None if there were no rows."""
        rest = np.concatenate(self._waiting) if self._waiting else ()
        if len(rest):
            self._write(np.asarray(rest))
        if self._last is None:
            self._file.close()
            return None
        directory = np.array(self._blocks, _BLOCK_DTYPE)
        data = directory.tobytes()
        tail = _TAIL.pack(_MAGIC, len(directory), self._rows, crc32(data))
        self._file.write_at(self._rows * PENDING_DTYPE.itemsize, [data, tail])
        self._file.datasync()
        self._file.close()
        return Run(self._name, self._rows, directory, self._last)


def open_run(disk: Disk, name: str, rows: int) -> Run:
    """A run that was finished with this many rows. Raises IndexDamaged, OSError."""
    file = disk.open_file(name, read_only=True)
    try:
        size = file.size()
        tail = file.read_at(max(0, size - _TAIL.size), _TAIL.size)
        if len(tail) < _TAIL.size:
            raise IndexDamaged(f"{name} is too short")
        magic, blocks, found_rows, crc = _TAIL.unpack(tail)
        rows_bytes = rows * PENDING_DTYPE.itemsize
        directory_bytes = blocks * _BLOCK_DTYPE.itemsize
        if (magic, found_rows) != (_MAGIC, rows) or not blocks:
            raise IndexDamaged(f"{name} is not what the manifest names")
        if size != rows_bytes + directory_bytes + _TAIL.size:
            raise IndexDamaged(f"{name} has a wrong length")
        data = file.read_at(rows_bytes, directory_bytes)
        if crc32(data) != crc:
            raise IndexDamaged(f"the directory of {name} is damaged")
        directory = np.frombuffer(data, _BLOCK_DTYPE)
        run = Run(name, rows, directory, Key(0, 0))
        run.last = key_of(run.read_block(file, blocks - 1)[-1])
        return run
    finally:
        file.close()


class _Cursor:
    """The part of one run that is not merged yet."""

    def __init__(self, disk: Disk, run: Run, after: Key) -> None:
        self._run = run
        self.file = disk.open_file(run.name, read_only=True)
        self._block = run.block_before(after)
        self.rows: Rows = run.read_block(self.file, self._block)
        self.take(after)

    def take(self, until: Key) -> Rows:
        """Remove and return the rows up to `until`; reads the next block when one is used up."""
        count = rank(self.rows, until)
        taken, self.rows = self.rows[:count], self.rows[count:]
        if not len(self.rows) and self._block + 1 < len(self._run.directory):
            self._block += 1
            self.rows = self._run.read_block(self.file, self._block)
        return taken


def merged(disk: Disk, runs: Sequence[Run], after: Key, view: DoneView) -> Generator[Rows]:
    """All rows of the runs after a key that are not done, in key order, in pieces of at most a
    block of each run. Raises IndexDamaged, OSError."""
    cursors: list[_Cursor] = []
    try:
        cursors.extend(_Cursor(disk, run, after) for run in runs if run.last > after)
        while cursors := _unfinished(cursors):
            until = min(key_of(cursor.rows[-1]) for cursor in cursors)
            rows = in_order([cursor.take(until) for cursor in cursors])
            pending = view.pending(rows)
            rows = rows if pending.all() else rows[pending]
            if len(rows):
                yield rows
    finally:
        for cursor in cursors:
            cursor.file.close()


def _unfinished(cursors: list[_Cursor]) -> list[_Cursor]:
    for cursor in cursors:
        if not len(cursor.rows):
            cursor.file.close()
    return [cursor for cursor in cursors if len(cursor.rows)]
