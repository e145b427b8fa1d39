"""Who uses the folder, whether its last user closed it properly, and how far it had come: the files
`lock`, `abort` and `checkpoint`."""

from __future__ import annotations

import os

from aerobee.store.engine.disk import Disk, DiskLock
from aerobee.store.engine.errors import StoreLocked, StoreUnusable
from aerobee.store.format.checkpoint import Checkpoint, CheckpointIllegal

LOCK_FILE = "lock"
LOCK_CONTENT = b"lock"
ABORT_FILE = "abort"
CHECKPOINT_FILE = "checkpoint"

# The year 2248: a later checkpoint is garbage.
_TIMESTAMP_END_MS = 1 << 43


def lock_store(disk: Disk) -> DiskLock:
    """Take the folder for this process. Raises StoreLocked; StoreUnusable if not writable."""
    try:
        disk.make_directory("")
        return disk.lock_file(LOCK_FILE, LOCK_CONTENT)
    except BlockingIOError:
        raise StoreLocked(
            f"{disk} is in use by another process: stop that process or choose another folder"
        ) from None
    except OSError as error:
        raise StoreUnusable(
            f"{disk} cannot be written ({error.strerror}): check its owner and the mount"
        ) from error


def was_left_running(disk: Disk) -> bool:
    """Whether the last user ended without closing the store."""
    return disk.exists(ABORT_FILE)


def mark_running(disk: Disk) -> None:
    """Durable before the first append, so that a crash is always detected."""
    file = disk.open_file(ABORT_FILE, create=True)
    file.truncate(0)
    file.write_at(0, (str(os.getpid()).encode(),))
    file.datasync()
    file.close()
    disk.fsync_directory("")


def mark_closed(disk: Disk) -> None:
    """Everything is on disk and derived."""
    disk.remove(ABORT_FILE)
    disk.fsync_directory("")


def load_checkpoint(disk: Disk) -> Checkpoint:
    """The checkpoint; if unusable, all zero, which means "begin at the oldest file"."""
    try:
        checkpoint = Checkpoint.decode(disk.read_file(CHECKPOINT_FILE))
    except (OSError, CheckpointIllegal):
        return Checkpoint()
    times = (
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
    )
    if min(times) < 0 or max(times) >= _TIMESTAMP_END_MS or checkpoint.confirm_physical_offset < 0:
        return Checkpoint()
    return checkpoint


def write_checkpoint(disk: Disk, checkpoint: Checkpoint) -> None:
    """[any thread] One page, written in place and synced."""
    file = disk.open_file(CHECKPOINT_FILE, create=True)
    file.write_at(0, (checkpoint.encode(),))
    file.datasync()
    file.close()
