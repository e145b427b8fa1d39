"""Deliberately broken stores: the simulation must detect each of them.

Most omit one sync, some do the right things in the wrong order.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.flush_work import CheckpointWork, FlushWork
from aerobee.store.engine.folder_state import write_checkpoint
from tests.simulation.power_cuts.driver import Variant


class UnsyncedGroupCommit(Variant):
    """A group commit acknowledges what is only in the page cache."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        return thread == "flush" and operation == "datasync"


class CheckpointFirst(Variant):
    """The checkpoint says that the consume queues are on disk before they are."""

    def run_checkpoint(self, disk: Disk, work: CheckpointWork) -> None:
        write_checkpoint(disk, work.checkpoint)
        work.run()


class CheckpointBeforeLog(Variant):
    """Queues and checkpoint reach the disk before the log that they refer to."""

    def run_flush(self, disk: Disk, work: FlushWork) -> None:
        if work.checkpoint is not None:
            work.checkpoint.run()
        work.run()


class UnsyncedTable(Variant):
    """A config file is renamed into place before its bytes are on disk."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        return thread == "tables" and operation == "datasync"


class UnsyncedTableName(Variant):
    """A config file's rename is acknowledged but not made durable."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        return thread == "tables" and operation == "fsync_directory"


class UnsyncedSegmentName(Variant):
    """After a roll the new segment's bytes are synced, but not its name."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        return thread == "flush" and operation == "fsync_directory"


class UnsyncedQueues(Variant):
    """A checkpoint follows consume queue entries that are only in the page cache."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        is_queue_file = path.startswith(("consumequeue/", "preallocated-queue"))
        return thread == "upkeep" and operation in {"datasync", "sync_all"} and is_queue_file


class UnsyncedQueueNames(Variant):
    """A checkpoint follows new consume queue files whose names are not durable."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        is_queue_folder = path.startswith("consumequeue")
        return thread == "upkeep" and operation == "fsync_directory" and is_queue_folder


class UnsyncedIndex(Variant):
    """A checkpoint follows keys of the key index that are only in the page cache."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        is_index = path.startswith(("index/", "preallocated-index"))
        return thread == "upkeep" and operation == "datasync" and is_index


class UnsyncedRemoval(Variant):
    """Queues follow a removed segment whose removal is not durable."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        return thread == "upkeep" and operation == "fsync_directory" and path == "commitlog"


class UnsyncedRecovery(Variant):
    """Recovery serves what it found in the page cache without writing it to disk."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        return thread == "loop" and operation == "datasync" and path.startswith("commitlog/")


MUTANTS: Mapping[str, type[Variant]] = MappingProxyType(
    {
        "unsynced-group-commit": UnsyncedGroupCommit,
        "checkpoint-first": CheckpointFirst,
        "checkpoint-before-log": CheckpointBeforeLog,
        "unsynced-table": UnsyncedTable,
        "unsynced-table-name": UnsyncedTableName,
        "unsynced-segment-name": UnsyncedSegmentName,
        "unsynced-queues": UnsyncedQueues,
        "unsynced-queue-names": UnsyncedQueueNames,
        "unsynced-index": UnsyncedIndex,
        "unsynced-removal": UnsyncedRemoval,
        "unsynced-recovery": UnsyncedRecovery,
    }
)
