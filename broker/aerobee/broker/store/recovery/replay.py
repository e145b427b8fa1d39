"""Dispatch from the log's own bytes: what recovery uses where derived files lag behind.

The rules are those of the format: an entry that a queue already has is passed over by its physical
offset; an empty queue begins at its first message's offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from aerobee.broker.store.log.log_walk import WalkedChunk
from aerobee.broker.store.queues.consume_queue import ConsumeQueue
from aerobee.broker.store.queues.queue_set import QueueName, QueueSet
from aerobee.runtime.errors import IllegalName
from aerobee.store_format.checked_batch import UNQUEUED_BIT
from aerobee.store_format.consume_queue_entry import pack_entries

Int64Array = npt.NDArray[np.int64]


class Replay:
    """Feeds chunks of the log to the queues.

    While `from_log_start` is false the walk began somewhere behind the log's first record. Then a
    queue whose next message is missing cannot be completed: it is left alone and listed in
    `incomplete`, and must be built again from the start of the log.
    """

    def __init__(self, queues: QueueSet, *, from_log_start: bool) -> None:
        self._queues = queues
        self.from_log_start = from_log_start
        self.dispatched = 0
        self.incomplete: dict[QueueName, None] = {}
        self.warnings: list[str] = []

    def feed(self, chunk: WalkedChunk) -> None:
        """Dispatch the chunk's records."""
        result = chunk.result
        chosen = np.flatnonzero((result.sys_flags & UNQUEUED_BIT) == 0)
        for topic_code, queue_id, indexes in _by_queue(
            result.topic_codes, result.queue_ids, chosen
        ):
            topic = result.topic_table[topic_code]
            try:
                queue = self._queues.get_or_create(topic, queue_id)
            except IllegalName as error:
                self._warn(str(error))
                continue
            self._feed_queue(
                queue,
                result.positions[indexes] + chunk.position,
                result.sizes[indexes],
                result.tags_codes[indexes],
                result.queue_offsets[indexes],
            )

    def _feed_queue(
        self,
        queue: ConsumeQueue,
        positions: Int64Array,
        sizes: Int64Array,
        tags_codes: Int64Array,
        offsets: Int64Array,
    ) -> None:
        known = int(np.searchsorted(positions + sizes, queue.physical_end, side="right"))
        if known == len(positions) or (queue.topic, queue.queue_id) in self.incomplete:
            return
        positions, sizes = positions[known:], sizes[known:]
        tags_codes, offsets = tags_codes[known:], offsets[known:]
        if queue.end == 0 and offsets[0] != 0:
            if not self.from_log_start:
                self.incomplete[queue.topic, queue.queue_id] = None
                return
            self._queues.begin_at(queue, int(offsets[0]))
        if np.array_equal(offsets, np.arange(queue.end, queue.end + len(offsets))):
            self._append(queue, positions, sizes, tags_codes)
            return
        for index in range(len(offsets)):
            if not self._fits(queue, int(offsets[index])):
                continue
            if (queue.topic, queue.queue_id) in self.incomplete:
                return
            one = slice(index, index + 1)
            self._append(queue, positions[one], sizes[one], tags_codes[one])

    def _fits(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether a record of this queue offset is to be added, as Apache's dispatch decides."""
        if offset == queue.end or offset == 0:
            return True
        if offset < queue.end:
            self._warn(f"{queue!r} has a second record with offset {offset}: passed over")
            return False
        if not self.from_log_start:
            self.incomplete[queue.topic, queue.queue_id] = None
        else:
            self._warn(f"{queue!r} goes on with offset {offset}: records between are missing")
        return True

    def _append(
        self, queue: ConsumeQueue, positions: Int64Array, sizes: Int64Array, codes: Int64Array
    ) -> None:
        physical_end = int(positions[-1] + sizes[-1])
        entries = pack_entries(positions, sizes, codes)
        self._queues.append(queue, entries, len(positions), physical_end)
        self.dispatched += len(positions)

    def _warn(self, warning: str) -> None:
        if len(self.warnings) < 100:
            self.warnings.append(warning)


def _by_queue(
    topic_codes: Int64Array, queue_ids: Int64Array, chosen: npt.NDArray[np.intp]
) -> Iterator[tuple[int, int, npt.NDArray[np.intp]]]:
    """The chosen records of each (topic code, queue id), in log order."""
    if not len(chosen):
        return
    keys = (topic_codes[chosen] << 32) | (queue_ids[chosen] & 0xFFFF_FFFF)
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
    for indexes in np.split(chosen[order], starts[1:]):
        first = int(indexes[0])
        yield int(topic_codes[first]), int(queue_ids[first]), indexes
