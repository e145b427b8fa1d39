"""The work of a flush: taken on the loop, done on another thread.

The order makes the checkpoint true: the log reaches the disk first, then the consume queue entries
and the keys that point into it, then the checkpoint that says so. A work touches no state of the
store; the store learns of its end through `finish_flush` and `finish_checkpoint`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.runtime.clock import Clock
from aerobee.store.engine.disk import Disk, DiskFile
from aerobee.store.engine.errors import DISK_FULL
from aerobee.store.engine.folder_state import write_checkpoint
from aerobee.store.engine.index.index_write import IndexWrite
from aerobee.store.engine.producers.windows_file import WindowsWrite
from aerobee.store.engine.queues.queue_write_out import QueueWriteOut
from aerobee.store.format.checkpoint import Checkpoint


class CheckpointWork:
    """Writes consume queues, the key index and the producers' windows to their files, then the
    checkpoint. Run it after the flush it came with."""

    __slots__ = (
        "_disk",
        "checkpoint",
        "error",
        "index_write",
        "queues",
        "windows_write",
    )

    def __init__(
        self,
        disk: Disk,
        queues: QueueWriteOut,
        checkpoint: Checkpoint,
        *,
        index_write: IndexWrite | None,
        windows_write: WindowsWrite | None,
    ) -> None:
        self._disk = disk
        self.queues = queues
        self.checkpoint = checkpoint
        self.index_write = index_write
        self.windows_write = windows_write
        # A full disk is harmless here: what is not written stays in memory and is written later.
        self.error: OSError | None = None

    def run(self) -> None:
        """[any thread] Raises OSError, except for a full disk."""
        try:
            self.queues.run(self.checkpoint)
            if self.index_write is not None:
                self.index_write.run()
            if self.windows_write is not None:
                self.windows_write.run()
            self._disk.fsync_directory("")
            write_checkpoint(self._disk, self.checkpoint)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.error = error


class FlushWork:
    """Makes the log durable up to `end`. One at a time."""

    __slots__ = ("_clock", "_directories", "_disk", "_files", "checkpoint", "end", "sync_s")

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        files: Sequence[DiskFile],
        end: int,
        checkpoint: CheckpointWork | None,
        clock: Clock,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self.sync_s = 0.0
        """How long the disk took, once it has run."""
        self._directories = directories
        self._files = files
        self.end = end
        # What may follow once this has run, on any thread.
        self.checkpoint = checkpoint

    def run(self) -> None:
        """[any thread] Raises OSError; then nothing is known of the log's durability."""
        began_s = self._clock.monotonic_s()
        for file in self._files:
            file.datasync()
        for directory in self._directories:
            self._disk.fsync_directory(directory)
        self.sync_s = self._clock.monotonic_s() - began_s
