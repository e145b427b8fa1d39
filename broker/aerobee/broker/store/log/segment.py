"""One file of the commit log: a fixed number of bytes, named by the offset of its first one."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.store.disk import DiskFile
from aerobee.store_format.names import file_name

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
