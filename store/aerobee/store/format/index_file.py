"""An index file: from the hash of `topic#key` to the positions of records in the log.

   0                40                  40 + 4 * slots        40 + 4 * slots + 20 * entries
   | header         | slots             | entries             |

   header  0 begin timestamp i64  8 end timestamp i64  16 begin offset i64  24 end offset i64
           32 used slots i32      36 count i32: the number of the next entry, from 1 on
   slot    number i32 of the newest entry whose hash modulo the number of slots leads here
   entry   0 hash i32  4 physical offset i64  12 seconds since the begin timestamp i32
           16 number i32 of the next older entry of the same slot, 0 for none

Entry 0 is never used. Big-endian throughout. The numbers of slots and entries are not in the file:
its reader must know them.

`insert` computes, as arrays, what Apache's broker would write for each key in turn. The header of a
new file starts with the end values of the file before it; its first entry's seconds are counted
from those, although that entry then sets the begin timestamp.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
INDEX_ENTRY_SIZE: Final = 20
INDEX_ENTRY_DTYPE: Final = np.dtype(
    [("hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
IndexEntries = npt.NDArray[Any]
"""Entries end to end, of INDEX_ENTRY_DTYPE."""

_HEADER: Final = struct.Struct(">qqqqii")
_SECONDS_MAX: Final = 0x7FFF_FFFF


class IndexFileIllegal(ValueError):
    """Bytes that are not an index file, or sizes that no index file can have."""


@dataclass(frozen=True, slots=True)
class IndexGeometry:
    """The numbers of slots and entries in each file; entry 0 counts, although it is never used."""

    slots: int
    entries: int

    def __post_init__(self) -> None:
        if self.slots < 1 or self.entries < 2:
            raise IndexFileIllegal(
                f"an index file needs at least 1 slot and 2 entries, not {self.slots} and "
                f"{self.entries}"
            )

    @property
    def entries_at(self) -> int:
        """The position of entry 0."""
        return HEADER_SIZE + SLOT_SIZE * self.slots

    @property
    def file_bytes(self) -> int:
        return self.entries_at + INDEX_ENTRY_SIZE * self.entries

    def slot_at(self, slot: int) -> int:
        return HEADER_SIZE + SLOT_SIZE * slot

    def entry_at(self, number: int) -> int:
        return self.entries_at + INDEX_ENTRY_SIZE * number


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """Timestamps are store times in Unix ms, offsets physical ones, of the first and last key."""

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    used_slots: int = 0
    count: int = 1

    @property
    def has_entries(self) -> bool:
        return self.count > 1

    def encode(self) -> bytes:
        return _HEADER.pack(
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.used_slots,
            self.count,
        )

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """The header in a file's first 40 bytes. Raises IndexFileIllegal for fewer."""
        if len(data) < HEADER_SIZE:
            raise IndexFileIllegal(
                f"an index file's header has {HEADER_SIZE} bytes, here are {len(data)}"
            )
        begin_ms, end_ms, begin, end, used, count = _HEADER.unpack(data[:HEADER_SIZE])
        return cls(begin_ms, end_ms, begin, end, used, max(count, 1))

    def rolled(self) -> IndexHeader:
        """The header of the next file, before its first entry."""
        return IndexHeader(
            self.end_timestamp_ms,
            self.end_timestamp_ms,
            self.end_physical_offset,
            self.end_physical_offset,
        )


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """Keys to be added to the index, in log order: columns of equal length."""

    hashes: Int32Array
    physical_offsets: Int64Array
    store_timestamps_ms: Int64Array

    def __len__(self) -> int:
        return len(self.hashes)

    def part(self, start: int, end: int) -> IndexKeys:
        """Views, not copies."""
        chosen = slice(start, end)
        return IndexKeys(
            self.hashes[chosen], self.physical_offsets[chosen], self.store_timestamps_ms[chosen]
        )


@dataclass(frozen=True, slots=True)
class FileShare:
    """The keys [start, end) for one file, whose header before them is `header`."""

    header: IndexHeader
    is_new: bool
    start: int
    end: int


def share_out(newest: IndexHeader | None, keys: IndexKeys, entries: int) -> Iterator[FileShare]:
    """Assigns keys to files: the newest file until it is full, then new ones."""
    header = newest or IndexHeader()
    is_new = newest is None
    start = 0
    while start < len(keys):
        room = entries - header.count
        if room <= 0:
            header, is_new = header.rolled(), True
            continue
        end = min(len(keys), start + room)
        yield FileShare(header, is_new, start, end)
        header = replace(
            header,
            end_timestamp_ms=int(keys.store_timestamps_ms[end - 1]),
            end_physical_offset=int(keys.physical_offsets[end - 1]),
            count=header.count + end - start,
        )
        is_new = False
        start = end


def entry_seconds(header: IndexHeader, store_timestamps_ms: Int64Array) -> tuple[int, Int32Array]:
    """(begin timestamp, seconds) of entries that follow those counted in `header`.

    The begin timestamp is the header's afterwards; there must be at least one entry.
    """
    begin_ms = header.begin_timestamp_ms
    if header.has_entries:
        return begin_ms, _seconds(store_timestamps_ms, begin_ms)
    first_ms = int(store_timestamps_ms[0])
    seconds = _seconds(store_timestamps_ms, first_ms)
    seconds[:1] = _seconds(store_timestamps_ms[:1], begin_ms)
    return first_ms, seconds


def _seconds(timestamps_ms: Int64Array, begin_ms: int) -> Int32Array:
    if begin_ms <= 0:
        return np.zeros(len(timestamps_ms), np.int32)
    # Negative values become 0, so rounding down equals rounding toward zero.
    return np.clip((timestamps_ms - begin_ms) // 1_000, 0, _SECONDS_MAX).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Insertion:
    """What one file gets: its new header, entries from `first_number` on, changed slots."""

    header: IndexHeader
    first_number: int
    entries: IndexEntries
    slots: Int64Array
    slot_values: Int32Array


def insert(header: IndexHeader, slots: npt.NDArray[Any], keys: IndexKeys) -> Insertion:
    """Insert at least one key; the caller has checked that the file has room for all.

    `slots` is the file's slot table, and is not modified.
    """
    count = len(keys)
    first = header.count
    begin_ms, seconds = entry_seconds(header, keys.store_timestamps_ms)
    chains = keys.hashes.astype(np.int64) % len(slots)
    order = np.argsort(chains, kind="stable")
    in_order = chains[order]
    is_first = np.empty(count, np.bool_)
    is_first[0] = True
    np.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
    heads = np.asarray(slots[in_order[is_first]]).astype(np.int32)
    heads[(heads < 0) | (heads > first)] = 0
    # In slot order, each entry points to the one before it, and the first to the slot's old value.
    numbers = (order + first).astype(np.int32)
    previous_in_order = np.empty(count, np.int32)
    previous_in_order[1:] = numbers[:-1]
    previous_in_order[is_first] = heads
    is_last = np.append(is_first[1:], True)
    entries = np.empty(count, INDEX_ENTRY_DTYPE)
    entries["hash"] = keys.hashes
    entries["physical_offset"] = keys.physical_offsets
    entries["seconds"] = seconds
    entries["previous"][order] = previous_in_order
    begin_offset = header.begin_physical_offset
    after = replace(
        header,
        begin_timestamp_ms=begin_ms,
        end_timestamp_ms=int(keys.store_timestamps_ms[-1]),
        begin_physical_offset=begin_offset if first > 1 else int(keys.physical_offsets[0]),
        end_physical_offset=int(keys.physical_offsets[-1]),
        used_slots=header.used_slots + int(np.count_nonzero(heads == 0)),
        count=first + count,
    )
    return Insertion(after, first, entries, in_order[is_last], numbers[is_last])
