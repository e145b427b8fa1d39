"""From record to record by their size fields alone: the first step of a scan.

Neighbouring records often have the same size, so after a few of one size the next ones are looked
for at equal distances, all at once; otherwise each size is read to find the next.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from aerobee.store.format.record_arrays import Int64Array, byte_field
from aerobee.store.format.record_layout import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
)

SIZE_AND_MAGIC: Final = struct.Struct(">ii")

# This many of one size suggest that more follow; first this many are looked for, then more and
# more.
_LIKE_SIZES_MIN: Final = 16
_STRIDES_MIN: Final = 64
_STRIDES_GROWTH: Final = 4


def hop(buffer: bytes | bytearray | memoryview) -> tuple[Int64Array, Int64Array]:
    """Starts and ends of everything with a record's magic and a size that fits in the buffer, from
    the first byte up to the first place without these."""
    unpack = SIZE_AND_MAGIC.unpack_from
    pieces: list[Int64Array] = []
    starts: list[int] = []
    add = starts.append
    position = 0
    length = len(buffer)
    last = length - RECORD_SIZE_MIN
    last_size = 0
    alike = 0
    while position <= last:
        size, magic = unpack(buffer, position)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_SIZE_MIN:
            break
        next_position = position + size
        if next_position > length:
            break
        add(position)
        position = next_position
        if size != last_size:
            last_size = size
            alike = 1
            continue
        alike += 1
        if alike == _LIKE_SIZES_MIN:
            alike = 0
            pieces.append(np.array(starts, np.int64))
            starts.clear()
            pieces.append(_stride(buffer, position, size))
            position += size * len(pieces[-1])
    column = np.concatenate((*pieces, np.array([*starts, position], np.int64)))
    return column[:-1], column[1:]


def _stride(buffer: bytes | bytearray | memoryview, position: int, size: int) -> Int64Array:
    """Starts of the consecutive records from `position` on that have the size and the magic of the
    one before `position`, which is `size` long."""
    field = byte_field(buffer, ">i8")
    expected = field[position - size]
    count_max = (len(buffer) - position) // size
    count = 0
    width = _STRIDES_MIN
    while count < count_max:
        upto = min(count + width, count_max)
        heads = field[position + count * size : position + (upto - 1) * size + 1 : size]
        unlike = heads != expected
        if unlike.any():
            count += int(np.argmax(unlike))
            break
        count = upto
        width *= _STRIDES_GROWTH
    return position + size * np.arange(count)
