"""Consume queue entries on their way into files.

A queue file is never visible without an entry: it is made under a spare name, filled, and renamed.
An empty one would count as one entry for Apache's broker.
"""

from __future__ import annotations

import contextlib

from aerobee.broker.store.disk import Disk
from aerobee.broker.store.log.preallocation import SPARE_PREFIX
from aerobee.broker.store.queues.consume_queue import CONSUME_QUEUE_DIRECTORY, QueueWrite
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE
from aerobee.store_format.names import file_name

_NEW_FILE = f"{SPARE_PREFIX}queue"


def write_entries(disk: Disk, write: QueueWrite, entries_per_file: int) -> list[str]:
    """[one thread at a time] Write and sync the entries; may be repeated after an error.

    Returns the directories to sync, so that new names survive.
    """
    changed: list[str] = []
    data = memoryview(write.data)
    entry = write.first_entry
    while len(data):
        in_file = entry % entries_per_file
        count = min(len(data) // ENTRY_SIZE, entries_per_file - in_file)
        part = data[: count * ENTRY_SIZE]
        path = f"{write.directory}/{file_name((entry - in_file) * ENTRY_SIZE)}"
        if in_file:
            file = disk.open_file(path)
            file.write_at(in_file * ENTRY_SIZE, (part,))
            file.datasync()
            file.close()
        else:
            changed.extend(_make_directory(disk, write.directory))
            _create(disk, path, part, entries_per_file * ENTRY_SIZE)
        data = data[len(part) :]
        entry += count
    return changed


def _make_directory(disk: Disk, directory: str) -> list[str]:
    """Returns the directories in which names appear: this one, and those above it if it is new."""
    if disk.exists(directory):
        return [directory]
    disk.make_directory(directory)
    topic_directory = directory.rpartition("/")[0]
    return [directory, topic_directory, CONSUME_QUEUE_DIRECTORY, ""]


def _create(disk: Disk, path: str, entries: memoryview, file_bytes: int) -> None:
    file = disk.open_file(_NEW_FILE, create=True)
    try:
        file.truncate(0)
        file.truncate(file_bytes)
        file.write_at(0, (entries,))
        file.datasync()
    except BaseException:
        with contextlib.suppress(OSError):
            disk.remove(_NEW_FILE)
        raise
    finally:
        file.close()
    disk.rename(_NEW_FILE, path)
