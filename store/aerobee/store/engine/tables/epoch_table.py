"""The epoch file in a store's root, loaded and saved as a whole, with its backup.

`save_epochs` must return before anything is done under a new epoch. So if only the backup can be
read, and no damage was reported, the epoch that it lacks was never used.
"""

from __future__ import annotations

from collections.abc import Iterable

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.tables.atomic_file import (
    BACKUP_SUFFIX,
    TEMPORARY_SUFFIX,
    Loaded,
    read_with_backup,
    replace_atomically,
)
from aerobee.store.format.epoch_file import EPOCH_FILE, EpochEntry, decode_epochs, encode_epochs


def load_epochs(disk: Disk) -> Loaded[list[EpochEntry]]:
    """(epoch, first log offset) pairs, oldest first; None without a file. Blocks.

    A `problem` with a value means that the newest epochs may be missing. Raises StoreUnusable if
    files exist and none of them can be read.
    """
    return read_with_backup(disk, EPOCH_FILE, decode_epochs)


def save_epochs(disk: Disk, entries: Iterable[EpochEntry]) -> None:
    """Durable on return. Blocks; one call at a time; raises OSError."""
    replace_atomically(disk, EPOCH_FILE, encode_epochs(entries))


def remove_epochs(disk: Disk) -> None:
    """Remove those of a log that is gone. Becomes durable with an fsync of the root."""
    for suffix in (TEMPORARY_SUFFIX, BACKUP_SUFFIX, ""):
        if disk.exists(EPOCH_FILE + suffix):
            disk.remove(EPOCH_FILE + suffix)
