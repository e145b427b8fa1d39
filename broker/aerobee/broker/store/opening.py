"""Who uses the folder, and whether the last user left it in order: the `lock` and `abort` files."""

from __future__ import annotations

import os

from aerobee.broker.store.disk import Disk, DiskLock
from aerobee.broker.store.errors import StoreLocked, StoreUnusable

LOCK_FILE = "lock"
LOCK_CONTENT = b"lock"
ABORT_FILE = "abort"


def lock_store(disk: Disk) -> DiskLock:
    """Take the folder for this process. Raises StoreLocked; StoreUnusable if not writable."""
    try:
        disk.make_directory("")
        return disk.lock_file(LOCK_FILE, LOCK_CONTENT)
    except BlockingIOError:
        raise StoreLocked(
            f"{disk} is in use by another process: stop that one or choose another folder"
        ) from None
    except OSError as error:
        raise StoreUnusable(
            f"{disk} cannot be written ({error.strerror}): check its owner and the mount"
        ) from error


def was_left_running(disk: Disk) -> bool:
    """Whether the last user ended without closing the store."""
    return disk.exists(ABORT_FILE)


def mark_running(disk: Disk) -> None:
    """Durable before the first append, so that a crash is always noticed."""
    file = disk.open_file(ABORT_FILE, create=True)
    file.truncate(0)
    file.write_at(0, (str(os.getpid()).encode(),))
    file.datasync()
    file.close()
    disk.fsync_directory("")


def mark_closed(disk: Disk) -> None:
    """Everything is on the disk and derived."""
    disk.remove(ABORT_FILE)
    disk.fsync_directory("")
