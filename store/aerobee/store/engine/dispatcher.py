"""From the log to the consume queues and the key index, in log order.

Owns: what was appended and not yet dispatched. Records reach their queues only once the caller says
that they are confirmed; entries and keys were computed on append, so nothing is read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from aerobee.store.engine.index.key_index import KeyIndex
from aerobee.store.engine.queues.consume_queue import ConsumeQueue
from aerobee.store.engine.queues.queue_set import QueueName, QueueSet
from aerobee.store.engine.replicas.scanned_chunk import EndedQueues, ScannedChunk
from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.index_unhashed import LooseRecord, UnhashedKeys


class Pending(NamedTuple):
    """One appended batch. Records without a queue entry (half and rollback) may leave it empty."""

    end: int
    queue: ConsumeQueue
    entries: bytes
    queued_count: int
    store_timestamp_ms: int
    keys: IndexKeys | UnhashedKeys | Sequence[LooseRecord]


class Dispatcher:
    """Loop thread only."""

    def __init__(
        self, queues: QueueSet, index: KeyIndex, *, end: int, store_timestamp_ms: int
    ) -> None:
        self._queues = queues
        self._index = index
        self._pending: deque[Pending | ScannedChunk | EndedQueues] = deque()
        self._listeners: list[Callable[[Iterable[QueueName]], None]] = []
        self.end = end
        # Time of the last record dispatched.
        self.store_timestamp_ms = store_timestamp_ms

    def on_grown(self, told: Callable[[Iterable[QueueName]], None]) -> None:
        """After each dispatch, calls `told` with the queues that grew, each once."""
        self._listeners.append(told)

    def submit(self, pending: Pending) -> None:
        """A batch was appended; call in log order."""
        self._pending.append(pending)

    def submit_end(self, ended: EndedQueues) -> None:
        """Call after the batch that ended them."""
        self._pending.append(ended)

    def submit_chunk(self, chunk: ScannedChunk) -> None:
        """The same for records that came as bytes; they may be confirmed one by one."""
        self._pending.append(chunk)

    def pending_entries(self, queue: ConsumeQueue) -> bytes:
        """Concatenated entries of what was appended to a queue and is not dispatched yet."""
        found: list[bytes] = []
        for pending in self._pending:
            if isinstance(pending, ScannedChunk):
                found += [run.entries for run in pending.runs if run.queue is queue]
            elif isinstance(pending, Pending) and pending.queue is queue:
                found.append(pending.entries)
        return b"".join(found)

    def dispatch(self, confirmed_end: int) -> None:
        """Let the queues grow up to `confirmed_end`, and notify the listeners."""
        pending = self._pending
        grown: dict[QueueName, None] = {}
        while pending and pending[0].end <= confirmed_end:
            first = pending.popleft()
            if isinstance(first, ScannedChunk):
                self._dispatch_chunk(first, grown)
                continue
            if isinstance(first, EndedQueues):
                self._queues.drop(first.queues)
                continue
            end, queue, entries, count, store_timestamp_ms, keys = first
            if count:
                assert queue.end + count <= queue.next_offset
                self._queues.append(queue, entries, count, end)
                grown[queue.topic, queue.queue_id] = None
            self._index.add(keys, end)
            self.end = end
            self.store_timestamp_ms = store_timestamp_ms
        if pending and isinstance(pending[0], ScannedChunk):
            divided = pending[0].divide(confirmed_end)
            if divided is not None:
                self._dispatch_chunk(divided[0], grown)
                pending[0] = divided[1]
        if grown:
            for told in self._listeners:
                told(grown)

    def _dispatch_chunk(self, chunk: ScannedChunk, grown: dict[QueueName, None]) -> None:
        for queue, entries, ends in chunk.runs:
            assert queue.end + len(ends) <= queue.next_offset
            self._queues.append(queue, entries, len(ends), int(ends[-1]))
            grown[queue.topic, queue.queue_id] = None
        for ended in chunk.ended:
            self._queues.drop(ended.queues)
        self.end = chunk.end
        self._index.add(chunk.keys, self.end)
        self.store_timestamp_ms = max(self.store_timestamp_ms, chunk.store_timestamp_ms)
