"""All consume queues of the store.

Owns: the queues by topic and id, which of them changed since the last checkpoint, the memory of
their entries, and the list of queue ends. The cost of a checkpoint depends on what changed, not on
the number of queues; only the first one after a start writes them all to the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aerobee.runtime.errors import IllegalName
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.queues.consume_queue import (
    ConsumeQueue,
    QueueWrite,
    queue_directory,
)
from aerobee.store.engine.queues.queue_ends import QueueEndsFile
from aerobee.store.engine.queues.queue_trim import QueueTrim
from aerobee.store.engine.queues.queue_write_out import (
    DroppedQueue,
    QueueWriteOut,
    remove_dropped,
    write_entries,
)
from aerobee.store.engine.queues.reading import QueueBounds
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.record_layout import is_topic_storable

QueueName = tuple[str, int]

_NAME_BYTES_MAX = 255


def check_queue_name(topic: str, queue_id: int) -> None:
    """Raises IllegalName unless `topic/queue_id` can be a queue's folder."""
    name = topic.encode()
    if not is_topic_storable(name) or len(name) > _NAME_BYTES_MAX or queue_id < 0:
        raise IllegalName(
            f"queue {queue_id} of topic {topic[:60]!r} cannot be stored: its name is not a "
            "valid folder name"
        )


class QueueSet:
    """Loop thread only.

    A deleted topic's queues are first retired: they continue until everything before the topic's
    end is dispatched, while new ones take their names. Then they are dropped, and their files are
    removed by the next checkpoint, before the new ones get any.
    """

    def __init__(self, files: FileCache, entries_per_file: int) -> None:
        self._files = files
        self._entries_per_file = entries_per_file
        self._queues: dict[QueueName, ConsumeQueue] = {}
        self._queue_ids: dict[str, set[int]] = {}
        # Queues with entries that are not in files, or whose bounds changed otherwise; with the
        # number of write-outs taken when they last changed.
        self._dirty: dict[ConsumeQueue, int] = {}
        self._write_outs = 0
        self._ends = QueueEndsFile(files.disk)
        self._listed = 0
        self._all_listed = False
        # Detected by readers: these serve nothing until the next start rebuilds them.
        self.damaged: dict[QueueName, str] = {}
        self.tail_bytes = 0
        # Queues whose files must be removed and which must leave the list.
        self._dropped: list[DroppedQueue] = []
        self.ended_topics: set[str] = set()
        """Topics that have ended since the store was opened or a replica's stream began: what other
        replicas say of their queues may be about former lives."""

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    @property
    def physical_end(self) -> int:
        """How far the log is known to any queue."""
        return max((queue.physical_end for queue in self._queues.values()), default=0)

    def names(self) -> list[QueueName]:
        """Every queue that ever had an entry, sorted."""
        return sorted(name for name, queue in self._queues.items() if queue.end)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queue = self._queues.get((topic, queue_id))
        if queue is not None and queue.damage:
            self.damaged[topic, queue_id] = queue.damage
            self._dirty[queue] = self._write_outs  # so that the next start knows
        return queue

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        """Minimum and maximum offset; zeros for an unknown queue."""
        queue = self.get(topic, queue_id)
        return QueueBounds(0, 0) if queue is None else queue.bounds

    def keep_from(self, topic: str, queue_id: int, offset: int) -> None:
        """The topic keeps nothing older: it is not served and not counted from now on, and its
        bytes go with the log's segments. 0: the topic keeps all that the log has.

        Not stored here: whoever knows it says it again after each start."""
        if (queue := self._queues.get((topic, queue_id))) is not None:
            queue.kept_from = offset

    def kept_from(self, topic: str) -> dict[int, int]:
        """The topic's queues of which messages that the log may have are not kept: queue id to the
        first kept offset."""
        kept = ((queue.queue_id, queue.kept_from) for queue in self._of_topic(topic))
        return {queue_id: offset for queue_id, offset in kept if offset}

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """Its queues that ever had an entry, by id."""
        queues = (queue for queue in self._of_topic(topic) if queue.end)
        return sorted(queues, key=lambda queue: queue.queue_id)

    def read_entries(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        """Raw entries, cut at the queue's end; may wait for the disk. Raises QueueDamaged."""
        queue = self.get(topic, queue_id)
        return b"" if queue is None else queue.read_entries(self._files, offset, count)

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A new queue is empty and has no file until its first entry is written out.

        Raises IllegalName for a topic that cannot be a folder.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            check_queue_name(topic, queue_id)
            queue = ConsumeQueue(topic, queue_id, self._entries_per_file)
            self.add(queue)
        return queue

    def add(self, queue: ConsumeQueue) -> None:
        self._queues[queue.topic, queue.queue_id] = queue
        self._queue_ids.setdefault(queue.topic, set()).add(queue.queue_id)

    def _of_topic(self, topic: str) -> list[ConsumeQueue]:
        return [self._queues[topic, number] for number in self._queue_ids.get(topic, ())]

    def clear(self) -> None:
        self._queues.clear()
        self._queue_ids.clear()
        self._dirty.clear()
        self._dropped.clear()
        self.ended_topics.clear()
        self.tail_bytes = 0

    def replace_by_empty(self, queue: ConsumeQueue) -> None:
        """Forget what is known of a queue; the caller deals with its files."""
        self.tail_bytes -= len(queue.tail)
        self._dirty.pop(queue, None)
        self._queues[queue.topic, queue.queue_id] = ConsumeQueue(
            queue.topic, queue.queue_id, self._entries_per_file
        )

    def emptied(self) -> dict[QueueName, int]:
        """The queues whose messages were all removed, with their next offsets; no log has these."""
        return {
            name: queue.end
            for name, queue in self._queues.items()
            if queue.min_offset == queue.end == queue.next_offset and queue.end
        }

    def has_topic(self, topic: str) -> bool:
        """Whether any of its queues got a message in the topic's present life."""
        return any(queue.next_offset for queue in self._of_topic(topic))

    def first_position(self, topic: str) -> int | None:
        """No message of the topic is before this log position; None: it has none."""
        positions = [
            queue.min_position for queue in self._of_topic(topic) if queue.min_offset < queue.end
        ]
        return min(positions, default=None)

    # ------------------------------------------------------------------------------ topics' ends

    def retire(self, topic: str, position: int) -> list[ConsumeQueue]:
        """The topic has ended at this log position: its queues lose their names, except those with
        later messages. Pass them to `drop` once everything before the position is dispatched."""
        self.ended_topics.add(topic)
        retired = [queue for queue in self._of_topic(topic) if queue.physical_end <= position]
        for queue in retired:
            del self._queues[topic, queue.queue_id]
            self._queue_ids[topic].discard(queue.queue_id)
        if not self._queue_ids.get(topic, True):
            del self._queue_ids[topic]
        return retired

    def drop(self, queues: Iterable[ConsumeQueue]) -> None:
        """Remove retired queues."""
        for queue in queues:
            queue.is_gone = True
            self.tail_bytes -= len(queue.tail)
            queue.tail = b""
            self._dirty.pop(queue, None)
            self.damaged.pop((queue.topic, queue.queue_id), None)
            self._dropped.append(DroppedQueue(queue.topic, queue.queue_id, queue.number))

    # ------------------------------------------------------------------------------ growing

    def append(self, queue: ConsumeQueue, entries: bytes, count: int, physical_end: int) -> None:
        held = len(queue.tail)
        queue.append(entries, count, physical_end)
        self._dirty[queue] = self._write_outs
        self.tail_bytes += len(queue.tail) - held

    def begin_at(self, queue: ConsumeQueue, offset: int) -> None:
        """Let an empty queue begin; its first message has, or will have, `offset`.

        No file is written for the blank entries alone."""
        self.tail_bytes += queue.begin_at(offset) * ENTRY_SIZE
        self._dirty[queue] = self._write_outs

    # ------------------------------------------------------------------------------ files

    @property
    def has_unwritten(self) -> bool:
        """Whether any entry is only in memory, or files of dropped queues still exist."""
        return bool(self._dirty or self._dropped)

    @property
    def unwritten_from(self) -> int | None:
        """A lower bound of the log position of the oldest record whose entry is only in memory."""
        positions = (queue.tail_position for queue in self._dirty if queue.has_unwritten)
        return min(positions, default=None)

    def unwritten(self) -> list[ConsumeQueue]:
        """The queues with any entry that is only in memory."""
        return [queue for queue in self._dirty if queue.has_unwritten]

    def take_write_out(self) -> QueueWriteOut:
        """A checkpoint's work for the queues that changed; one at a time."""
        self._write_outs += 1
        writes = [queue.take_write() for queue in self._dirty]
        if not self._all_listed:
            writes += [
                queue.take_write()
                for queue in self._queues.values()
                if queue.end and queue not in self._dirty
            ]
        for write in writes:
            if write.queue.number < 0:
                write.queue.number = self._listed
                self._listed += 1
        return QueueWriteOut(self._files.disk, self._ends, writes, tuple(self._dropped))

    def finish_write_out(self, work: QueueWriteOut) -> None:
        """`work.run` returned."""
        self._all_listed = True
        self._finish_drops(work.dropped)
        self._finish_writes(work.writes)

    def spill(self) -> None:
        """Write all entries to the files synchronously, without the list: for recovery, which has
        more entries than memory. Blocks; raises OSError."""
        self._write_outs += 1
        writes = [queue.take_write() for queue in self._dirty]
        dropped = tuple(self._dropped)
        remove_dropped(self._files.disk, dropped)
        self._finish_drops(dropped)
        write_entries(self._files.disk, writes)
        self._finish_writes(writes)

    def _finish_drops(self, dropped: Sequence[DroppedQueue]) -> None:
        del self._dropped[: len(dropped)]
        for queue in dropped:
            self._files.forget_below(queue_directory(queue.topic, queue.queue_id))

    def _finish_writes(self, writes: Iterable[QueueWrite]) -> None:
        for write in writes:
            queue = write.queue
            if queue.is_gone:
                continue
            self.tail_bytes -= queue.finish_write(write)
            # Later changes are left to the next one: a queue that was trimmed meanwhile has nothing
            # unwritten, but begins elsewhere.
            changed_since = self._dirty.get(queue) == self._write_outs
            if not (queue.has_unwritten or changed_since):
                self._dirty.pop(queue, None)

    # ------------------------------------------------------------------------------ retention

    def take_trim(self, log_min_offset: int) -> QueueTrim:
        """The work that makes each queue begin at its first message still in the log; run it on the
        thread that runs checkpoints, then call `finish_trim`. Queues that already begin there are
        not part of it."""
        queues = self._beginning_below(log_min_offset)
        for queue in queues:
            queue.is_trimmed = True
        return QueueTrim(self._files.disk, log_min_offset, queues)

    def finish_trim(self, trim: QueueTrim) -> None:
        """`trim.run` returned."""
        for beginning in trim.beginnings:
            queue = beginning.queue
            if queue.is_gone:
                continue
            for path in beginning.removed:
                self._files.forget(path)
            if queue.damage:
                self.damaged[queue.topic, queue.queue_id] = queue.damage
            else:
                queue.begin_behind_trim(
                    beginning.new_first_offset,
                    beginning.new_min_offset,
                    # A queue that was empty has got messages since, and those were not considered.
                    beginning.new_min_position
                    if beginning.new_min_offset < beginning.end or beginning.end == queue.end
                    else -1,
                )
            queue.is_trimmed = False
            self._dirty[queue] = self._write_outs

    def correct_min_offsets(self, log_min_offset: int) -> None:
        """The same synchronously, for recovery; removes no files. Queues may turn out damaged."""
        queues = self._beginning_below(log_min_offset)
        trim = QueueTrim(self._files.disk, log_min_offset, queues, keep_files=True)
        trim.run()
        self.finish_trim(trim)

    def _beginning_below(self, log_min_offset: int) -> list[ConsumeQueue]:
        """Queues that have, or may have, a message below it."""
        return [
            queue
            for queue in self._queues.values()
            if queue.min_position < log_min_offset
            and (queue.min_offset < queue.end or queue.min_position < 0)
            and queue.end
        ]
