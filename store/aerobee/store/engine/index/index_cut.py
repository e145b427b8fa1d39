"""Removes the last entries of an index file, and repairs its slots.

After a crash slots may point to entries that the header does not count, and if the log was cut,
entries point to records that are gone or replaced by others. The first entries are kept; each slot
then points to the last of them that belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aerobee.store.engine.disk import Disk, DiskFile
from aerobee.store.engine.index.index_files import IndexFileInfo
from aerobee.store.engine.index.index_write import DirtySlots, Slots, read_slots
from aerobee.store.format.index_file import (
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    IndexGeometry,
    IndexHeader,
)

_BLOCK_ENTRIES: Final = 1 << 18

Entries = npt.NDArray[Any]


def read_index_entry(
    file: DiskFile, geometry: IndexGeometry, number: int
) -> tuple[int, int, int, int]:
    """(hash, physical offset, seconds, previous number) of one entry."""
    data = file.read_at(geometry.entry_at(number), INDEX_ENTRY_SIZE)
    data = data.ljust(INDEX_ENTRY_SIZE, b"\0")
    key_hash, offset, seconds, previous = np.frombuffer(data, INDEX_ENTRY_DTYPE)[0].item()
    return int(key_hash), int(offset), int(seconds), int(previous)


def iterate_entries(
    file: DiskFile, geometry: IndexGeometry, count: int
) -> Iterator[tuple[int, Entries]]:
    """Blocks of the entries before number `count`, each with the number of its first entry."""
    for first in range(1, count, _BLOCK_ENTRIES):
        wanted = min(_BLOCK_ENTRIES, count - first) * INDEX_ENTRY_SIZE
        data = file.read_at(geometry.entry_at(first), wanted).ljust(wanted, b"\0")
        yield first, np.frombuffer(data, INDEX_ENTRY_DTYPE)


def first_entry_behind(
    file: DiskFile, geometry: IndexGeometry, header: IndexHeader, offset: int
) -> int:
    """The number of the first entry that points to log offset `offset` or later, or else the count.

    Entries are in log order.
    """
    low, high = 1, header.count
    while low < high:
        middle = (low + high) // 2
        if read_index_entry(file, geometry, middle)[1] < offset:
            low = middle + 1
        else:
            high = middle
    return low


def slots_lead_behind(disk: Disk, geometry: IndexGeometry, info: IndexFileInfo) -> bool:
    """Whether any slot points to an entry that the header does not count."""
    return bool(read_slots(disk, info, geometry).max() >= info.header.count)


def cut_index_file(
    disk: Disk,
    geometry: IndexGeometry,
    info: IndexFileInfo,
    count: int,
    *,
    end_timestamp_ms: int | None,
    read_only: bool,
) -> tuple[IndexFileInfo, Slots]:
    """The file with the entries before number `count`, at least one, and the matching slots.

    `end_timestamp_ms` is the store time of the last entry's record, None if unknown. With
    `read_only` the file stays unchanged, and only the returned value is cut.
    """
    file = disk.open_file(info.path, read_only=read_only)
    slots = np.zeros(geometry.slots, ">i4")
    for first, entries in iterate_entries(file, geometry, count):
        # If several entries share a slot the last one wins.
        slots[entries["hash"].astype(np.int64) % geometry.slots] = np.arange(
            first, first + len(entries)
        )
    header = info.header
    if count != header.count:
        _, end_offset, seconds, _ = read_index_entry(file, geometry, count - 1)
        if end_timestamp_ms is None:
            # In a rolled file, the seconds of the first entry mean something else.
            seconds = 0 if count == 2 else seconds
            end_timestamp_ms = header.begin_timestamp_ms + seconds * 1_000
        header = replace(
            header,
            end_physical_offset=end_offset,
            end_timestamp_ms=max(end_timestamp_ms, header.begin_timestamp_ms),
        )
    header = replace(header, count=count, used_slots=int(np.count_nonzero(slots)))
    if not read_only:
        _write(file, geometry, header, slots, read_slots(disk, info, geometry))
    file.close()
    return IndexFileInfo(info.name, header), slots


def _write(
    file: DiskFile, geometry: IndexGeometry, header: IndexHeader, slots: Slots, before: Slots
) -> None:
    dirty = DirtySlots(geometry)
    dirty.add(np.flatnonzero(slots != before))
    dirty.write(file, slots)
    file.write_at(0, (header.encode(),))
    file.datasync()
