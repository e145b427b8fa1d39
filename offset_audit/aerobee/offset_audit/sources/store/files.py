"""The files of a store folder: what exists now, by name and size.

Only the heads of a log's last segments are opened here: a broker creates segments before it needs
them, and a segment that was never written begins with zeros.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aerobee.offset_audit.sources.store.folders import (
    COMMIT_LOG,
    CONSUME_QUEUE,
    INDEX,
    StoreFolder,
)
from aerobee.store.format.names import is_file_name

_HEAD_BYTES = 8
_INDEX_NAME_DIGITS = 17


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file as the folder's listing showed it."""

    path: str
    base: int
    """The position of its first byte in the sequence of files; for an index file, the number in its
    name."""
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one queue, in order."""

    topic: str
    queue_id: int
    files: tuple[StoreFile, ...]


def log_segments(store: StoreFolder) -> list[StoreFile]:
    """The segments in order, without unwritten ones at the end."""
    segments = sequence_of(store.path(COMMIT_LOG).as_posix())
    while segments and _is_unwritten(segments[-1].path):
        segments.pop()
    return segments


def queue_files(
    store: StoreFolder, is_wanted: Callable[[str, int], bool] = lambda topic, queue_id: True
) -> Iterator[QueueFiles]:
    """The wanted queues that have files, by topic and queue id."""
    for topic in sorted(_folders(store.path(CONSUME_QUEUE).as_posix())):
        queues = _folders(topic)
        numbers = sorted(int(os.path.basename(path)) for path in queues if _is_number(path))
        name = os.path.basename(topic)
        for queue_id in numbers:
            if is_wanted(name, queue_id):
                files = sequence_of(os.path.join(topic, str(queue_id)))
                if files:
                    yield QueueFiles(name, queue_id, tuple(files))


def index_files(store: StoreFolder) -> list[StoreFile]:
    """The index files, oldest first."""
    entries = _entries(store.path(INDEX).as_posix())
    return sorted(
        (
            StoreFile(entry.path, int(entry.name), size)
            for entry, size in entries
            if len(entry.name) == _INDEX_NAME_DIGITS and entry.name.isdecimal() and size
        ),
        key=lambda file: file.base,
    )


def sequence_of(folder: str) -> list[StoreFile]:
    """The files of a folder that are named after their first byte, in order."""
    files = [
        StoreFile(entry.path, int(entry.name), size)
        for entry, size in _entries(folder)
        if size and is_file_name(entry.name)
    ]
    files.sort(key=lambda file: file.base)
    return files


def _entries(folder: str) -> Iterator[tuple[os.DirEntry[str], int]]:
    """The files in a folder with their sizes; those that vanish meanwhile are left out."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_file():
                        yield entry, entry.stat().st_size
                except FileNotFoundError:
                    continue
    except (FileNotFoundError, NotADirectoryError):
        return


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_number(path: str) -> bool:
    name = os.path.basename(path)
    return name.isascii() and name.isdecimal() and len(name) <= 10


def _is_unwritten(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return not any(file.read(_HEAD_BYTES))
    except FileNotFoundError:
        return True
