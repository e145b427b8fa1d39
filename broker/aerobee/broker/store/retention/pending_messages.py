"""Half messages of Apache's broker that nobody committed or rolled back; retention keeps them.

This broker does not answer them, and lets no client send to their topic: what is found once stays
so until the folder is opened again. Where it cannot be read who was answered, everything counts as
waiting.

Taken on the loop with copies of what it needs of the queues, run on another thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from aerobee.broker.store.disk import Disk, DiskFile
from aerobee.broker.store.errors import StoreUnusable
from aerobee.broker.store.log.commit_log import CommitLog
from aerobee.broker.store.log.segment import segment_path
from aerobee.broker.store.queues.consume_queue import ConsumeQueue, EntriesRead
from aerobee.broker.store.queues.queue_set import QueueSet
from aerobee.broker.store.retention.unread_search import QueueReaders
from aerobee.runtime.errors import MqError
from aerobee.store_format.consume_queue_entry import unpack_entries
from aerobee.store_format.properties import PropertyName
from aerobee.store_format.record_layout import RecordCorrupt
from aerobee.store_format.record_view import Record

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECKS_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Its offsets say how far Apache's broker has checked transactions."""

_OP_TAG: Final = "d"
_ENTRIES_PER_READ: Final = 65_536
_FIRST_READ_BYTES: Final = 4_096
_RECORD_BYTES_MAX: Final = 64 * 1024 * 1024

Committed = Callable[[str, int], int]
"""(topic, queue id) -> the offset that the group of the checks has committed, or 0."""
Entry = tuple[int, int, int]
"""Queue offset, position in the log, size."""


class PendingSearch:
    """Looks once; `found` has a reader for each queue in which anything waits."""

    def __init__(self, disk: Disk, queues: QueueSet, log: CommitLog, committed: Committed) -> None:
        self._log = _LogReader(disk, [segment.base for segment in log.segments()])
        self._disk = disk
        names = (HALF_TOPIC, OP_TOPIC)
        self._queues = {
            (queue.topic, queue.queue_id): _Queue(disk, queue)
            for queue in queues
            if queue.topic in names and queue.min_offset < queue.end
        }
        self._committed = {name: committed(*name) for name in self._queues}
        self.found: list[QueueReaders] = []

    def run(self) -> None:
        """[any thread]"""
        try:
            for topic, queue_id in self._queues:
                if topic == HALF_TOPIC:
                    self._find("half messages", topic, queue_id, self._halves(queue_id))
        finally:
            self._log.close()

    def _find(self, kind: str, topic: str, queue_id: int, oldest: Callable[[], int | None]) -> None:
        """`oldest` tells the queue offset of the first message that waits, None for none."""
        queue = self._queues[topic, queue_id]
        try:
            offset = oldest()
        except (OSError, MqError, StoreUnusable):
            offset = queue.min_offset
        if offset is not None and offset < queue.end:
            self.found.append(QueueReaders(topic, queue_id, {kind: offset}))

    # ------------------------------------------------------------------------------ transactions

    def _halves(self, queue_id: int) -> Callable[[], int | None]:
        def oldest() -> int | None:
            queue = self._queues[HALF_TOPIC, queue_id]
            first = self._committed[HALF_TOPIC, queue_id]
            answered = self._answered(queue_id)
            # Before it is asked for, a half message is stored once more; that copy counts.
            latest: dict[str, int] = {}
            for offset, position, _ in queue.entries(first):
                record = self._log.record_at(position)
                if record is not None and record.unique_key and _is_copy(record):
                    latest[record.unique_key] = offset
            for offset, position, _ in queue.entries(first):
                record = self._log.record_at(position)
                key = None if record is None else record.unique_key
                is_superseded = key is not None and latest.get(key, offset) > offset
                if offset not in answered and not is_superseded:
                    return offset
            return None

        return oldest

    def _answered(self, queue_id: int) -> set[int]:
        """Offsets of half messages that were committed or rolled back."""
        queue = self._queues.get((OP_TOPIC, queue_id))
        answered: set[int] = set()
        if queue is None:
            return answered
        for _, position, _ in queue.entries(self._committed[OP_TOPIC, queue_id]):
            record = self._log.record_at(position)
            if record is not None and record.tag == _OP_TAG:
                words = record.body.split(b",")
                answered.update(int(word) for word in words if word.isdigit())
        return answered


def _is_copy(record: Record) -> bool:
    return record.property_value(PropertyName.TRANSACTION_CHECK_TIMES) is not None


class _Queue:
    """The entries of one queue as they were when the search was taken."""

    def __init__(self, disk: Disk, queue: ConsumeQueue) -> None:
        self.min_offset = queue.min_offset
        self.end = queue.end
        starts = range(queue.min_offset, queue.end, _ENTRIES_PER_READ)
        self._reads: list[tuple[int, EntriesRead]] = [
            (start, queue.plan_read(disk, start, _ENTRIES_PER_READ)) for start in starts
        ]

    def entries(self, first: int) -> Iterator[Entry]:
        """From an offset on. Raises QueueDamaged, OSError."""
        for start, read in self._reads:
            if start + _ENTRIES_PER_READ > first:
                positions, sizes, _ = unpack_entries(read.run())
                offsets = range(start, start + len(positions))
                for entry in zip(offsets, positions.tolist(), sizes.tolist(), strict=True):
                    if entry[0] >= first:
                        yield entry


class _LogReader:
    """Single records of the log, off the loop."""

    def __init__(self, disk: Disk, bases: list[int]) -> None:
        self._disk = disk
        self._bases = bases
        self._base = -1
        self._file: DiskFile | None = None

    @property
    def begin(self) -> int:
        return self._bases[0]

    def record_at(self, position: int) -> Record | None:
        """None for bytes that are no record, and for a place before the log. Raises OSError."""
        index = bisect_right(self._bases, position) - 1
        if index < 0:
            return None
        base = self._bases[index]
        if self._file is None or base != self._base:
            self.close()
            self._file = self._disk.open_file(segment_path(base), read_only=True)
            self._base = base
        at = position - base
        data = self._file.read_at(at, _FIRST_READ_BYTES)
        size = int.from_bytes(data[:4], "big")
        if _FIRST_READ_BYTES < size <= _RECORD_BYTES_MAX:
            data = self._file.read_at(at, size)
        try:
            return Record(data)
        except RecordCorrupt:
            return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
