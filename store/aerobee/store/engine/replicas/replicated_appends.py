"""Appends to a log that is a copy of a master's: the same bytes at the same places.

Owns: bytes received from the master's log and not stored yet. Only complete records are stored, and
a blank record together with the record after it; so the log always ends at the end of a record,
like the master's, and the next start finds that end again. Segments begin where the master's do.

Derived data takes the path of all appends: entries and keys wait in the dispatcher until they are
confirmed. A queue's next offset counts all that is stored, so that this broker can become master at
any moment.
"""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.runtime.errors import NotWritable, ReplicationGap, StoreFailed
from aerobee.store.engine.admission import Admission
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.dispatcher import Dispatcher
from aerobee.store.engine.flush_ledger import FlushLedger
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.engine.log.log_walk import WalkedChunk
from aerobee.store.engine.producers.producer_windows import ProducerWindows
from aerobee.store.engine.queues.consume_queue import ConsumeQueue
from aerobee.store.engine.queues.queue_set import QueueName, QueueSet
from aerobee.store.engine.recovery.batch_topics import BatchTopics
from aerobee.store.engine.recovery.replay import QueuedRecords, Replay
from aerobee.store.engine.replicas.log_bytes import LogBytes, WholeRecords
from aerobee.store.engine.replicas.scanned_chunk import (
    EndedQueues,
    QueueRun,
    ScannedChunk,
    scanned_keys,
)
from aerobee.store.engine.statistics import AppendCounters
from aerobee.store.format.tags import TagsCodes
from aerobee.store.format.topic_end import TopicEnd, find_topic_ends


class ReplicatedAppends:
    """Loop thread only."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        *,
        log: CommitLog,
        queues: QueueSet,
        windows: ProducerWindows,
        dispatcher: Dispatcher,
        ledger: FlushLedger,
        admission: Admission,
        counters: AppendCounters,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._windows = windows
        self._dispatcher = dispatcher
        self._ledger = ledger
        self._admission = admission
        self._counters = counters
        self._tags = TagsCodes(delays_ms=config.delay_levels_ms)
        # All that the log has of a queue is in the queue or waits to be.
        self._replay = Replay(
            queues,
            BatchTopics(disk),
            from_log_start=True,
            sink=self._take,
            end_sink=self._take_end,
        )
        self._runs: list[QueueRun] = []
        self._ended: list[EndedQueues] = []
        self._bytes: LogBytes | None = None

    # ------------------------------------------------------------------------------ the bytes

    @property
    def received_end(self) -> int:
        """How far the master's log was received; what is past the log's end is in memory."""
        return self._log.end if self._bytes is None else self._bytes.received_end

    def begin(self) -> int:
        """A stream begins: drop what was received and not stored. Returns the position from which
        the master must send, which is the log's end."""
        self._bytes = None
        self._queues.ended_topics.clear()
        return self._log.end

    def append(self, position: int, data: bytes) -> int:
        """Store the records completed by `data`, which continues at `received_end`. Returns the
        log's end: all before it is stored, in the page cache. Nothing of a refused piece is stored.

        Raises:
            Busy: nothing was taken; the same call may be repeated.
            ReplicationGap: `position` is not `received_end`; nothing was taken.
            CorruptFrame: these are not records of that position of a log.
            NotWritable, ShuttingDown: the log may have grown. After this error or the previous one
                the stream must restart.
            StoreFailed: the disk failed; whether the bytes are there is unknown.
        """
        log = self._log
        unflushed = log.end - self._ledger.flushed_end
        if not self.has_room(len(data)):
            self._admission.refuse(unflushed, len(data))
        if position != self.received_end:
            raise ReplicationGap(
                f"bytes at {position} do not follow the log's end at {self.received_end}; "
                "joining again"
            )
        if self._bytes is None:
            self._bytes = LogBytes(self._config.segment_bytes, self._tags, position)
        try:
            for whole in self._bytes.feed(data):
                self._store(whole)
        except BaseException:
            self._bytes = None
            raise
        return log.end

    def has_room(self, size: int) -> bool:
        """Whether `append` would take this many bytes now, as far as is known."""
        unflushed = self._log.end - self._ledger.flushed_end
        is_flushed = unflushed + size <= self._config.unflushed_bytes_max
        return self._admission.writable and is_flushed

    def _store(self, whole: WholeRecords) -> None:
        log = self._log
        position, data, result = whole
        timestamp_ms = max(int(result.store_timestamps.max()), log.store_timestamp_ms)
        try:
            if position == log.room_end:
                log.roll()
            assert position == log.end, "bytes follow the log's end"
            log.write(memoryview(data)[: result.valid_end], timestamp_ms)
        except NotWritable as error:
            self._admission.allocation_failed(str(error))
            raise
        except OSError as error:
            self._admission.fail(error)
            raise StoreFailed(f"writing the commit log failed: {error}") from error
        self._windows.feed(result, ends=find_topic_ends(result, data, position))
        self._replay.feed(WalkedChunk(position, result, data))
        runs, self._runs = self._runs, []
        ended, self._ended = self._ended, []
        keys = scanned_keys(result, data, position) if self._config.index_enabled else ()
        ends = result.positions + result.sizes + position
        self._dispatcher.submit_chunk(
            ScannedChunk(ends, result.store_timestamps, runs, keys, ended)
        )
        self._counters.add(result.count, result.valid_end)

    def _take(self, queue: ConsumeQueue, records: QueuedRecords) -> None:
        queue.next_offset += len(records.positions)
        self._runs.append(QueueRun(queue, records.entries(), records.ends))

    def _take_end(self, end: TopicEnd) -> None:
        queues = self._queues.retire(end.topic, end.position)
        self._ended.append(EndedQueues(end.end, queues))

    @property
    def misplaced_records(self) -> int:
        """Copied records that did not continue where their queue ended."""
        return self._replay.misplaced

    def take_warnings(self) -> list[str]:
        """What was odd about intact records since the last call."""
        if not self._replay.warnings:
            return []
        warnings, self._replay.warnings = self._replay.warnings, []
        return warnings

    # ------------------------------------------------------------------------------ queues

    def begin_queues(self, next_offsets: Mapping[QueueName, int]) -> None:
        """Let queues without messages here continue counting where the master's do, whose messages
        were all removed: see `QueueSet.emptied`. Others are left unchanged, as are those of topics
        that have ended since the master sent this."""
        for (topic, queue_id), next_offset in next_offsets.items():
            if topic in self._queues.ended_topics:
                continue
            queue = self._queues.get_or_create(topic, queue_id)
            if queue.next_offset == 0 and next_offset:
                self._queues.begin_at(queue, next_offset)
