"""How many slots and entries an index file has, determined from the file itself.

A file's length is 40 + 4 * slots + 20 * entries, so the first entry can be in many places. The
right place is one whose entry has the header's first physical offset, and for which the last entry
has the header's last offset. For a broker with the usual sizes, the length alone is enough.

The first offset of a log is 0, and so are nearly all bytes of a mostly unused file: so the search
includes the entry's hash, which is not 0 (except for one key in two billion).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from aerobee.store.format.index_file import (
    HEADER_SIZE,
    INDEX_ENTRY_SIZE,
    SLOT_SIZE,
    IndexFileIllegal,
    IndexGeometry,
    IndexHeader,
)

Read: TypeAlias = Callable[[int, int], bytes]

USUAL_GEOMETRY: Final = IndexGeometry(5_000_000, 20_000_000)
"""The default sizes of brokers."""

_CHUNK_BYTES: Final = 1 << 20
_OFFSET_AT: Final = 4
_PREVIOUS_AT: Final = 16


def geometry_of(read: Read, file_bytes: int) -> IndexGeometry | None:
    """None if the file has no entries, or is damaged where the answer would be.

    Args:
        read: returns the file's bytes between two positions; fewer at its end.
        file_bytes: its length.
    """
    if file_bytes == USUAL_GEOMETRY.file_bytes:
        return USUAL_GEOMETRY
    if file_bytes < HEADER_SIZE:
        return None
    header = IndexHeader.decode(read(0, HEADER_SIZE))
    if not header.has_entries:
        return None
    first_offset = header.begin_physical_offset.to_bytes(8, "big", signed=True)
    # A lookahead, because candidates may overlap.
    first_entry = re.compile(rb"(?s)(?=(?!\0{4}).{4}" + re.escape(first_offset) + rb")")
    at = HEADER_SIZE
    while at < file_bytes:
        data = read(at, min(at + _CHUNK_BYTES + _OFFSET_AT + len(first_offset) - 1, file_bytes))
        for found in first_entry.finditer(data):
            geometry = _fitting(at + found.start() - INDEX_ENTRY_SIZE, file_bytes)
            if geometry is not None and _leads_to_the_end(read, geometry, header):
                return geometry
        at += _CHUNK_BYTES
    return None


def _fitting(entries_at: int, file_bytes: int) -> IndexGeometry | None:
    slots, slots_rest = divmod(entries_at - HEADER_SIZE, SLOT_SIZE)
    entries, entries_rest = divmod(file_bytes - entries_at, INDEX_ENTRY_SIZE)
    if slots_rest or entries_rest:
        return None
    try:
        return IndexGeometry(slots, entries)
    except IndexFileIllegal:
        return None


def _leads_to_the_end(read: Read, geometry: IndexGeometry, header: IndexHeader) -> bool:
    """Whether the last entry is the newest of its slot and has the header's last offset."""
    last = header.count - 1
    if last >= geometry.entries:
        return False
    at = geometry.entry_at(last)
    entry = read(at, at + INDEX_ENTRY_SIZE)
    if len(entry) < INDEX_ENTRY_SIZE:
        return False
    key_hash = int.from_bytes(entry[:_OFFSET_AT], "big", signed=True)
    offset = int.from_bytes(entry[_OFFSET_AT : _OFFSET_AT + 8], "big", signed=True)
    previous = int.from_bytes(entry[_PREVIOUS_AT:], "big", signed=True)
    if key_hash < 0 or offset != header.end_physical_offset or not 0 <= previous < last:
        return False
    slot_at = geometry.slot_at(key_hash % geometry.slots)
    return int.from_bytes(read(slot_at, slot_at + SLOT_SIZE), "big", signed=True) == last
