"""Whether entries may be a queue's: by themselves, by their neighbours, and by what is known.

Entries have no checksum. Checking every queue at each start would make the start time grow with the
number of queues. So the list of queue ends is trusted, and a queue's files are checked when they
are first used: once, at a few places, in microseconds. The log position where a queue's last record
ends is unique to this queue and this state of it, so a single comparison finds files that were
lost, cut, shifted or mixed up. What is in between is checked when it is read.

An entry that decides what may be removed is checked before it is trusted: with a lost or changed
entry, a search for the first message still in the log could end anywhere, and existing messages
would never be served again. So it is read together with its neighbours, and trusted only if all of
them are plausible in their places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

from aerobee.store.engine.disk import DirectoryEntry, Disk, DiskFile, used_size
from aerobee.store.format.consume_queue_entry import (
    ENTRY_SIZE,
    PRE_BLANK_SIZE,
    unpack_entries,
    unpack_entry,
)
from aerobee.store.format.names import file_name, is_file_name

# One page of entries before the end, and one after it.
_ENTRIES_PER_LOOK = 4_096 // ENTRY_SIZE
# This many on each side are read together with the entry in question.
_NEIGHBOURS = 8


class EntriesUnsound(Exception):
    """What a queue's files hold cannot be its entries; the text says why."""


def are_sound(data: bytes) -> bool:
    """Whether entries are plausible by themselves: valid, and ascending after the blank ones."""
    if not data:
        return True
    positions, sizes, _ = unpack_entries(data)
    ends = positions + sizes
    if sizes.min() <= 0 or positions.min() < 0:
        return False
    rising = positions[1:] >= ends[:-1]
    return bool(rising.all()) or bool((rising | (sizes[:-1] == PRE_BLANK_SIZE)).all())


def is_queue_file(entry: DirectoryEntry) -> bool:
    """Whether a directory entry has the name of a queue file; others are ignored."""
    return not entry.is_directory and is_file_name(entry.name)


class FiledEntries:
    """The entries in a queue's files. Keeps the file that was last read open."""

    __slots__ = ("_directory", "_disk", "_file", "_per_file", "path")

    def __init__(self, disk: Disk, directory: str, entries_per_file: int) -> None:
        self._disk = disk
        self._directory = directory
        self._per_file = entries_per_file
        self._file: DiskFile | None = None
        self.path = ""
        """The file that was last read, or could not be."""

    def read(self, start: int, end: int) -> bytes:
        """[any thread] Entries [start, end); fewer if a file is short. Raises FileNotFoundError,
        OSError."""
        parts: list[bytes] = []
        while start < end:
            in_file = start % self._per_file
            piece_end = min(end, start - in_file + self._per_file)
            path = f"{self._directory}/{_name(start - in_file)}"
            if path != self.path or self._file is None:
                self.path, self._file = path, None
                self._file = self._disk.open_file(path, read_only=True)
            parts.append(self._file.read_at(in_file * ENTRY_SIZE, (piece_end - start) * ENTRY_SIZE))
            start = piece_end
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close the file; the next read reopens it."""
        self._file, self.path = None, ""


def _name(file_start: int) -> str:
    return file_name(file_start * ENTRY_SIZE)


# ---------------------------------------------------------------------------------- claims


class FileClaim(NamedTuple):
    """What a queue's files must hold: entries [first_offset, written_end), the last of which ends
    at `physical_end` in the log. `min_position` is where the first message's record is, or -1.
    `is_trimmed`: files at the beginning were being removed when the claim was taken.
    """

    directory: str
    entries_per_file: int
    first_offset: int
    min_offset: int
    min_position: int
    written_end: int
    physical_end: int
    is_trimmed: bool = False

    def beginning_at(self, first_offset: int) -> Self:
        """The same for the files from the one that begins with entry `first_offset` on."""
        known = self.min_position if self.min_offset >= first_offset else -1
        return self._replace(first_offset=first_offset, min_position=known)


@dataclass(frozen=True, slots=True)
class FilesFound:
    """`reason` says why the claim is wrong; empty if it may be right. Untidy files have data past
    the queue's end."""

    reason: str = ""
    untidy: bool = False


def look_at_files(disk: Disk, claim: FileClaim, *, last_file_only: bool = False) -> FilesFound:
    """Compare; blocks to read a directory and at most two pages. Raises OSError.

    With `last_file_only` everything before the last file may be missing."""
    if claim.written_end == claim.first_offset:
        return FilesFound()
    if last_file_only:
        last = claim.written_end - 1
        first_offset = max(claim.first_offset, last - last % claim.entries_per_file)
        claim = claim.beginning_at(first_offset)
    try:
        return _look(disk, claim)
    except FileNotFoundError as error:  # it was removed in between
        return FilesFound(f"a file of it is missing: {error.filename}")


def _look(disk: Disk, claim: FileClaim) -> FilesFound:
    names = {entry.name: entry.size_bytes for entry in disk.list(claim.directory)}
    if reason := _why_files_lack(names, claim):
        return FilesFound(reason)
    entries = FiledEntries(disk, claim.directory, claim.entries_per_file)
    last = claim.written_end - 1
    last_file = last - last % claim.entries_per_file
    start = max(claim.first_offset, claim.written_end - _ENTRIES_PER_LOOK)
    end = min(last_file + claim.entries_per_file, claim.written_end + _ENTRIES_PER_LOOK)
    data = entries.read(start, end)
    size = (claim.written_end - start) * ENTRY_SIZE
    if len(data) < size or not are_sound(data[:size]):
        return FilesFound(f"its entries before {claim.written_end} are not valid entries")
    position, record_size, _ = unpack_entry(data, size - ENTRY_SIZE)
    if position + record_size != claim.physical_end:
        return FilesFound(f"its entry {last} is not the last one that was written")
    if claim.min_position >= 0 and claim.min_offset < claim.written_end:
        first = unpack_entry(entries.read(claim.min_offset, claim.min_offset + 1))
        if first[0] != claim.min_position or first[1] == PRE_BLANK_SIZE:
            return FilesFound(f"its entry {claim.min_offset} is not its first message's")
    untidy = used_size(data[size:]) > 0 or max(filter(is_file_name, names)) > _name(last_file)
    return FilesFound(untidy=untidy)


def _why_files_lack(sizes: dict[str, int], claim: FileClaim) -> str:
    file_bytes = claim.entries_per_file * ENTRY_SIZE
    first_file = claim.first_offset - claim.first_offset % claim.entries_per_file
    for entry in range(first_file, claim.written_end, claim.entries_per_file):
        name = _name(entry)
        size = sizes.get(name)
        if size is None:
            return f"its file {name} is missing"
        if size != file_bytes:
            return f"its file {name} has {size} bytes, not {file_bytes}"
    return ""


# ---------------------------------------------------------------------------------- judgement


class JudgedEntries:
    """Entries [begin, end) of a queue at one moment: from its files, and from `tail`, which begins
    with entry `written_end`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        entries_per_file: int,
        *,
        begin: int,
        written_end: int,
        tail: bytes,
    ) -> None:
        self._files = FiledEntries(disk, directory, entries_per_file)
        self._per_file = entries_per_file
        self.begin = begin
        """No neighbour before it is checked."""
        self._written_end = written_end
        self._end = written_end + len(tail) // ENTRY_SIZE
        self._tail = tail

    @property
    def path(self) -> str:
        """The file that was last read."""
        return self._files.path

    def at(self, offset: int, *, file_before_gone: bool = False) -> bytes:
        """[any thread] Raises EntriesUnsound, FileNotFoundError, OSError."""
        start = max(self.begin, offset - _NEIGHBOURS)
        if file_before_gone:
            start = max(start, offset - offset % self._per_file)
        end = min(self._end, offset + 1 + _NEIGHBOURS)
        first = self._written_end
        data = self._files.read(start, min(end, first))
        if end > first:
            data += self._tail[max(0, start - first) * ENTRY_SIZE : (end - first) * ENTRY_SIZE]
        if len(data) != (end - start) * ENTRY_SIZE or not are_sound(data):
            raise EntriesUnsound(f"its entries around {offset} are not valid entries")
        at = (offset - start) * ENTRY_SIZE
        return data[at : at + ENTRY_SIZE]
