"""What a reader on another thread keeps of the log between two reads, and what it may hit upon."""

from __future__ import annotations

from aerobee.broker.store.disk import DiskFile
from aerobee.runtime.errors import MessageNotFound


class RecordRemoved(MessageNotFound):
    """Bytes [removed_from, readable_from) were in the log, and retention took them."""

    def __init__(self, message: str, *, removed_from: int, readable_from: int) -> None:
        super().__init__(message)
        self.removed_from = removed_from
        self.readable_from = readable_from


class SegmentHandle:
    """The segment that a reader read last, still open.

    So the kernel sees one reader that walks forward, and reads ahead of it. Replaced as a whole:
    two threads that use it by mistake lose a handle, never a byte.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: tuple[int, DiskFile] | None = None

    def get(self, base: int) -> DiskFile | None:
        """The handle of the segment that begins at `base`, if it is the one."""
        held = self._held
        return held[1] if held is not None and held[0] == base else None

    def keep(self, base: int, file: DiskFile) -> None:
        self._held = (base, file)

    def drop_below(self, log_min_offset: int) -> None:
        """Let go of a segment that is no part of the log any more, so that its space is freed."""
        held = self._held
        if held is not None and held[0] < log_min_offset:
            self._held = None
