"""A checkpoint's work for the queues: it writes their entries to the files, then the list of their
ends. Files of deleted topics' queues are removed first, as new ones may have their names.

Taken on the loop, where it costs a copy of what changed; run on another thread.

A queue file is never visible without an entry: it is made under a spare name, filled, synced, and
renamed. Apache's broker would count an empty one as one entry. When many queues got a few entries
each, they are not synced one by one, which takes about half a millisecond each: all are written,
then the whole file system is synced once. A file that has disappeared only makes its queue damaged:
the log and the other queues continue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aerobee.store.engine.disk import Disk, DiskFile
from aerobee.store.engine.errors import QueueDamaged
from aerobee.store.engine.log.segment_supply import spare_path
from aerobee.store.engine.queues.consume_queue import (
    CONSUME_QUEUE_DIRECTORY,
    ConsumeQueue,
    QueueWrite,
)
from aerobee.store.engine.queues.queue_ends import QueueEnd, QueueEndsFile
from aerobee.store.engine.queues.queue_files import remove_queue_files
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE

# From this many files on, one sync of everything is cheaper than one of each.
SYNC_ALL_FILES_MIN = 32


@dataclass(slots=True, eq=False)
class DroppedQueue:
    """A queue that is gone; `number` is its index in the list, -1 if it has none."""

    topic: str
    queue_id: int
    number: int = -1
    has_files: bool = True
    """Until they are removed; later files with these names belong to a later queue."""


def remove_dropped(disk: Disk, dropped: Sequence[DroppedQueue]) -> None:
    """[one thread at a time] Remove the files of dropped queues, durably. May be repeated: after an
    error a checkpoint is retried, and a later queue's files may exist by then. Raises OSError."""
    with_files = [queue for queue in dropped if queue.has_files]
    for topic, queue_id in dict.fromkeys((queue.topic, queue.queue_id) for queue in with_files):
        remove_queue_files(disk, topic, queue_id)
    for queue in with_files:
        queue.has_files = False


class QueueWriteOut:
    """Made by `QueueSet.take_write_out`, passed back to `finish_write_out` once it ran."""

    __slots__ = ("_disk", "_ends", "dropped", "writes")

    def __init__(
        self,
        disk: Disk,
        ends: QueueEndsFile,
        writes: Sequence[QueueWrite],
        dropped: Sequence[DroppedQueue],
    ) -> None:
        self._disk = disk
        self._ends = ends
        self.writes = writes
        self.dropped = dropped

    def run(self, checkpoint: Checkpoint) -> None:
        """[one thread at a time] Makes all of it durable, except the list's name in the root; write
        `checkpoint` afterwards. May be repeated after an error. Raises OSError."""
        remove_dropped(self._disk, self.dropped)
        sound = [write for write in self.writes if write.data and self._is_sound(write)]
        write_entries(self._disk, sound)
        ends = [_end_of(write) for write in self.writes]
        ends += [
            QueueEnd(queue.number, queue.topic, queue.queue_id, 0, 0, -1, 0, 0, 0)
            for queue in self.dropped
            if queue.number >= 0
        ]
        self._ends.write(checkpoint, ends)

    def _is_sound(self, write: QueueWrite) -> bool:
        """Nothing is added to files that turn out not to be the queue's."""
        try:
            write.queue.check_files(self._disk, write.claim)
        except QueueDamaged:
            return False
        return True


def _end_of(write: QueueWrite) -> QueueEnd:
    queue = write.queue
    return QueueEnd(
        queue.number,
        queue.topic,
        queue.queue_id,
        write.first_offset,
        write.min_offset,
        write.min_position,
        write.first_entry + len(write.data) // ENTRY_SIZE,
        write.end,
        write.physical_end,
        bool(queue.damage),
    )


# ---------------------------------------------------------------------------------- entries


class _FileWrite(NamedTuple):
    """Entries of one file. A new file is filled under `spare`, otherwise empty."""

    queue: ConsumeQueue
    path: str
    at: int
    data: memoryview
    file_bytes: int
    spare: str


def write_entries(disk: Disk, writes: Sequence[QueueWrite]) -> None:
    """[one thread at a time] Write the entries to stable storage, with the names of new files.

    Skips a queue that lost the file to be written, and marks it damaged. May be repeated after an
    error. Raises OSError.
    """
    files: list[_FileWrite] = []
    try:
        _write_and_sync(disk, writes, files)
        directories = _place(disk, files)
    except BaseException:
        for file in files:
            if file.spare:
                with contextlib.suppress(OSError):
                    disk.remove(file.spare)
        raise
    if len(directories) < SYNC_ALL_FILES_MIN or not disk.sync_all():
        for directory in directories:
            disk.fsync_directory(directory)


def _write_and_sync(disk: Disk, writes: Sequence[QueueWrite], files: list[_FileWrite]) -> None:
    """Adds each begun write to `files`."""
    at_once = len(writes) >= SYNC_ALL_FILES_MIN
    for file in _split(writes, spare_path(disk, CONSUME_QUEUE_DIRECTORY, "queue")):
        if file.queue.damage:
            continue
        handle = _open(disk, file, create=bool(file.spare))
        if handle is None:
            continue
        files.append(file)
        try:
            if file.spare:
                handle.truncate(0)
                handle.truncate(file.file_bytes)
            handle.write_at(file.at, (file.data,))
            if not at_once:
                handle.datasync()
        finally:
            handle.close()
    if at_once and not disk.sync_all():
        for file in files:
            handle = _open(disk, file)
            if handle is not None:
                handle.datasync()
                handle.close()


def _open(disk: Disk, file: _FileWrite, *, create: bool = False) -> DiskFile | None:
    """None if it is a queue's existing file and has disappeared."""
    try:
        return disk.open_file(file.spare or file.path, create=create)
    except FileNotFoundError:
        if file.spare:
            raise
    file.queue.damage = f"its file {file.path} is missing"
    return None


def _split(writes: Iterable[QueueWrite], spare_prefix: str) -> Iterator[_FileWrite]:
    """One piece per file."""
    spares = 0
    for write in writes:
        data = memoryview(write.data)
        entry = write.first_entry
        entries_per_file = write.queue.entries_per_file
        while len(data):
            in_file = entry % entries_per_file
            part = data[: (entries_per_file - in_file) * ENTRY_SIZE]
            spare = "" if in_file else f"{spare_prefix}-{spares}"
            spares += not in_file
            yield _FileWrite(
                write.queue,
                write.queue.file_path(entry),
                in_file * ENTRY_SIZE,
                part,
                entries_per_file * ENTRY_SIZE,
                spare,
            )
            data = data[len(part) :]
            entry += len(part) // ENTRY_SIZE


def _place(disk: Disk, files: Sequence[_FileWrite]) -> list[str]:
    """Give filled files their names; returns the directories in which names appeared."""
    changed: dict[str, None] = {}
    for file in files:
        if not file.spare:
            continue
        directory = file.path.rpartition("/")[0]
        if directory not in changed:
            disk.make_directory(directory)
            # Even if it already exists: the process that made it may have been killed before the
            # syncs.
            topic_directory = directory.rpartition("/")[0]
            changed.update(dict.fromkeys((topic_directory, CONSUME_QUEUE_DIRECTORY, "")))
        changed[directory] = None
        disk.rename(file.spare, file.path)
    return list(changed)
