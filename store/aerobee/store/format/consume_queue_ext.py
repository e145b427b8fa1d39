"""Consume queue extensions: what an entry can hold beyond its 20 bytes.

   0      2           10           18              20
   | size | tags code | store time | bitmap length | bitmap ...        i16, i64, i64, i16, bytes

With `enableConsumeQueueExt` Apache puts such a unit into `consumequeue_ext/<topic>/<queue>/` and
its address in place of the entry's tags code: the unit's position in that folder's files - 2^63. No
tags code is that small. A unit never crosses a file boundary; if none fits, the size -1 ends the
file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

EXT_ADDRESS_MAX: Final = -(1 << 31) - 1
EXT_UNIT_SIZE_MIN: Final = 20

_ADDRESS_BASE: Final = -(1 << 63)
_HEAD: Final = struct.Struct(">hqqh")


class ExtUnitCorrupt(ValueError):
    """Bytes that are not an extension unit."""


@dataclass(frozen=True, slots=True)
class ExtUnit:
    """The tags code of the entry, the record's store time (Unix ms), and one bit for each filter
    that the record's properties may match."""

    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        return EXT_UNIT_SIZE_MIN + len(self.bitmap)


def is_ext_address(tags_code: int) -> bool:
    """Whether the value in place of an entry's tags code is an address."""
    return tags_code <= EXT_ADDRESS_MAX


def ext_address(position: int) -> int:
    """The address of the unit at `position`, as stored in an entry."""
    return position + _ADDRESS_BASE


def ext_position(address: int) -> int:
    """The position of an address's unit, counted over all files of the queue."""
    return address - _ADDRESS_BASE


def decode_ext_unit(data: bytes | bytearray | memoryview, position: int = 0) -> ExtUnit:
    """The unit at `position`. Raises ExtUnitCorrupt for anything else, including a file's end."""
    try:
        size, tags_code, store_timestamp_ms, bitmap_length = _HEAD.unpack_from(data, position)
    except struct.error:
        raise ExtUnitCorrupt(f"no whole unit at byte {position} of {len(data)}") from None
    end = position + size
    if bitmap_length < 0 or size != EXT_UNIT_SIZE_MIN + bitmap_length or end > len(data):
        raise ExtUnitCorrupt(f"no unit at byte {position}: size {size}, bitmap {bitmap_length}")
    bitmap = bytes(data[position + EXT_UNIT_SIZE_MIN : end])
    return ExtUnit(tags_code, store_timestamp_ms, bitmap)
