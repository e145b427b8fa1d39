"""What a flush has to do, taken on the loop and done on another thread.

The order is what makes the checkpoint true: the log reaches the disk first, then the consume queue
entries that point into it, then the checkpoint that says so. A work touches no state of the store;
the store learns of its end through `finish_flush` and `finish_checkpoint`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.broker.store.disk import Disk, DiskFile
from aerobee.broker.store.log.preallocation import DISK_FULL
from aerobee.broker.store.queues.consume_queue import QueueWrite
from aerobee.broker.store.queues.queue_ends import write_queue_ends
from aerobee.broker.store.queues.queue_files import write_entries
from aerobee.store_format.checkpoint import Checkpoint

CHECKPOINT_FILE = "checkpoint"


def write_checkpoint(disk: Disk, checkpoint: Checkpoint) -> None:
    """[any thread] One page, written in place and synced."""
    file = disk.open_file(CHECKPOINT_FILE, create=True)
    file.write_at(0, (checkpoint.encode(),))
    file.datasync()
    file.close()


class CheckpointWork:
    """Consume queues to their files, then the checkpoint. To run after the flush it came with."""

    __slots__ = ("_disk", "_entries_per_file", "_queue_ends", "checkpoint", "error", "writes")

    def __init__(
        self,
        disk: Disk,
        writes: Sequence[QueueWrite],
        queue_ends: bytes,
        checkpoint: Checkpoint,
        *,
        entries_per_file: int,
    ) -> None:
        self._disk = disk
        self._entries_per_file = entries_per_file
        self._queue_ends = queue_ends
        self.writes = writes
        self.checkpoint = checkpoint
        # A full disk harms nothing here: the entries stay in memory and are written again later.
        self.error: OSError | None = None

    def run(self) -> None:
        """[any thread] Raises OSError, except for a full disk."""
        try:
            changed = [
                directory
                for write in self.writes
                for directory in write_entries(self._disk, write, self._entries_per_file)
            ]
            write_queue_ends(self._disk, self._queue_ends)
            for directory in dict.fromkeys([*changed, ""]):
                self._disk.fsync_directory(directory)
            write_checkpoint(self._disk, self.checkpoint)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.error = error


class FlushWork:
    """Makes the log durable up to `end`. One at a time."""

    __slots__ = ("_directories", "_disk", "_files", "checkpoint", "end")

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        files: Sequence[DiskFile],
        end: int,
        checkpoint: CheckpointWork | None,
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._files = files
        self.end = end
        # What may follow once this has run, on the same thread or on another.
        self.checkpoint = checkpoint

    def run(self) -> None:
        """[any thread] Raises OSError; then nothing is known of the log's durability any more."""
        for file in self._files:
            file.datasync()
        for directory in self._directories:
            self._disk.fsync_directory(directory)
