"""What each queue holds: from few reads of its files, and what else is known of it.

Entries of a queue rise in the log, so both ends are found by bisection. Entries that point after
the log's end do not count: the broker cuts them off when it starts. What the log's tail has beyond
the files, and what our broker's checkpoint says, counts too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from aerobee.offset_audit.sources.store.config_files import read_kept_from
from aerobee.offset_audit.sources.store.files import QueueFiles, StoreFile
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.known_ends import read_known_ends
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.log_tail import read_tail
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entry

_BLANK_SIZE: Final = 0x7FFF_FFFF

Entry = tuple[int, int, int]
"""Position in the log, size, tags code."""


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """Offsets of the first message and after the last; the last one's position, -1 if none."""

    min_offset: int
    max_offset: int
    last_position: int


class QueueBounds:
    """The queues of one store."""

    def __init__(self, store: StoreFolder, log: LogLookup) -> None:
        self._log = log
        self._tail = read_tail(store, log)
        self._known = read_known_ends(store)
        self._kept_from = read_kept_from(store)

    @property
    def names(self) -> set[tuple[str, int]]:
        """Queues about which something is known besides their files."""
        return {*self._tail, *self._known}

    def of(self, name: tuple[str, int], queue: QueueFiles | None) -> QueueEnds | None:
        """The ends of a queue, from its files if it has any, without what its topic no longer
        keeps; None: nothing is known."""
        ends, kept_from = self._in_log(name, queue), self._kept_from.get(name, 0)
        if ends is None or kept_from <= ends.min_offset:
            return ends
        return replace(ends, min_offset=min(kept_from, ends.max_offset))

    def _in_log(self, name: tuple[str, int], queue: QueueFiles | None) -> QueueEnds | None:
        ends = None if queue is None else _file_ends(queue, self._log)
        tail, known = self._tail.get(name), self._known.get(name)
        if known is not None and known.min_position >= self._log.begin:
            last = -1 if ends is None else ends.last_position
            end = known.end if ends is None else max(known.end, ends.max_offset)
            ends = QueueEnds(known.min_offset, end, last if last >= 0 else known.min_position)
        elif known is not None and ends is None:
            ends = QueueEnds(known.end, known.end, -1)
        if tail is None:
            return ends
        if ends is None:
            return QueueEnds(tail.min_offset, tail.max_offset, tail.last_position)
        if tail.max_offset < ends.max_offset:
            return ends
        is_empty = ends.min_offset == ends.max_offset
        min_offset = tail.min_offset if is_empty else min(ends.min_offset, tail.min_offset)
        return QueueEnds(min_offset, tail.max_offset, tail.last_position)

    def position_of(
        self, name: tuple[str, int], queue: QueueFiles | None, offset: int
    ) -> int | None:
        """The log position of a message, None if unknown."""
        entry = None if queue is None else read_entry(queue, offset)
        if entry is not None and 0 < entry[1] < _BLANK_SIZE:
            return entry[0]
        tail = self._tail.get(name)
        return None if tail is None else tail.position_of(offset)


def _file_ends(queue: QueueFiles, log: LogLookup) -> QueueEnds | None:
    """None if all files vanished meanwhile."""
    files = list(queue.files)
    end = None
    while files and end is None:
        end = _end_in(files[-1], log)
        if end is None or end[0] == files[-1].base // ENTRY_SIZE:
            # Deleted, or nothing in it counts yet.
            below = files.pop()
            if not files:
                offset = below.base // ENTRY_SIZE
                return None if end is None else QueueEnds(offset, offset, -1)
            end = None
    if end is None:
        return None
    max_offset, last_position = end
    for file in files:
        first = _first_in(file, max_offset, log)
        if first is not None:
            return QueueEnds(first, max_offset, last_position)
    return QueueEnds(max_offset, max_offset, -1)


def read_entry(queue: QueueFiles, offset: int) -> Entry | None:
    """The entry of a queue offset, None if no file has it."""
    for file in queue.files:
        if file.base <= offset * ENTRY_SIZE < file.end:
            try:
                with OpenFile(file) as opened:
                    return _entry(opened, offset)
            except FileNotFoundError:
                return None
    return None


def _end_in(file: StoreFile, log: LogLookup) -> tuple[int, int] | None:
    """After the last entry that counts, and its position; None if the file is gone."""
    try:
        with OpenFile(file) as opened:
            first = file.base // ENTRY_SIZE
            count = _count(file.size // ENTRY_SIZE, lambda n: _counts(opened, first + n, log))
            last = _entry(opened, first + count - 1) if count else None
            return first + count, -1 if last is None else last[0]
    except FileNotFoundError:
        return None


def _counts(file: OpenFile, offset: int, log: LogLookup) -> bool:
    entry = _entry(file, offset)
    if entry is None:
        return False
    position, size, _ = entry
    return size == _BLANK_SIZE or (size > 0 and position >= 0 and position + size <= log.end)


def _first_in(file: StoreFile, max_offset: int, log: LogLookup) -> int | None:
    """The first message of a file that the log still has; None: none of them."""
    first = file.base // ENTRY_SIZE
    count = min(file.size // ENTRY_SIZE, max_offset - first)
    try:
        with OpenFile(file) as opened:
            below = _count(count, lambda n: _is_below(opened, first + n, log))
    except FileNotFoundError:
        return None
    return first + below if below < count else None


def _is_below(file: OpenFile, offset: int, log: LogLookup) -> bool:
    entry = _entry(file, offset)
    return entry is not None and (entry[1] == _BLANK_SIZE or entry[0] < log.begin)


def _count(end: int, is_true: Callable[[int], bool]) -> int:
    """How many of 0, 1, ... are true, if all true ones come first."""
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        if is_true(middle):
            low = middle + 1
        else:
            high = middle
    return low


def _entry(file: OpenFile, offset: int) -> Entry | None:
    at = offset * ENTRY_SIZE
    data = file.read(at, at + ENTRY_SIZE)
    return unpack_entry(data) if len(data) == ENTRY_SIZE else None
