"""All consume queues of the store.

Owns: the queues by topic and id, which of them have entries that are not in files yet, and how many
bytes these take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aerobee.broker.store.file_cache import FileCache
from aerobee.broker.store.queues.consume_queue import ConsumeQueue, QueueWrite
from aerobee.broker.store.queues.queue_bounds import PRE_BLANK_SIZE
from aerobee.runtime.errors import IllegalName
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE, unpack_entries
from aerobee.store_format.record_layout import is_topic_storable

QueueName = tuple[str, int]

_ENTRIES_PER_LOOK = 4_096
_NAME_BYTES_MAX = 255


def check_queue_name(topic: str, queue_id: int) -> None:
    """Raises IllegalName unless `topic/queue_id` can be a queue's folder."""
    name = topic.encode()
    if not is_topic_storable(name) or len(name) > _NAME_BYTES_MAX or queue_id < 0:
        raise IllegalName(
            f"queue {queue_id} of topic {topic[:60]!r} cannot be stored: its name is no folder's"
        )


class QueueSet:
    """See the module; loop thread only."""

    def __init__(self, files: FileCache, entries_per_file: int) -> None:
        self._files = files
        self._entries_per_file = entries_per_file
        self._queues: dict[QueueName, ConsumeQueue] = {}
        self._dirty: dict[ConsumeQueue, None] = {}
        self.tail_bytes = 0

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    @property
    def physical_end(self) -> int:
        """Up to where the log is known to any queue."""
        return max((queue.physical_end for queue in self._queues.values()), default=0)

    def names(self) -> list[QueueName]:
        return sorted(name for name, queue in self._queues.items() if queue.end)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A new queue is empty and has no file until its first entry is written out.

        Raises IllegalName for a topic that cannot be a folder.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            check_queue_name(topic, queue_id)
            queue = ConsumeQueue(topic, queue_id, self._entries_per_file)
            self._queues[topic, queue_id] = queue
        return queue

    def add(self, queue: ConsumeQueue) -> None:
        self._queues[queue.topic, queue.queue_id] = queue

    def clear(self) -> None:
        self._queues.clear()
        self._dirty.clear()
        self.tail_bytes = 0

    def replace_by_empty(self, queue: ConsumeQueue) -> None:
        """Forget what is known of a queue; its files are the caller's affair."""
        self.tail_bytes -= len(queue.tail)
        self._dirty.pop(queue, None)
        self._queues[queue.topic, queue.queue_id] = ConsumeQueue(
            queue.topic, queue.queue_id, self._entries_per_file
        )

    # ------------------------------------------------------------------------------ growing

    def append(self, queue: ConsumeQueue, entries: bytes, count: int, physical_end: int) -> None:
        queue.append(entries, count, physical_end)
        self._dirty[queue] = None
        self.tail_bytes += len(entries)

    def begin_at(self, queue: ConsumeQueue, offset: int) -> None:
        """An empty queue whose first message has, or will have, `offset`.

        No file is written for the blank entries alone."""
        self.tail_bytes += queue.begin_at(offset) * ENTRY_SIZE

    # ------------------------------------------------------------------------------ files

    @property
    def has_unwritten(self) -> bool:
        """Whether any entry is in memory only."""
        return bool(self._dirty)

    def take_writes(self) -> list[QueueWrite]:
        return [queue.take_write() for queue in self._dirty]

    def finish_writes(self, writes: Iterable[QueueWrite]) -> None:
        """The writes are durable."""
        for write in writes:
            queue = write.queue
            self.tail_bytes -= queue.finish_write(write)
            if not queue.tail:
                self._dirty.pop(queue, None)

    # ------------------------------------------------------------------------------ retention

    def correct_min_offsets(self, log_min_offset: int) -> None:
        """Let each queue begin at its first message that the log still has."""
        for queue in self._queues.values():
            if queue.end:
                queue.min_offset = self._first_at_or_behind(queue, log_min_offset)

    def _first_at_or_behind(self, queue: ConsumeQueue, log_min_offset: int) -> int:
        if queue.physical_end <= log_min_offset:
            return queue.end
        start = queue.first_offset
        while start < queue.end:
            entries = queue.read_entries(self._files, start, _ENTRIES_PER_LOOK)
            positions, sizes, _ = unpack_entries(entries)
            if not len(positions):
                break
            # Blank entries have the physical offset 0 even where the log begins there.
            kept = (positions >= log_min_offset) & (sizes != PRE_BLANK_SIZE)
            if kept.any():
                return start + int(kept.argmax())
            start += len(positions)
        return queue.end
