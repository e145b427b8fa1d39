"""Files and directories of the simulated disk: the visible state, the durable one, and the changes
in between.

A file's bytes are in pages, so a large file costs only what was written to it. In addition to the
visible state each node keeps the durable one and, in order, every change since: a write or a new
length. `datasync` makes a file's visible state its durable one. After a failed one the pages count
as clean, as in Linux: they stay visible, and a later sync does not write them unless they are
changed again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

PAGE = 4096
_ZERO_PAGE = bytes(PAGE)

Pages = dict[int, bytearray]


class Written(NamedTuple):
    """Bytes written at an offset; `grown_to` is the file's new length if that changed, else -1."""

    sequence: int
    offset: int
    data: bytes
    grown_to: int


class Resized(NamedTuple):
    """A length set by truncation or allocation."""

    sequence: int
    size: int


class FileNode:
    """One file, whatever its names are. `stranded` are pages whose sync failed."""

    __slots__ = (
        "changes",
        "dirty",
        "durable_pages",
        "durable_size",
        "is_locked",
        "modified_ms",
        "pages",
        "size",
        "stranded",
    )

    def __init__(self) -> None:
        self.pages: Pages = {}
        self.size = 0
        self.durable_pages: dict[int, bytes] = {}
        self.durable_size = 0
        self.changes: list[Written | Resized] = []
        self.dirty: set[int] = set()
        self.stranded: dict[int, bytes] = {}
        self.is_locked = False
        self.modified_ms = 0

    def write(self, sequence: int, offset: int, data: bytes) -> None:
        end = offset + len(data)
        grown_to = end if end > self.size else -1
        self.changes.append(Written(sequence, offset, data, grown_to))
        place(self.pages, offset, data)
        self.dirty.update(range(offset // PAGE, (end + PAGE - 1) // PAGE))
        self.size = max(self.size, end)

    def resize(self, sequence: int, size: int) -> None:
        self.changes.append(Resized(sequence, size))
        if size < self.size:
            self.dirty.update(index for index in self.pages if (index + 1) * PAGE > size)
            clip(self.pages, size)
        self.size = size

    def read(self, offset: int, size: int) -> bytes:
        """Ends at the file's end."""
        size = min(size, self.size - offset)
        if size <= 0:
            return b""
        at = offset % PAGE
        index = offset // PAGE
        if at + size <= PAGE:
            page = self.pages.get(index)
            return bytes(size) if page is None else bytes(page[at : at + size])
        parts = []
        for number in range(index, (offset + size + PAGE - 1) // PAGE):
            page = self.pages.get(number)
            parts.append(_ZERO_PAGE if page is None else bytes(page))
        return b"".join(parts)[at : at + size]

    def sync(self) -> None:
        """The visible state is the durable one from now on."""
        for index in self.dirty:
            page = self.pages.get(index)
            if page is None:
                self.durable_pages.pop(index, None)
            else:
                self.durable_pages[index] = bytes(page)
            self.stranded.pop(index, None)
        self.durable_size = self.size
        self.changes.clear()
        self.dirty.clear()

    def fail_sync(self, sequence: int) -> None:
        """A sync failed: dirty pages count as clean, and are on the disk or not."""
        for index in self.dirty:
            self.stranded[index] = bytes(self.pages.get(index, _ZERO_PAGE))
        self.dirty.clear()
        lengths = [
            change if isinstance(change, Resized) else Resized(change.sequence, change.grown_to)
            for change in self.changes
            if isinstance(change, Resized) or change.grown_to >= 0
        ]
        only_grew = all(before.size <= after.size for before, after in pairwise(lengths))
        self.changes = [*lengths] if only_grew else [Resized(sequence, self.size)]

    def drop_clean_pages(self, offset: int, end: int) -> None:
        """The page cache drops what is not dirty: the next reader sees what is on the disk."""
        for index in list(self.stranded):
            if offset <= index * PAGE and (index + 1) * PAGE <= end and index not in self.dirty:
                del self.stranded[index]
                self.pages.pop(index, None)
                if index in self.durable_pages:
                    self.pages[index] = bytearray(self.durable_pages[index])


class DirectoryNode:
    """Names and what they refer to, visibly and durably."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileNode | DirectoryNode


class NameChange(NamedTuple):
    """In one directory, names are made to refer to a node or, with None, to nothing; atomically."""

    sequence: int
    directory: DirectoryNode
    names: tuple[tuple[str, Node | None], ...]


def place(pages: Pages, offset: int, data: bytes) -> None:
    """Write into pages."""
    at = offset % PAGE
    index = offset // PAGE
    taken = 0
    while taken < len(data):
        page = pages.get(index)
        if page is None:
            page = pages[index] = bytearray(PAGE)
        count = min(PAGE - at, len(data) - taken)
        page[at : at + count] = data[taken : taken + count]
        taken += count
        index += 1
        at = 0


def clip(pages: Pages, size: int) -> None:
    """Nothing remains after `size`, so that growth reads as zeros."""
    for index in [index for index in pages if (index + 1) * PAGE > size]:
        if index * PAGE >= size:
            del pages[index]
        else:
            kept = size - index * PAGE
            pages[index][kept:] = bytes(PAGE - kept)
