"""Writing pending keys into index files: planned on the loop; hashed, if not hashed yet, and
written on another thread.

The order keeps the files readable after a crash: entries and slots, then the header that counts
them, then the mark that says how far the log is covered. Owns, while `run` runs: the slot table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from aerobee.runtime.clock import Clock
from aerobee.store.engine.disk import Disk, DiskFile
from aerobee.store.engine.index.index_files import (
    IndexFileInfo,
    IndexMark,
    create_index_file,
    next_index_name,
    write_mark,
)
from aerobee.store.engine.index.pending_keys import PendingView
from aerobee.store.format.index_file import (
    HEADER_SIZE,
    SLOT_SIZE,
    IndexGeometry,
    IndexHeader,
    IndexKeys,
    Int64Array,
    insert,
    share_out,
)
from aerobee.store.format.index_unhashed import UnhashedKeys, join_keys

Slots = npt.NDArray[Any]

_PIECE_KEYS = 1 << 14
_ROUND_KEYS = 1 << 19
_PAGE_BITS = 12
# Unchanged pages in between are rewritten, up to this many, to save a system call.
_GAP_PAGES_MAX = 4


class SlotTable:
    """The slots of the newest file in memory, equal to those on disk."""

    __slots__ = ("_geometry", "_name", "_values")

    def __init__(self, geometry: IndexGeometry) -> None:
        self._geometry = geometry
        self._name: str | None = None
        self._values: Slots | None = None

    def of(self, disk: Disk, info: IndexFileInfo) -> Slots:
        """A file's table as big-endian numbers, read unless it is cached or empty."""
        if self._values is None or self._name != info.name:
            self._name = info.name
            # Zeros take no memory until they are written to.
            self._values = np.zeros(self._geometry.slots, ">i4")
            if info.header.has_entries:
                self._values = read_slots(disk, info, self._geometry)
        return self._values

    def forget(self) -> None:
        """Something else has changed the file."""
        self._values = None


def read_slots(disk: Disk, info: IndexFileInfo, geometry: IndexGeometry) -> Slots:
    file = disk.open_file(info.path, read_only=True)
    data = bytearray(file.read_at(HEADER_SIZE, SLOT_SIZE * geometry.slots))
    file.close()
    return np.frombuffer(data, ">i4")


class IndexWrite:
    """Writes keys into files. `written` and `files` show its progress, even after an error."""

    __slots__ = (
        "_clock",
        "_disk",
        "_geometry",
        "_keys",
        "_table",
        "done",
        "files",
        "indexed_end",
        "replaced",
        "written",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        geometry: IndexGeometry,
        *,
        newest: IndexFileInfo | None,
        table: SlotTable,
        keys: PendingView,
        indexed_end: int,
    ) -> None:
        """`indexed_end` is the end of the indexed part of the log once this is done."""
        self._disk = disk
        self._clock = clock
        self._geometry = geometry
        self._table = table
        self._keys = keys
        self.indexed_end = indexed_end
        self.replaced = newest
        # The newest file in its present state, and those that follow it.
        self.files = [] if newest is None else [newest]
        self.written = 0
        self.done = False

    @property
    def newest(self) -> IndexFileInfo | None:
        return self.files[-1] if self.files else None

    def run(self) -> None:
        """[one thread at a time] May be repeated after an error, and continues where it stopped.

        Raises OSError.
        """
        if self.done:
            return
        for keys in self._rounds():
            header = self.newest.header if self.newest else None
            for share in share_out(header, keys, self._geometry.entries):
                if share.is_new:
                    self._add_file(share.header)
                self._insert(keys.part(share.start, share.end))
                self.written += share.end - share.start
        write_mark(self._disk, self._mark())
        self.done = True

    def _rounds(self) -> Iterator[IndexKeys]:
        """What is not written yet, hashed, in portions that do not fill the memory."""
        to_skip = self.written
        held: list[IndexKeys] = []
        held_count = 0
        for part in self._keys.parts:
            for keys in part.hashed() if isinstance(part, UnhashedKeys) else (part,):
                skipped = min(to_skip, len(keys))
                to_skip -= skipped
                held.append(keys.part(skipped, len(keys)))
                held_count += len(keys) - skipped
                if held_count >= _ROUND_KEYS:
                    yield join_keys(held)
                    held, held_count = [], 0
        if held_count:
            yield join_keys(held)

    def _mark(self) -> IndexMark:
        newest = self.newest
        if newest is None:
            return IndexMark(self.indexed_end, None, 1, 0)
        header = newest.header
        return IndexMark(self.indexed_end, newest.name, header.count, header.end_physical_offset)

    def _add_file(self, header: IndexHeader) -> None:
        previous = self.newest
        name = next_index_name(self._clock.now_ms(), previous.name if previous else None)
        self.files.append(create_index_file(self._disk, name, self._geometry, header))

    def _insert(self, keys: IndexKeys) -> None:
        """Insert all into the newest file, which has room."""
        info = self.files[-1]
        slots = self._table.of(self._disk, info)
        file = self._disk.open_file(info.path)
        insert_keys = _Insert(file, self._geometry, slots, info.header)
        try:
            # In small pieces: other threads wait while an array is being processed.
            for start in range(0, len(keys), _PIECE_KEYS):
                insert_keys.add(keys.part(start, start + _PIECE_KEYS))
            insert_keys.finish()
        except BaseException:
            insert_keys.undo()
            raise
        file.close()
        self.files[-1] = IndexFileInfo(info.name, insert_keys.header)


class _Insert:
    """Inserts keys into one file. The slot table changes at once, the header at the end."""

    __slots__ = ("_before", "_dirty", "_file", "_geometry", "_slots", "header")

    def __init__(
        self, file: DiskFile, geometry: IndexGeometry, slots: Slots, header: IndexHeader
    ) -> None:
        self._file = file
        self._geometry = geometry
        self._slots = slots
        self._before: list[tuple[Int64Array, Slots]] = []
        self._dirty = DirtySlots(geometry)
        self.header = header

    def add(self, keys: IndexKeys) -> None:
        insertion = insert(self.header, self._slots, keys)
        self._before.append((insertion.slots, self._slots[insertion.slots]))
        self._slots[insertion.slots] = insertion.slot_values
        self._dirty.add(insertion.slots)
        at = self._geometry.entry_at(insertion.first_number)
        self._file.write_at(at, (insertion.entries.view(np.uint8).data,))
        self.header = insertion.header

    def finish(self) -> None:
        """Make entries and slots durable, then the header that counts them."""
        self._dirty.write(self._file, self._slots)
        self._file.datasync()
        self._file.write_at(0, (self.header.encode(),))
        self._file.datasync()

    def undo(self) -> None:
        """Restore the table: what was written has no meaning without the header."""
        for slots, values in reversed(self._before):
            self._slots[slots] = values


class DirtySlots:
    """The pages of a file whose slots differ from memory."""

    __slots__ = ("_geometry", "_pages")

    def __init__(self, geometry: IndexGeometry) -> None:
        self._geometry = geometry
        self._pages = np.zeros((geometry.entries_at >> _PAGE_BITS) + 1, np.bool_)

    def add(self, slots: Int64Array) -> None:
        self._pages[(slots * SLOT_SIZE + HEADER_SIZE) >> _PAGE_BITS] = True

    def write(self, file: DiskFile, slots: Slots) -> None:
        """Write the pages, close ones together; `slots` is the whole table."""
        data = slots.view(np.uint8).data
        for start, end in self._runs():
            file.write_at(start, (data[start - HEADER_SIZE : end - HEADER_SIZE],))

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Ranges of the file, within the table."""
        pages = np.flatnonzero(self._pages)
        if not len(pages):
            return
        breaks = np.flatnonzero(np.diff(pages) > _GAP_PAGES_MAX + 1)
        firsts = pages[np.concatenate(([0], breaks + 1))].tolist()
        lasts = pages[np.concatenate((breaks, [len(pages) - 1]))].tolist()
        for first, last in zip(firsts, lasts, strict=True):
            start = max(first << _PAGE_BITS, HEADER_SIZE)
            yield start, min((last + 1) << _PAGE_BITS, self._geometry.entries_at)
