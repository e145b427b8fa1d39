"""What a checkpoint does for the queues: their entries to the files, then the list of their ends.
Files of deleted topics' queues go first, for new ones may have their names.

Taken on the loop, where it costs a copy of what changed; run on another thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aerobee.broker.store.disk import Disk
from aerobee.broker.store.errors import QueueDamaged
from aerobee.broker.store.queues.consume_queue import QueueWrite
from aerobee.broker.store.queues.queue_ends import QueueEnd, QueueEndsFile
from aerobee.broker.store.queues.queue_files import write_entries
from aerobee.broker.store.queues.queue_repair import remove_queue_files
from aerobee.store_format.checkpoint import Checkpoint
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE


class DroppedQueue(NamedTuple):
    """A queue that is gone; `number` is its place in the list, -1 if it has none."""

    topic: str
    queue_id: int
    number: int = -1


def remove_dropped(disk: Disk, dropped: Sequence[DroppedQueue]) -> None:
    """Remove the files of dropped queues, durably. May be repeated. Raises OSError."""
    for topic, queue_id in dict.fromkeys((queue.topic, queue.queue_id) for queue in dropped):
        remove_queue_files(disk, topic, queue_id)


class QueueWriteOut:
    """Made by `QueueSet.take_write_out`, handed back to `finish_write_out` once it ran."""

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
        """[one thread at a time] All of it durable, but for the name of the list in the root; to be
        followed by `checkpoint`. May be repeated after an error. Raises OSError."""
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
