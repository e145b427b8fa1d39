"""Which of many records have the body that was written, according to their checksums."""

from __future__ import annotations

import numpy as np
from isal.isal_zlib import crc32

from aerobee.store.format.record_arrays import BoolArray, RecordArrays, byte_field, read_field
from aerobee.store.format.record_layout import BODY_CRC_AT, CRC_MASK


def sound_bodies(buffer: bytes | bytearray | memoryview, arrays: RecordArrays) -> BoolArray:
    """Whether each record's body has its checksum; empty ones need none."""
    is_empty = arrays.body_ends == arrays.body_starts
    return np.asarray(bodies_match(buffer, arrays) | is_empty, np.bool_)


def bodies_match(buffer: bytes | bytearray | memoryview, arrays: RecordArrays) -> BoolArray:
    """Whether each record's body has its checksum, including empty ones, whose checksum is 0."""
    view = memoryview(buffer)
    # Keep per-record work inside this loop: it is most of the total time.
    crcs = [
        crc32(view[start:end])
        for start, end in zip(arrays.body_starts.tolist(), arrays.body_ends.tolist(), strict=True)
    ]
    stored = read_field(byte_field(buffer, ">i4"), arrays.starts + BODY_CRC_AT)
    return np.asarray((np.array(crcs, np.int64) & CRC_MASK) == stored, np.bool_)
