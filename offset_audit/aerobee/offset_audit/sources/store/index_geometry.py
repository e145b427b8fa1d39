"""How many slots and entries the index files of a store have: found in a file that is in use.

A file's length is 40 + 4 * slots + 20 * entries, so the first entry can lie at many places. It is
the one whose physical offset is the header's first and from which the last entry leads where it
must: to the header's last offset. Where a broker has its usual sizes, the length alone tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.store_format.index_file import (
    HEADER_SIZE,
    INDEX_ENTRY_SIZE,
    SLOT_SIZE,
    IndexFileIllegal,
    IndexGeometry,
    IndexHeader,
)

USUAL: Final = IndexGeometry(5_000_000, 20_000_000)

_CHUNK_BYTES: Final = 1 << 20
_OFFSET_AT: Final = 4


class IndexFile:
    """An index file, read by positions in it. Close it."""

    def __init__(self, file: StoreFile) -> None:
        """Raises FileNotFoundError if it was deleted."""
        self._file = OpenFile(file)
        self._base = file.base
        self.bytes = file.size
        self.path = file.path

    def read(self, begin: int, end: int) -> bytes:
        return self._file.read(self._base + begin, self._base + end)

    def header(self) -> IndexHeader | None:
        """None where the file is too short to have one."""
        data = self.read(0, HEADER_SIZE)
        return IndexHeader.decode(data) if len(data) == HEADER_SIZE else None

    def close(self) -> None:
        self._file.close()


def find_geometry(files: Sequence[StoreFile]) -> IndexGeometry | None:
    """That of the first file that tells; None without one."""
    for file in files:
        if file.size == USUAL.file_bytes:
            return USUAL
    for file in files:
        try:
            index = IndexFile(file)
        except FileNotFoundError:
            continue
        geometry = _of_file(index)
        index.close()
        if geometry is not None:
            return geometry
    return None


def _of_file(index: IndexFile) -> IndexGeometry | None:
    header = index.header()
    if header is None or not header.has_entries:
        return None
    first_offset = header.begin_physical_offset.to_bytes(8, "big", signed=True)
    at = HEADER_SIZE
    while at < index.bytes:
        data = index.read(at, min(at + _CHUNK_BYTES + len(first_offset) - 1, index.bytes))
        found = data.find(first_offset)
        while found >= 0:
            # Entry 1 begins 4 bytes before its offset, the entries one entry before that.
            entries_at = at + found - _OFFSET_AT - INDEX_ENTRY_SIZE
            geometry = _fitting(entries_at, index.bytes)
            if geometry is not None and _leads_to_the_end(index, geometry, header):
                return geometry
            found = data.find(first_offset, found + 1)
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


def _leads_to_the_end(index: IndexFile, geometry: IndexGeometry, header: IndexHeader) -> bool:
    """Whether the last entry is the newest of its slot and has the header's last offset."""
    last = header.count - 1
    if last >= geometry.entries:
        return False
    at = geometry.entry_at(last)
    entry = index.read(at, at + INDEX_ENTRY_SIZE)
    if len(entry) < INDEX_ENTRY_SIZE:
        return False
    key_hash = int.from_bytes(entry[:_OFFSET_AT], "big", signed=True)
    offset = int.from_bytes(entry[_OFFSET_AT : _OFFSET_AT + 8], "big", signed=True)
    previous = int.from_bytes(entry[16:], "big", signed=True)
    if key_hash < 0 or offset != header.end_physical_offset or not 0 <= previous < last:
        return False
    slot_at = geometry.slot_at(key_hash % geometry.slots)
    return int.from_bytes(index.read(slot_at, slot_at + SLOT_SIZE), "big", signed=True) == last
