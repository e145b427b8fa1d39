"""Records that lost a sector on their way to the disk, and do not show it.

A power failure may leave zeros where a sector of a record belongs. Mostly the record's lengths or
the checksum of its body tell; nothing tells if the sector lies wholly in the properties, or reaches
into them from a body that ends in zeros. So where bytes may not have been synced, a record counts
as torn if one whole sector's share of it is zeros and reaches into its properties. No writer ends
properties, or fills a sector of them, with zero bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aerobee.store_format.record_arrays import Int64Array, byte_field
from aerobee.store_format.scan import ScanEnd, ScanResult

# The smallest unit that a disk writes whole; larger ones are multiples of it.
_SECTOR_BYTES = 512


def before_torn(data: bytes, result: ScanResult, *, position: int, torn_from: int) -> ScanResult:
    """The records of `result` before the first torn one; all of it if there is none.

    `data` is what was scanned and `position` its place in the file; records that begin before the
    position `torn_from` of the file are safe.
    """
    for index in _suspects(data, result, position, torn_from):
        if _is_torn(data, result, index, position):
            return _first(result, index)
    return result


def _suspects(data: bytes, result: ScanResult, position: int, torn_from: int) -> list[int]:
    """Indexes of the records that end in a zero byte or have a sector that begins with zeros."""
    starts = result.positions
    ends = starts + result.sizes
    first = int(np.searchsorted(starts, torn_from - position))
    if first == len(starts):
        return []
    end_in_zero = byte_field(data, "u1")[ends[first:] - 1] == 0
    sectors = np.arange(-position % _SECTOR_BYTES, int(ends[-1]) - 7, _SECTOR_BYTES)
    sectors = sectors[sectors > starts[first]]
    in_zero = sectors[byte_field(data, ">i8")[sectors] == 0]
    holders = np.searchsorted(starts, in_zero, side="right") - 1
    found = set((np.flatnonzero(end_in_zero) + first).tolist())
    return sorted(found | set(holders.tolist()))


def _is_torn(data: bytes, result: ScanResult, index: int, position: int) -> bool:
    start = int(result.positions[index])
    end = start + int(result.sizes[index])
    properties_start = int(result.properties_starts[index])
    if properties_start == end:
        return False  # what is zero here is the length of the properties
    first = properties_start - (position + properties_start) % _SECTOR_BYTES
    for sector in range(first, end, _SECTOR_BYTES):
        share = data[max(sector, start) : min(sector + _SECTOR_BYTES, end)]
        if not any(share):
            return True
    return False


def _first(result: ScanResult, count: int) -> ScanResult:
    def cut(column: Int64Array) -> Int64Array:
        return column[:count]

    return replace(
        result,
        positions=cut(result.positions),
        sizes=cut(result.sizes),
        sys_flags=cut(result.sys_flags),
        queue_ids=cut(result.queue_ids),
        queue_offsets=cut(result.queue_offsets),
        physical_offsets=cut(result.physical_offsets),
        store_timestamps=cut(result.store_timestamps),
        tags_codes=cut(result.tags_codes),
        topic_codes=cut(result.topic_codes),
        properties_starts=cut(result.properties_starts),
        valid_end=int(result.positions[count]),
        end=ScanEnd.TORN,
    )
