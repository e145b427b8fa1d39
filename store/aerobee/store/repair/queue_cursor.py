"""One queue while the log is read: how far it was compared, and what to report about it."""

from __future__ import annotations

from bisect import bisect_left

from aerobee.store.engine.file_cache import FileCache
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entry
from aerobee.store.format.names import file_name
from aerobee.store.repair.folder import Folder, QueueFolder

_CHUNK_BYTES = 4096


class QueueCursor:
    """`next` is the offset that the queue's next record must have, None before the first one."""

    __slots__ = (
        "end",
        "first_seen",
        "folder",
        "last_position",
        "missing_from",
        "missing_position",
        "next",
        "queue_id",
        "topic",
    )

    def __init__(self, topic: str, queue_id: int, folder: QueueFolder | None) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.folder = folder
        self.next: int | None = None
        # The first offset that the log still has.
        self.first_seen: int | None = None
        # The log position from which the files have no entries.
        self.missing_from: int | None = None
        self.missing_position = 0
        # Of the last compared record, in the log.
        self.last_position = -1
        # After the last offset in log or files; known at the end.
        self.end = 0

    @property
    def is_compared(self) -> bool:
        """Whether the queue has files whose entries can be compared."""
        folder = self.folder
        return folder is not None and not folder.problem and folder.files > 0

    @property
    def min_offset(self) -> int:
        """The first offset that can be read."""
        return self.end if self.first_seen is None else self.first_seen

    @property
    def shown(self) -> str:
        return f"queue {self.queue_id} of {self.topic}"

    def advance(self, end: int, last_position: int) -> None:
        self.next = end
        self.last_position = last_position


def read_entries(
    folder: Folder, files: FileCache, cursor: QueueCursor, start: int, count: int
) -> bytes:
    """Entries [start, start + count) from the files; fewer if these end."""
    queue = cursor.folder
    if queue is None or queue.problem:
        return b""
    per_file = folder.entries_per_file
    parts: list[bytes] = []
    position, end = start, min(start + count, queue.first + queue.files * per_file)
    if position < queue.first:
        return b""
    while position < end:
        in_file = position % per_file
        wanted = min(end - position, per_file - in_file)
        path = f"{queue.directory}/{file_name((position - in_file) * ENTRY_SIZE)}"
        try:
            part = files.get(path).read_at(in_file * ENTRY_SIZE, wanted * ENTRY_SIZE)
        except FileNotFoundError:
            break  # retention has removed it in the meantime
        parts.append(part[: len(part) - len(part) % ENTRY_SIZE])
        if len(part) != wanted * ENTRY_SIZE:
            break
        position += wanted
    return parts[0] if len(parts) == 1 else b"".join(parts)


def used_file_end(folder: Folder, files: FileCache, cursor: QueueCursor, start: int) -> int:
    """The end of the last entry at or after `start` that is not all zeros; `start` if there is
    none.

    Reads holes only if the file system cannot report them.
    """
    queue = cursor.folder
    if queue is None or queue.problem:
        return start
    per_file = folder.entries_per_file
    end = start
    first = max(start, queue.first)
    for base in range(queue.first, queue.first + queue.files * per_file, per_file):
        if base + per_file <= first:
            continue
        begin = max(0, first - base)
        path = f"{queue.directory}/{file_name(base * ENTRY_SIZE)}"
        try:
            file = files.get(path)
        except FileNotFoundError:
            continue
        size = per_file * ENTRY_SIZE
        at: int | None = begin * ENTRY_SIZE
        while at is not None and at < size:
            # To a page's end: more would put zeros into the cache that look like data.
            data = file.read_at(at, min(_CHUNK_BYTES - at % _CHUNK_BYTES, size - at))
            used = len(data.rstrip(b"\0"))
            if used:
                end = base + -(-(at + used) // ENTRY_SIZE)
            at += max(len(data), 1)
            if not folder.is_live and at < size:
                at = file.next_data(at)
    return end


def first_offset_behind(
    folder: Folder, files: FileCache, cursor: QueueCursor, position: int
) -> int | None:
    """The queue's first offset whose record is at or after a log offset; None if unknown."""
    if not cursor.is_compared or cursor.folder is None:
        return None

    def position_of(offset: int) -> int:
        data = read_entries(folder, files, cursor, offset, 1)
        return unpack_entry(data)[0] if data else 1 << 62

    offsets = range(cursor.folder.first, cursor.end)
    return cursor.folder.first + bisect_left(offsets, position, key=position_of)
