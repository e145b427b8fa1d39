"""One file of the commit log: a fixed number of bytes, named after the offset of its first byte.

Also what a reader on another thread keeps of it between two reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.disk import DiskFile
from aerobee.store.format.names import file_name

COMMIT_LOG_DIRECTORY = "commitlog"

# A record is stored only where this many bytes stay free after it, for the blank record.
BLANK_BYTES_MIN = 8


def segment_path(base: int) -> str:
    """The file below the store's root that begins at byte `base` of the log."""
    return f"{COMMIT_LOG_DIRECTORY}/{file_name(base)}"


@dataclass(slots=True, eq=False)
class Segment:
    """`wrote` counts the bytes in use; a sealed segment is in use to its end.

    `file` is open for writing in the active segment, else None.
    """

    base: int
    size: int
    wrote: int
    file: DiskFile | None = None

    @property
    def path(self) -> str:
        return segment_path(self.base)

    @property
    def end(self) -> int:
        """The log offset after the last byte in use."""
        return self.base + self.wrote


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment as statistics and tools see it."""

    name: str
    base: int
    wrote_position: int


class RecordRemoved(MessageNotFound):
    """Bytes [removed_from, readable_from) were in the log, and retention removed them."""

    def __init__(self, message: str, *, removed_from: int, readable_from: int) -> None:
        super().__init__(message)
        self.removed_from = removed_from
        self.readable_from = readable_from


class SegmentHandle:
    """The segment that a reader last read, still open.

    So the kernel sees one reader that moves forward, and reads ahead for it. Replaced as a whole:
    two threads that use it by mistake lose a handle, never a byte.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: tuple[int, DiskFile] | None = None

    def get(self, base: int) -> DiskFile | None:
        """The handle, if it is of the segment that begins at `base`."""
        held = self._held
        return held[1] if held is not None and held[0] == base else None

    def keep(self, base: int, file: DiskFile) -> None:
        self._held = (base, file)

    def drop_below(self, log_min_offset: int) -> None:
        """Drop a segment that is no longer part of the log, so that its space is freed."""
        held = self._held
        if held is not None and held[0] < log_min_offset:
            self._held = None
