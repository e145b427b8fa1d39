"""How many slots and entries the index files of a folder have, found in a file that is in use.

A file's length is 40 + 4 * slots + 20 * entries, so the first entry can lie at many places. It is
the one whose physical offset is the header's first, from which slot and chain lead where they must.
"""

from __future__ import annotations

from aerobee.broker.store.disk import Disk, DiskFile
from aerobee.store_format.index_file import (
    HEADER_SIZE,
    INDEX_ENTRY_SIZE,
    SLOT_SIZE,
    IndexFileIllegal,
    IndexGeometry,
    IndexHeader,
)

INDEX_DIRECTORY = "index"

_USUAL = IndexGeometry(5_000_000, 20_000_000)
_CHUNK_BYTES = 1 << 20
_OFFSET_AT = 4
_PREVIOUS_AT = 16


def index_geometry_on_disk(disk: Disk) -> IndexGeometry | None:
    """Of the first file that tells; None without one."""
    for entry in disk.list(INDEX_DIRECTORY):
        if entry.is_directory or entry.size_bytes < HEADER_SIZE:
            continue
        if entry.size_bytes == _USUAL.file_bytes:
            return _USUAL
        file = disk.open_file(f"{INDEX_DIRECTORY}/{entry.name}", read_only=True)
        geometry = _geometry(file, entry.size_bytes)
        if geometry is not None:
            return geometry
    return None


def _geometry(file: DiskFile, file_bytes: int) -> IndexGeometry | None:
    header = IndexHeader.decode(file.read_at(0, HEADER_SIZE))
    if not header.has_entries:
        return None
    first_offset = header.begin_physical_offset.to_bytes(8, "big", signed=True)
    at = HEADER_SIZE
    while at < file_bytes:
        data = file.read_at(at, _CHUNK_BYTES + len(first_offset) - 1)
        found = data.find(first_offset)
        while found >= 0:
            # Entry 1 begins 4 bytes before its offset, the entries one entry before that.
            entries_at = at + found - _OFFSET_AT - INDEX_ENTRY_SIZE
            geometry = _fitting(entries_at, file_bytes)
            if geometry is not None and _leads_to_entries(file, geometry, header):
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


def _leads_to_entries(file: DiskFile, geometry: IndexGeometry, header: IndexHeader) -> bool:
    """Whether the last entry is the newest of its slot and has the header's last offset."""
    last = header.count - 1
    if last >= geometry.entries:
        return False
    entry = file.read_at(geometry.entry_at(last), INDEX_ENTRY_SIZE)
    key_hash = int.from_bytes(entry[:_OFFSET_AT], "big", signed=True)
    offset = int.from_bytes(entry[_OFFSET_AT : _OFFSET_AT + 8], "big", signed=True)
    previous = int.from_bytes(entry[_PREVIOUS_AT:], "big", signed=True)
    if key_hash < 0 or offset != header.end_physical_offset or not 0 <= previous < last:
        return False
    slot = file.read_at(geometry.slot_at(key_hash % geometry.slots), SLOT_SIZE)
    return int.from_bytes(slot, "big", signed=True) == last
