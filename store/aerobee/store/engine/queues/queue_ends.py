"""The file `consumequeue.ends`: the content of each queue's files, so a start need not read them.

It is valid only with the checkpoint it was written with, so it is ignored in a folder that another
broker used meanwhile; every queue's files are then read instead. It also distinguishes a queue that
lost its files from one that never had any. Losing the file costs only time.

The file is a sequence of blocks. The first, written when the store is opened, has all queues; each
checkpoint appends one with the changed queues. When these have grown too long the file is
rewritten. A block is valid as a whole or not at all, and is written once its content is on disk,
before the checkpoint with the same times. So every complete block is true, and after a crash
between a block and its checkpoint the previous block, which has one, is valid.

    "AQE1"  u32 crc32 of all that follows
    i64 physic, i64 logics timestamp, i64 flushed end: those of the checkpoint
    u32 bytes of names, u32 count of rows
    names: "<queue id>/<topic>\\0" for each queue that is new in this block; they are counted on
    rows:  number of the name, flags, first entry in files, first message and where its record is
           (or -1), end of the entries in files, end of the queue, end of its last record in the log
           (all 0 but the -1: the queue went with its topic; one of that name may follow)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from aerobee.store.engine.disk import Disk
from aerobee.store.format.checkpoint import Checkpoint

QUEUE_ENDS_FILE = "consumequeue.ends"
_NEW_FILE = "consumequeue.ends.tmp"

_MAGIC: Final = b"AQE1"
_HEAD = struct.Struct(">4sI")
_STAMP = struct.Struct(">qqqII")
_ROW = struct.Struct(">IIqqqqqq")
_COLUMNS: Final = (
    "first_offset",
    "min_offset",
    "min_position",
    "written_end",
    "end",
    "physical_end",
)
_ROW_DTYPE: Final = np.dtype(
    [("number", ">u4"), ("flags", ">u4"), *((column, ">i8") for column in _COLUMNS)]
)
_DAMAGED: Final = 1
# Appended blocks may take as much again as all queues, plus this.
_SLACK_BYTES = 1 << 20

Rows = npt.NDArray[np.void]


class QueueEnd(NamedTuple):
    """One queue; `number` is its index among the names."""

    number: int
    topic: str
    queue_id: int
    first_offset: int
    min_offset: int
    min_position: int
    written_end: int
    end: int
    physical_end: int
    is_damaged: bool = False


class QueueEndsFile:
    """The file during the life of a store; one thread at a time.

    Owns: a copy of the last row of each queue, so that the whole file can be written off the loop.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._names = bytearray()
        self._rows = np.zeros(0, _ROW_DTYPE)
        self._count = 0
        # Bytes of the file known to be intact; 0: it must be rewritten.
        self._size = 0

    def write(self, checkpoint: Checkpoint, changed: Sequence[QueueEnd]) -> None:
        """Add what changed. A new queue's number is the count of those before it. May be repeated
        after an error; becomes durable with an fsync of the root. Raises OSError."""
        size, self._size = self._size, 0
        block = self._apply(checkpoint, changed)
        if size and size + len(block) <= 2 * self._size_of_all + _SLACK_BYTES:
            file = self._disk.open_file(QUEUE_ENDS_FILE)
            file.write_at(size, (block,))
            file.datasync()
            file.close()
            self._size = size + len(block)
            return
        block = encode_block(checkpoint, bytes(self._names), self._rows[: self._count].tobytes())
        _replace(self._disk, block)
        self._size = len(block)

    @property
    def _size_of_all(self) -> int:
        return len(self._names) + self._count * _ROW.size

    def _apply(self, checkpoint: Checkpoint, changed: Sequence[QueueEnd]) -> bytes:
        ordered = sorted(changed)
        new = [end for end in ordered if end.number >= self._count]
        names = b"".join([b"%d/%s\0" % (end.queue_id, end.topic.encode()) for end in new])
        data = b"".join([_encode_row(end) for end in ordered])
        rows = np.frombuffer(data, _ROW_DTYPE)
        count = self._count + len(new)
        assert not new or new[-1].number == count - 1, "queues are numbered without a gap"
        if count > len(self._rows):
            grown = np.zeros(max(count, 2 * len(self._rows)), _ROW_DTYPE)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[rows["number"]] = rows
        self._names += names
        self._count = count
        return encode_block(checkpoint, names, data)


def _encode_row(end: QueueEnd) -> bytes:
    return _ROW.pack(end.number, _DAMAGED if end.is_damaged else 0, *end[3:9])


def _replace(disk: Disk, data: bytes) -> None:
    file = disk.open_file(_NEW_FILE, create=True)
    file.truncate(0)
    file.write_at(0, (data,))
    file.datasync()
    file.close()
    disk.rename(_NEW_FILE, QUEUE_ENDS_FILE)


def encode_block(checkpoint: Checkpoint, names: bytes, rows: bytes) -> bytes:
    stamp = _STAMP.pack(*_stamp(checkpoint), len(names), len(rows) // _ROW.size)
    body = b"".join((stamp, names, rows))
    return _HEAD.pack(_MAGIC, crc32(body)) + body


def _stamp(checkpoint: Checkpoint) -> tuple[int, int, int]:
    return (
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.confirm_physical_offset,
    )


# ---------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class _Block:
    stamp: tuple[int, int, int]
    names: list[str]
    rows: Rows


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """The content of the file; empty unless it is valid."""

    counts: bool = False
    queues: dict[tuple[str, int], QueueEnd] = field(default_factory=dict)


def read_queue_ends(disk: Disk, checkpoint: Checkpoint) -> QueueEnds:
    try:
        return decode_queue_ends(disk.read_file(QUEUE_ENDS_FILE), checkpoint)
    except OSError:
        return QueueEnds()


def decode_queue_ends(data: bytes, checkpoint: Checkpoint) -> QueueEnds:
    """It is valid if any of its blocks was written with this checkpoint."""
    names: list[str] = []
    parts: list[Rows] = []
    matches = False
    for block in _blocks(data):
        names += block.names
        parts.append(block.rows)
        matches |= block.stamp == _stamp(checkpoint)
    if not matches:
        return QueueEnds()
    rows = np.zeros(len(names), _ROW_DTYPE)
    for part in parts:
        rows[part["number"]] = part
    return QueueEnds(True, {(end.topic, end.queue_id): end for end in _ends(names, rows)})


def _blocks(data: bytes) -> Iterator[_Block]:
    """The intact blocks at the beginning of the file."""
    at = 0
    count = 0
    while at + _HEAD.size + _STAMP.size <= len(data):
        magic, crc = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        *stamp, names_bytes, row_count = _STAMP.unpack_from(data, at)
        names_at = at + _STAMP.size
        rows_at = names_at + names_bytes
        end = rows_at + row_count * _ROW.size
        if magic != _MAGIC or end > len(data) or crc32(memoryview(data)[at:end]) != crc:
            return
        names = data[names_at:rows_at].decode().split("\0")[:-1]
        rows = np.frombuffer(data[rows_at:end], _ROW_DTYPE)
        count += len(names)
        if len(rows) and int(rows["number"].max()) >= count:
            return
        yield _Block((stamp[0], stamp[1], stamp[2]), names, rows)
        at = end


def _ends(names: Sequence[str], rows: Rows) -> Iterator[QueueEnd]:
    topics: dict[str, str] = {}  # one string for all queues of a topic
    columns = [rows[column].tolist() for column in _COLUMNS]
    flags = rows["flags"].tolist()
    for number, (name, flag, *values) in enumerate(zip(names, flags, *columns, strict=True)):
        queue_id, _, topic = name.partition("/")
        topic = topics.setdefault(topic, topic)
        first, minimum, position, written_end, end, physical_end = values
        yield QueueEnd(
            number,
            topic,
            int(queue_id),
            first,
            minimum,
            position,
            written_end,
            end,
            physical_end,
            flag == _DAMAGED,
        )
