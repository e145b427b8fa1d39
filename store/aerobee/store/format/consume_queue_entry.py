"""The 20-byte consume queue entry: where a message of a queue is in the log.

   0                 8        12           20
   | physical offset | size   | tags code  |      i64, i32, i64, big-endian

Entry n of a queue is at byte 20 * n of the queue. Many entries are packed and unpacked as arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

ENTRY_SIZE: Final = 20
ENTRY_DTYPE: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])

# Fills a queue's first file before its first real entry; no record has this size.
PRE_BLANK_SIZE: Final = 0x7FFF_FFFF
PRE_BLANK_ENTRY: Final = struct.pack(">qiq", 0, PRE_BLANK_SIZE, 0)

Int64Array = npt.NDArray[np.int64]

_ENTRY: Final = struct.Struct(">qiq")


class EntriesCorrupt(ValueError):
    """Bytes that are not whole consume queue entries."""


def pack_entry(physical_offset: int, size: int, tags_code: int) -> bytes:
    """One entry."""
    return _ENTRY.pack(physical_offset, size, tags_code)


def unpack_entry(buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, int, int]:
    """(physical offset, size, tags code) of the entry at `position`."""
    try:
        physical_offset, size, tags_code = _ENTRY.unpack_from(buffer, position)
    except struct.error:
        raise EntriesCorrupt(
            f"no whole consume queue entry at byte {position} of {len(buffer)}"
        ) from None
    return physical_offset, size, tags_code


def iterate_entries(data: bytes | bytearray | memoryview) -> Iterator[tuple[int, int, int]]:
    """`unpack_entry` for each of a few entries end to end.

    Raises EntriesCorrupt unless `data` is a whole number of entries.
    """
    _check_whole(data)
    return _ENTRY.iter_unpack(data)


def pack_entries(
    physical_offsets: npt.ArrayLike, sizes: npt.ArrayLike, tags_codes: npt.ArrayLike
) -> bytes:
    """Entries end to end from three columns of equal length."""
    offsets = np.asarray(physical_offsets, np.int64)
    entries = np.empty(offsets.shape[0], ENTRY_DTYPE)
    entries["physical_offset"] = offsets
    entries["size"] = sizes
    entries["tags_code"] = tags_codes
    return entries.tobytes()


def unpack_entries(
    data: bytes | bytearray | memoryview,
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The columns physical offsets, sizes and tags codes of entries end to end.

    Raises EntriesCorrupt unless `data` is a whole number of entries.
    """
    _check_whole(data)
    entries = np.frombuffer(data, ENTRY_DTYPE)
    return (
        entries["physical_offset"].astype(np.int64),
        entries["size"].astype(np.int64),
        entries["tags_code"].astype(np.int64),
    )


def _check_whole(data: bytes | bytearray | memoryview) -> None:
    if len(data) % ENTRY_SIZE:
        raise EntriesCorrupt(
            f"{len(data)} bytes are not a whole number of {ENTRY_SIZE}-byte entries"
        )
