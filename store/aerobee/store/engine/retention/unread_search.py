"""Which queues have unread messages in the log's oldest segment, and which of these hold it.

Taken on the loop with copies of what it needs of the queues, run on another thread because queue
files may be cold, evaluated on the loop. Positions of a queue rise with its offsets, so a single
entry shows whether anything unread is in the segment, and a binary search finds what a ceiling
leaves.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import FileTrouble
from aerobee.store.engine.queues.consume_queue import ConsumeQueue
from aerobee.store.engine.queues.queue_set import QueueName, QueueSet
from aerobee.store.engine.queues.sound_entries import FiledEntries
from aerobee.store.engine.retention.retention_statistics import Because, UnreadRemoval
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entry


@dataclass(frozen=True, slots=True)
class QueueReaders:
    """The groups that read one queue, or what else waits in it.

    A queue without readers, or whose messages must not be kept for anyone, is not listed at all.
    """

    topic: str
    queue_id: int
    offsets: Mapping[str, int]
    """Group -> the next queue offset that it will consume; at least one. Where messages of Apache's
    broker wait, their kind takes the place of a group."""
    keep_bytes_max: int | None = None
    """Unread messages hold a segment only if they are at most this many bytes before the log's end;
    None: always."""

    @property
    def oldest(self) -> int:
        """The smallest offset that a group has not consumed."""
        return min(self.offsets.values())

    @property
    def slowest(self) -> str:
        """The group with that offset; the first by name if there are several."""
        return min(self.offsets, key=lambda group: (self.offsets[group], group))


def removed_unread(
    readers: QueueReaders,
    min_offset_before: int,
    min_offset_after: int,
    *,
    because: Because | None = None,
) -> list[UnreadRemoval]:
    """What each group lost when the queue's first message changed; exact, because queue offsets
    have no gaps. `because` None: a segment was removed, as the queue's readers allowed, or not."""
    if because is None:
        because = Because.UNEXPECTED if readers.keep_bytes_max is None else Because.LIMIT
    lost = []
    for group, offset in sorted(readers.offsets.items()):
        messages = min_offset_after - max(offset, min_offset_before)
        if messages > 0:
            lost.append(UnreadRemoval(group, readers.topic, readers.queue_id, messages, because))
    return lost


@dataclass(frozen=True, slots=True)
class UnreadQueue:
    """A queue with unread messages in the segment; the first of them is at `position`.

    With a `trouble` this is unknown, because a file of the queue cannot be read: then everything
    its readers have not read counts as being in the segment."""

    readers: QueueReaders
    position: int
    holds: bool
    trouble: FileTrouble | None = None

    @property
    def name(self) -> QueueName:
        return self.readers.topic, self.readers.queue_id


class UnreadSearch:
    """One segment, and the queues that some reader has not read to the end."""

    def __init__(self, disk: Disk, queues: QueueSet, base: int, end: int, log_end: int) -> None:
        """The segment is [base, end) of a log that ends at `log_end`."""
        self._base = base
        self._end = end
        self._disk = disk
        self._queues = queues
        self._log_end = log_end
        self._wanted: list[tuple[QueueReaders, _Entries]] = []
        self.found: list[UnreadQueue] = []

    def add(self, readers: Iterable[QueueReaders]) -> None:
        """[loop] Include these, too. What needs no file is decided here."""
        for each in readers:
            queue = self._queues.get(each.topic, each.queue_id)
            if queue is not None and self._may_be_unread(queue, each):
                self._wanted.append((each, _Entries(self._disk, queue, each.oldest)))

    def _may_be_unread(self, queue: ConsumeQueue, readers: QueueReaders) -> bool:
        start = max(readers.oldest, queue.served_from)
        if start >= queue.end or queue.min_position >= self._end:
            return False
        return start < queue.written_end or queue.tail_position < self._end

    def run(self) -> None:
        """[any thread]"""
        found = []
        for readers, entries in self._wanted:
            try:
                queue = self._look_at(readers, entries)
            except OSError as error:
                trouble = FileTrouble("read", entries.path, error)
                holds = self._held_from(readers) < self._end
                queue = UnreadQueue(readers, self._base, holds, trouble)
            if queue is not None:
                found.append(queue)
            entries.close()
        self.found = found

    def _look_at(self, readers: QueueReaders, entries: _Entries) -> UnreadQueue | None:
        """None if nothing unread is in the segment. Raises OSError."""
        position = entries.position(entries.start)
        if position >= self._end:
            return None
        return UnreadQueue(readers, position, self._holds(readers, entries, position))

    def _held_from(self, readers: QueueReaders) -> int:
        """Only what is at or after this may hold a segment."""
        if readers.keep_bytes_max is None:
            return 0
        return self._log_end - readers.keep_bytes_max

    def _holds(self, readers: QueueReaders, entries: _Entries, position: int) -> bool:
        if readers.keep_bytes_max is None:
            return True
        held_from = self._held_from(readers)
        if position >= held_from:
            return True
        if held_from >= self._end:
            return False
        offsets = range(entries.start, entries.end)
        index = bisect_left(offsets, held_from, key=entries.position)
        return index < len(offsets) and entries.position(offsets[index]) < self._end

    # ------------------------------------------------------------------------------ results

    @property
    def holding(self) -> UnreadQueue | None:
        """Of the queues that hold the segment, the one whose unread messages are oldest."""
        holding = (queue for queue in self.found if queue.holds)
        return min(holding, key=lambda queue: queue.position, default=None)

    @property
    def unread(self) -> list[QueueReaders]:
        """Readers of the queues with unread messages in the segment."""
        return [queue.readers for queue in self.found]


class _Entries:
    """The entries of a queue, starting at its first unread one."""

    __slots__ = ("_files", "_tail", "_written_end", "end", "start")

    def __init__(self, disk: Disk, queue: ConsumeQueue, oldest: int) -> None:
        self.start = max(oldest, queue.served_from)
        self.end = queue.end
        self._files = FiledEntries(disk, queue.directory, queue.entries_per_file)
        self._written_end = queue.written_end
        self._tail = bytes(queue.tail)

    @property
    def path(self) -> str:
        return self._files.path

    def position(self, offset: int) -> int:
        """The message's position in the log. A missing entry counts as being at the log's start:
        then its messages are unread and in the oldest segment. Raises OSError."""
        at = (offset - self._written_end) * ENTRY_SIZE
        entry = self._tail[at : at + ENTRY_SIZE] if at >= 0 else b""
        if at < 0:
            with contextlib.suppress(FileNotFoundError):
                entry = self._files.read(offset, offset + 1)
        return unpack_entry(entry)[0] if len(entry) == ENTRY_SIZE else 0

    def close(self) -> None:
        self._files.close()
