"""Recovery of producers' windows: read from their file, completed from the log.

    the file's position is in the log           the log is walked from there
    it is past the log's end                  what the log lost is forgotten
    it is before the log's start                another log's: nothing is known
    the file is there but nothing in it is whole  the newest part of the log is walked

Nothing here prevents a start. Without a file, as in a folder left by Apache's broker, only what
recovery walks is known.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import DISK_FULL
from aerobee.store.engine.log.log_walk import WalkedChunk
from aerobee.store.engine.producers.producer_windows import ProducerWindows
from aerobee.store.engine.producers.windows_file import (
    WINDOWS_FILE,
    WindowsFile,
    read_windows,
)
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.engine.recovery.context import RecoveryContext
from aerobee.store.format.topic_end import find_topic_ends

WALK_BYTES_MAX: Final = 1 << 30
"""At most this much, and the rest of a segment, is walked only for the windows."""


class WindowsRecovery:
    """The recovery of the windows; see DerivedRecovery."""

    def __init__(self, context: RecoveryContext, queues: QueueSet) -> None:
        """`queues` are complete before the windows are."""
        self._context = context
        self._queues = queues
        self.windows = ProducerWindows()
        # The windows cover everything below.
        self._known_end = 0

    def load(self, *, clean: bool) -> None:
        """The file itself shows what it is worth."""

    def drop_all(self) -> None:
        """A file that belongs to another log is ignored."""

    def begin_scan(self, start: int) -> None:
        context = self._context
        saved = read_windows(context.disk)
        if saved is not None and saved.position >= context.log_min_offset:
            self.windows.restore(saved.rows)
            self._known_end = saved.position
        elif saved is not None or not context.disk.exists(WINDOWS_FILE):
            self._known_end = start
        else:
            context.warnings.append(f"{WINDOWS_FILE} is damaged: it is rebuilt from the log")
        if self._known_end < start:
            self._walk_before(start)

    def _walk_before(self, start: int) -> None:
        context = self._context
        walk_start = max(self._known_end, context.log_min_offset)
        if start - walk_start > WALK_BYTES_MAX:
            index = max(0, context.index_of(start - WALK_BYTES_MAX))
            walk_start = context.segments[index].base
        for chunk in context.walk(walk_start, is_record_start=True, end=start):
            self.feed(chunk)

    def feed(self, chunk: WalkedChunk) -> None:
        """Records of the walk, in the log's order."""
        known = self._known_end - chunk.position
        first = 0
        if known > 0:
            first = int(np.searchsorted(chunk.result.positions, known))
        ends = find_topic_ends(chunk.result, chunk.data, chunk.position)
        self.windows.feed(chunk.result, first, ends)

    def complete(self, start: int, end: int) -> None:
        """Drops what is past the log's end."""
        if self._known_end <= end:
            return

        def queue_end(topic: str, queue_id: int) -> int:
            queue = self._queues.get(topic, queue_id)
            return 0 if queue is None else queue.next_offset

        self.windows.cut(queue_end)
        if not self._context.read_only:
            _write_now(self._context.disk, self.windows, end)


def _write_now(disk: Disk, windows: ProducerWindows, end: int) -> None:
    """Write before anything is appended: later a position past the old end would look valid.

    Raises OSError, except for a full disk."""
    write = WindowsFile(disk, windows).take_write(end)
    assert write is not None
    try:
        write.run()
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        # An empty file counts as damaged, and the next recovery reads the log. Without a file it
        # would take the folder for Apache's, and no producer would be known.
        file = disk.open_file(WINDOWS_FILE)
        file.truncate(0)
        file.datasync()
        file.close()
    disk.fsync_directory("")
