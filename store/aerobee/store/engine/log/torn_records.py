"""Detects torn records, even where not all of their bytes show it.

A power failure may leave zeros in place of a sector of a record. Usually the record's lengths or
the checksum of its body reveal it, but not if the sector is entirely within the properties, or
reaches into them from a body that ends in zeros. So where bytes may not have been synced, a record
counts as torn if a whole sector's share of it is zeros and reaches into its properties. No writer
ends properties, or fills a sector of them, with zero bytes.

The size in a torn record is arbitrary. Reading that much, only to find that nothing fits, may take
more memory than there is; so for a record larger than a read chunk the lengths are checked first.
"""

from __future__ import annotations

import struct

import numpy as np

from aerobee.store.engine.disk import DiskFile
from aerobee.store.format.record_arrays import byte_field
from aerobee.store.format.record_layout import (
    BODY_AT,
    BODY_LENGTH_AT,
    HOST_V6_EXTRA,
    MAGIC_AT,
    MAGIC_V2,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_STORE_HOST_V6,
)
from aerobee.store.format.scan import ScanEnd, ScanResult

# The smallest unit that a disk writes atomically; larger ones are multiples of it.
_SECTOR_BYTES = 512
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
HEAD_BYTES_MAX = BODY_AT + 2 * HOST_V6_EXTRA


def before_torn(data: bytes, result: ScanResult, *, position: int, torn_from: int) -> ScanResult:
    """The records of `result` before the first torn one; all of it if there is none.

    `data` is what was scanned and `position` its place in the file; records that begin before the
    position `torn_from` of the file are safe.
    """
    for index in _suspects(data, result, position, torn_from):
        if _is_torn(data, result, index, position):
            return result.before(index, ScanEnd.TORN)
    return result


def _suspects(data: bytes, result: ScanResult, position: int, torn_from: int) -> list[int]:
    """Indexes of records with a zero at the end of a sector's share that reaches into properties.

    Only bytes of properties are checked, so bodies of zeros cost nothing.
    """
    first = int(np.searchsorted(result.positions, torn_from - position))
    starts = result.properties_starts[first:]
    ends = result.positions[first:] + result.sizes[first:]
    lasts = byte_field(data, "u1")
    share_ends = starts + _SECTOR_BYTES - (position + starts) % _SECTOR_BYTES
    suspects = (ends > starts) & (lasts[np.minimum(share_ends, ends) - 1] == 0)
    while len(reaching := np.flatnonzero(share_ends < ends)):
        share_ends[reaching] += _SECTOR_BYTES
        share_lasts = np.minimum(share_ends[reaching], ends[reaching]) - 1
        suspects[reaching] |= lasts[share_lasts] == 0
    return (np.flatnonzero(suspects) + first).tolist()


def _is_torn(data: bytes, result: ScanResult, index: int, position: int) -> bool:
    start = int(result.positions[index])
    end = start + int(result.sizes[index])
    properties_start = int(result.properties_starts[index])
    if properties_start == end:
        return False  # the zero here is in the length of the properties
    first = properties_start - (position + properties_start) % _SECTOR_BYTES
    for sector in range(first, end, _SECTOR_BYTES):
        share = data[max(sector, start) : min(sector + _SECTOR_BYTES, end)]
        if not any(share):
            return True
    return False


def lengths_add_up(file: DiskFile, at: int, size: int) -> bool:
    """Whether the lengths of body, topic and properties add up to `size`, the claimed size (above
    HEAD_BYTES_MAX) of the record at byte `at`. Reads a few bytes of it.

    Raises OSError."""
    head = file.read_at(at, HEAD_BYTES_MAX)
    if len(head) < HEAD_BYTES_MAX:
        return False
    (magic,) = _I32.unpack_from(head, MAGIC_AT)
    (sys_flag,) = _I32.unpack_from(head, SYS_FLAG_AT)
    extra = HOST_V6_EXTRA * (
        bool(sys_flag & SYSFLAG_BORN_HOST_V6) + bool(sys_flag & SYSFLAG_STORE_HOST_V6)
    )
    (body_length,) = _I32.unpack_from(head, BODY_LENGTH_AT + extra)
    length_bytes = 2 if magic == MAGIC_V2 else 1
    topic_at = BODY_AT + extra + body_length + length_bytes
    if body_length < 0 or topic_at + _I16.size > size:
        return False
    topic_length = int.from_bytes(file.read_at(at + topic_at - length_bytes, length_bytes), "big")
    properties_at = topic_at + topic_length + _I16.size
    if properties_at > size:
        return False
    data = file.read_at(at + properties_at - _I16.size, _I16.size)
    return len(data) == _I16.size and properties_at + _I16.unpack(data)[0] == size
