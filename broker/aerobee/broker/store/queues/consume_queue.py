"""One queue: message n of a topic's queue -> where its record lies in the log.

Owns: the entries that are not yet in the queue's files (the tail) and the bounds of the queue. The
files hold entries [.., written_end), the tail [written_end, end); readers see both as one. Files
are written on another thread from a copy of the tail, and the tail is trimmed once they are
durable.

Invariants: first_offset <= min_offset <= end <= next_offset; physical offsets rise with the
offset; the queue never has an entry that the log does not cover.
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.store.file_cache import FileCache
from aerobee.broker.store.queues.queue_bounds import QueueBounds
from aerobee.broker.store.queues.reading import Located, ReadLimits, entries_to_read, select
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE, PRE_BLANK_ENTRY
from aerobee.store_format.names import file_name

CONSUME_QUEUE_DIRECTORY = "consumequeue"


def queue_directory(topic: str, queue_id: int) -> str:
    return f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue_id}"


@dataclass(frozen=True, slots=True)
class QueueWrite:
    """Entries to be brought into a queue's files: `data` begins with entry `first_entry`."""

    queue: ConsumeQueue
    directory: str
    first_entry: int
    data: bytes


class ConsumeQueue:
    """See the module. All methods are for the loop thread."""

    __slots__ = (
        "directory",
        "end",
        "entries_per_file",
        "first_offset",
        "min_offset",
        "next_offset",
        "physical_end",
        "queue_id",
        "tail",
        "topic",
        "written_end",
    )

    def __init__(self, topic: str, queue_id: int, entries_per_file: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = queue_directory(topic, queue_id)
        self.entries_per_file = entries_per_file
        # Where the queue's first file begins; messages may begin later.
        self.first_offset = 0
        self.min_offset = 0
        self.written_end = 0
        self.end = 0
        self.physical_end = 0
        self.tail = bytearray()
        # Offset of the next record to be appended to the log; it is dispatched here later.
        self.next_offset = 0

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, {self.min_offset}..{self.end})"

    @property
    def bounds(self) -> QueueBounds:
        return QueueBounds(self.min_offset, self.end, self.physical_end)

    def append(self, entries: bytes, count: int, physical_end: int) -> None:
        """Add `count` entries at the end of the queue."""
        self.tail += entries
        self.end += count
        self.physical_end = physical_end
        if self.next_offset < self.end:
            self.next_offset = self.end

    def begin_at(self, offset: int) -> int:
        """Let an empty queue begin at `offset`; returns how many entries stand blank before it."""
        assert self.end == 0
        assert not self.tail
        blank = offset % self.entries_per_file
        self.first_offset = offset - blank
        self.written_end = offset - blank
        self.tail += PRE_BLANK_ENTRY * blank
        self.min_offset = offset
        self.end = offset
        self.next_offset = max(self.next_offset, offset)
        return blank

    # ------------------------------------------------------------------------------ files

    def take_write(self) -> QueueWrite:
        return QueueWrite(self, self.directory, self.written_end, bytes(self.tail))

    def finish_write(self, write: QueueWrite) -> int:
        """What `write` holds is durable: forget it. Returns the bytes given back."""
        size = len(write.data)
        assert write.first_entry == self.written_end
        del self.tail[:size]
        self.written_end += size // ENTRY_SIZE
        return size

    # ------------------------------------------------------------------------------ reading

    def read_entries(self, files: FileCache, start: int, count: int) -> bytes:
        """Entries [start, start + count), cut at the end of the queue; may block on a cold file.

        Fewer come if a file is missing or short.
        """
        end = min(start + count, self.end)
        if start >= self.written_end:
            return self._from_tail(start, end)
        parts: list[bytes] = []
        position = start
        while position < min(end, self.written_end):
            in_file = position % self.entries_per_file
            wanted = min(end, self.written_end, position - in_file + self.entries_per_file)
            size = (wanted - position) * ENTRY_SIZE
            try:
                file = files.get(self.file_path(position))
            except FileNotFoundError:
                return b"".join(parts)
            parts.append(file.read_at(in_file * ENTRY_SIZE, size))
            if len(parts[-1]) != size:
                return b"".join(parts)
            position = wanted
        if position < end:
            parts.append(self._from_tail(position, end))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def locate(
        self,
        files: FileCache,
        offset: int,
        *,
        limits: ReadLimits,
        log_min_offset: int,
        tags_filter: frozenset[int] | None,
        scan_entries_max: int,
    ) -> Located:
        """Where the messages from `offset`, which is in the queue, lie in the log."""
        count = entries_to_read(
            limits, filtered=tags_filter is not None, scan_entries_max=scan_entries_max
        )
        in_file = offset % self.entries_per_file
        return select(
            self.read_entries(files, offset, count),
            offset=offset,
            bounds=self.bounds,
            limits=limits,
            log_min_offset=log_min_offset,
            next_file_offset=min(offset - in_file + self.entries_per_file, self.end),
            tags_filter=tags_filter,
        )

    def file_path(self, entry: int) -> str:
        """The file that holds `entry`."""
        base = (entry - entry % self.entries_per_file) * ENTRY_SIZE
        return f"{self.directory}/{file_name(base)}"

    def _from_tail(self, start: int, end: int) -> bytes:
        first = self.written_end
        view = memoryview(self.tail)
        return bytes(view[(start - first) * ENTRY_SIZE : (end - first) * ENTRY_SIZE])
