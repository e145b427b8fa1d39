"""Dispatch from the log's own bytes: when derived files lack records, and when the log is a copy.

What happens to a record in its queue, depending on the queue offset that it carries:

    ends in the log where the queue's last record does, or before    passed over: it is there
    the queue's end                                                  added
    0                                                                added: Apache compares no zero
    below the queue's end                                            passed over, with a warning
    beyond it, walked from the log's start                           added, with a warning; a queue
                                                                     without any entry begins there
    beyond it, walked from later on                                  left: the queue is incomplete

These are the rules of Apache's dispatch, except the last: what is missing there may be found by
starting at the log's start.

Where a topic ends its queues are dropped, unless they have later messages: these were completed
before, by a walk that went further.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from aerobee.runtime.errors import IllegalName
from aerobee.store.engine.log.log_walk import WalkedChunk
from aerobee.store.engine.queues.consume_queue import ConsumeQueue
from aerobee.store.engine.queues.queue_set import QueueName, QueueSet
from aerobee.store.engine.recovery.batch_topics import BatchTopics
from aerobee.store.engine.recovery.multi_dispatch import light_entries
from aerobee.store.format.checked_batch import UNQUEUED_BIT
from aerobee.store.format.consume_queue_entry import pack_entries
from aerobee.store.format.record import SYSFLAG_INNER_BATCH
from aerobee.store.format.scan import ScanResult
from aerobee.store.format.topic_end import TopicEnd, find_topic_ends

Int64Array = npt.NDArray[np.int64]
Indexes = npt.NDArray[np.intp]

_WARNINGS_MAX = 100


class QueuedRecords(NamedTuple):
    """Records of one queue, in log order."""

    positions: Int64Array
    sizes: Int64Array
    tags_codes: Int64Array
    offsets: Int64Array

    @property
    def ends(self) -> Int64Array:
        """The log position where each one ends."""
        return self.positions + self.sizes

    def part(self, which: slice) -> QueuedRecords:
        return QueuedRecords(
            self.positions[which], self.sizes[which], self.tags_codes[which], self.offsets[which]
        )

    def entries(self) -> bytes:
        """The concatenated consume queue entries."""
        return pack_entries(self.positions, self.sizes, self.tags_codes)


class RecordSink(Protocol):
    """Takes what comes next in a queue; on return its `next_offset` has grown accordingly."""

    def __call__(self, queue: ConsumeQueue, records: QueuedRecords) -> None: ...


class EndSink(Protocol):
    """A topic has ended: on return, its queues without later messages are new ones."""

    def __call__(self, end: TopicEnd) -> None: ...


class Replay:
    """Feeds chunks of the log to the queues.

    Queues that cannot be completed, because the walk began after their next message, are left alone
    and listed in `incomplete`.
    """

    def __init__(
        self,
        queues: QueueSet,
        batch_topics: BatchTopics,
        *,
        from_log_start: bool,
        known_end: int = 0,
        sink: RecordSink | None = None,
        end_sink: EndSink | None = None,
    ) -> None:
        """All records below `known_end` are in their queues, without checking each. Without sinks,
        records are added to their queues, and topics end, at once."""
        self._known_end = known_end
        self._queues = queues
        self._batch_topics = batch_topics
        self._sink = sink or self._append
        self._end_sink = end_sink or self._end_topic
        self.from_log_start = from_log_start
        self.dispatched = 0
        self.incomplete: dict[QueueName, None] = {}
        self.warnings: list[str] = []
        self.misplaced = 0
        """Records that did not continue where their queue ended."""

    def feed(self, chunk: WalkedChunk) -> None:
        """Dispatch the chunk's records."""
        if chunk.position + chunk.result.valid_end <= self._known_end:
            return
        chosen = self._queued(chunk.result, chunk.position)
        for end in find_topic_ends(chunk.result, chunk.data, chunk.position):
            if end.position >= self._known_end:
                before = int(np.searchsorted(chosen, end.number))
                self._feed(chunk, chosen[:before])
                chosen = chosen[before:]
                self._end_sink(end)
                for name in [name for name in self.incomplete if name[0] == end.topic]:
                    del self.incomplete[name]
        self._feed(chunk, chosen)

    def _feed(self, chunk: WalkedChunk, chosen: Indexes) -> None:
        for topic, queue_id, indexes, offsets in _by_queue(chunk, chosen):
            name = topic, queue_id
            if name in self.incomplete:
                continue
            try:
                queue = self._queues.get_or_create(*name)
            except IllegalName as error:
                self._warn(str(error))
                continue
            result = chunk.result
            records = QueuedRecords(
                result.positions[indexes] + chunk.position,
                result.sizes[indexes],
                result.tags_codes[indexes],
                offsets,
            )
            if not self._dispatch(queue, records):
                self.incomplete[name] = None

    def _queued(self, result: ScanResult, position: int) -> Indexes:
        """Which records have a place in a consume queue that may not have them yet."""
        queued = (result.sys_flags & UNQUEUED_BIT) == 0
        queued &= result.positions >= self._known_end - position
        inner = np.flatnonzero(queued & ((result.sys_flags & SYSFLAG_INNER_BATCH) != 0))
        for index in inner.tolist():
            if result.topic_table[result.topic_codes[index]] in self._batch_topics:
                queued[index] = False
        return np.flatnonzero(queued)

    def _dispatch(self, queue: ConsumeQueue, records: QueuedRecords) -> bool:
        """False if the queue lacks messages before some of these."""
        known = int(np.searchsorted(records.ends, queue.physical_end, side="right"))
        records = records.part(slice(known, None))
        count = len(records.offsets)
        if count == 0:
            return True
        first = int(records.offsets[0])
        if queue.next_offset == 0 and first > 0 and self.from_log_start:
            self._queues.begin_at(queue, first)
        if np.array_equal(records.offsets, np.arange(queue.next_offset, queue.next_offset + count)):
            self._add(queue, records)
            return True
        for index, offset in enumerate(records.offsets.tolist()):
            if offset > queue.next_offset:
                if not self.from_log_start:
                    return False
                self.misplaced += 1
                self._warn(
                    f"{queue!r} continues with offset {offset}: records in between are missing"
                )
            elif 0 < offset < queue.next_offset:
                self.misplaced += 1
                self._warn(f"{queue!r} has a second record with offset {offset}: skipped")
                continue
            self._add(queue, records.part(slice(index, index + 1)))
        return True

    def _add(self, queue: ConsumeQueue, records: QueuedRecords) -> None:
        self._sink(queue, records)
        self.dispatched += len(records.positions)

    def _append(self, queue: ConsumeQueue, records: QueuedRecords) -> None:
        count = len(records.positions)
        self._queues.append(queue, records.entries(), count, int(records.ends[-1]))

    def _end_topic(self, end: TopicEnd) -> None:
        self._queues.drop(self._queues.retire(end.topic, end.position))

    def _warn(self, warning: str) -> None:
        if len(self.warnings) < _WARNINGS_MAX:
            self.warnings.append(warning)


def _by_queue(
    chunk: WalkedChunk, chosen: Indexes
) -> Iterator[tuple[str, int, Indexes, Int64Array]]:
    """(topic, queue id, indexes in log order, queue offsets) of the chosen records."""
    if not len(chosen):
        return
    result = chunk.result
    keys = (result.topic_codes[chosen] << 32) | (result.queue_ids[chosen] & 0xFFFF_FFFF)
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
    for indexes in np.split(chosen[order], starts[1:]):
        topic = result.topic_table[result.topic_codes[indexes[0]]]
        yield topic, int(result.queue_ids[indexes[0]]), indexes, result.queue_offsets[indexes]
    yield from light_entries(chunk, chosen.tolist())
