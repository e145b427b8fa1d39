"""Retention's work on the disk, taken on the loop and done on another thread.

The order of a removal keeps the folder readable for every start: the log's file is removed first
and its folder synced, so that the log never has a hole; then queue files and index files that point
nowhere are removed. What a crash leaves of these is ignored by the next start and removed by the
next removal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import LEFT_ALONE, FileTrouble
from aerobee.store.engine.index.index_files import IndexFileInfo, remove_index_files
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, Segment
from aerobee.store.engine.queues.consume_queue import ConsumeQueue
from aerobee.store.engine.queues.queue_trim import QueueTrim
from aerobee.store.engine.retention.retention_policy import Cause, CleanRequest, DiskSpace
from aerobee.store.engine.retention.unread_search import QueueReaders


class SurveyWork:
    """Asks when the segments were last written, and how full the disk is."""

    __slots__ = ("_disk", "modified_ms", "request", "space")

    def __init__(self, disk: Disk, request: CleanRequest) -> None:
        self._disk = disk
        self.request = request
        self.modified_ms: dict[str, int] = {}
        self.space = DiskSpace()

    def run(self) -> None:
        """[any thread] Raises OSError."""
        self.modified_ms = {
            entry.name: entry.modified_ms for entry in self._disk.list(COMMIT_LOG_DIRECTORY)
        }
        self.space = measure(self._disk)


class RemovalWork:
    """Removes the file of the segment that the log has dropped."""

    __slots__ = (
        "_disk",
        "cause",
        "error",
        "is_commanded",
        "losing",
        "modified_ms",
        "segment",
    )

    def __init__(self, disk: Disk, segment: Segment, cause: Cause, modified_ms: int) -> None:
        self._disk = disk
        self.segment = segment
        self.cause = cause
        self.modified_ms = modified_ms
        # Set if the file still exists because it must not be removed.
        self.error: OSError | None = None
        self.is_commanded = False
        # Who has unread messages here, the queue, and the offset at which it began so far.
        self.losing: list[tuple[QueueReaders, ConsumeQueue, int]] = []

    def run(self) -> None:
        """[any thread] Raises OSError, except for a file that is protected."""
        try:
            with contextlib.suppress(FileNotFoundError):  # already removed
                self._disk.remove(self.segment.path)
        except OSError as error:
            if error.errno not in LEFT_ALONE:
                raise
            self.error = error
            return
        self._disk.fsync_directory(COMMIT_LOG_DIRECTORY)


class FollowWork:
    """Removes what pointed to the removed records, and measures the space gained. `troubles`: what
    could not be removed; `left_over`: the index files among it."""

    __slots__ = ("_disk", "_index_files", "left_over", "removal", "space", "trim", "troubles")

    def __init__(
        self,
        disk: Disk,
        removal: RemovalWork,
        trim: QueueTrim,
        index_files: Sequence[IndexFileInfo],
    ) -> None:
        self._disk = disk
        self._index_files = index_files
        self.removal = removal
        self.trim = trim
        self.space = DiskSpace()
        self.left_over: list[IndexFileInfo] = []
        self.troubles: list[FileTrouble] = []

    def run(self) -> None:
        """[any thread] Raises OSError, except for a derived file that has to stay."""
        self.trim.run()
        self.troubles = list(self.trim.troubles)
        for info in self._index_files:
            try:
                remove_index_files(self._disk, [info.name])
            except OSError as error:
                if error.errno not in LEFT_ALONE:
                    raise
                self.left_over.append(info)
                self.troubles.append(FileTrouble("removed", info.path, error))
        self.space = measure(self._disk)


def measure(disk: Disk) -> DiskSpace:
    """[any thread] How full the disk is now."""
    return DiskSpace(disk.free_bytes(), disk.total_bytes())
