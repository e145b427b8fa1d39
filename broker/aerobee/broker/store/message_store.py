"""The store as the broker uses it: open, append, read, flush, close.

Owns: the watermarks of the log.

    dispatched_end <= confirmed_end <= appended_end,  flushed_end <= appended_end

Appended bytes are in the page cache; flushed ones on the disk. Consumers see what is dispatched,
and dispatch goes as far as the caller confirms: to `appended_end` under ASYNC_FLUSH, to
`flushed_end` under SYNC_FLUSH. Everything is called on one thread, the loop; methods marked [any
thread] excepted. After the first failed write or fsync nothing is promised any more: whoever
appends, flushes or reads gets StoreFailed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

from aerobee.broker.store.admission import Admission
from aerobee.broker.store.append_path import AppendPath
from aerobee.broker.store.appended import Appended
from aerobee.broker.store.config import StoreConfig
from aerobee.broker.store.disk import Disk, DiskLock
from aerobee.broker.store.dispatcher import Dispatcher
from aerobee.broker.store.errors import StoreUnusable
from aerobee.broker.store.flush_ledger import FlushLedger
from aerobee.broker.store.flush_work import CheckpointWork, FlushWork
from aerobee.broker.store.index.message_query import MessageQuery, QueryWanted
from aerobee.broker.store.log.preallocation import remove_strays
from aerobee.broker.store.log.segment import SegmentInfo
from aerobee.broker.store.log.segment_supply import SegmentSupply
from aerobee.broker.store.opening import lock_store, mark_closed, mark_running
from aerobee.broker.store.producers.producers import Producers
from aerobee.broker.store.queue_reads import QueueRead, QueueReads
from aerobee.broker.store.queues.queue_bounds import QueueBounds
from aerobee.broker.store.queues.queue_set import QueueName
from aerobee.broker.store.queues.reading import Filter, Located
from aerobee.broker.store.queues.surveys import Surveys
from aerobee.broker.store.queues.time_search import Boundary, TimeSearch
from aerobee.broker.store.recovery.recover import Recovered, recover
from aerobee.broker.store.replicas.closed_log import complete_begin
from aerobee.broker.store.replicas.replicated_appends import ReplicatedAppends
from aerobee.broker.store.retention.retention_ledger import Retained, RetentionLedger
from aerobee.broker.store.statistics import RecoveryProgress, StoreState, StoreStatistics
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import StoreFailed
from aerobee.store_format.checked_batch import CheckedBatch

__all__ = ["Appended", "MessageStore"]


class MessageStore:
    """See the module. Made by `open`."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config: StoreConfig,
        recovered: Recovered,
        lock: DiskLock | None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._config = config
        self._lock = lock
        self._files = recovered.files
        self._log = recovered.log
        self._queues = recovered.queues
        self.index = recovered.index
        self.recovery = recovered.report
        self._admission = Admission(clock, config, read_only=lock is None)
        self._dispatcher = Dispatcher(
            self._queues,
            self.index,
            end=self._log.end,
            store_timestamp_ms=self._log.store_timestamp_ms,
        )
        self._ledger = FlushLedger(
            disk,
            clock,
            config,
            log=self._log,
            queues=self._queues,
            index=self.index,
            windows=recovered.windows,
            dispatcher=self._dispatcher,
            admission=self._admission,
            checkpoint=recovered.checkpoint,
        )
        retained = Retained(self._log, self._queues, self._dispatcher, self._ledger, self.index)
        self.retention = RetentionLedger(disk, clock, config.retention, retained)
        self.supply = SegmentSupply(clock, config, log=self._log, admission=self._admission)
        self.reads = QueueReads(
            clock,
            config,
            self._files,
            log=self._log,
            queues=self._queues,
            admission=self._admission,
        )
        self.surveys = Surveys(disk, self._log, self._queues)
        self.producers = Producers.of(recovered, self._dispatcher)
        self._appends = AppendPath(
            clock,
            config,
            log=self._log,
            queues=self._queues,
            windows=recovered.windows,
            dispatcher=self._dispatcher,
            ledger=self._ledger,
            admission=self._admission,
        )
        self.replicated = ReplicatedAppends(
            disk,
            config,
            log=self._log,
            queues=self._queues,
            windows=recovered.windows,
            dispatcher=self._dispatcher,
            ledger=self._ledger,
            admission=self._admission,
            counters=self._appends.counters,
        )

    def __repr__(self) -> str:
        return f"MessageStore({self.state}, {self._log!r}, {len(self._queues)} queues)"

    # ------------------------------------------------------------------------------ life

    @classmethod
    def open(
        cls,
        disk: Disk,
        clock: Clock,
        config: StoreConfig,
        *,
        on_progress: Callable[[RecoveryProgress], None] = lambda _: None,
        read_only: bool = False,
    ) -> Self:
        """Lock the folder, recover it, and make it ready for appends. Blocks.

        With `read_only` nothing is locked or written: what recovery would repair is repaired in
        memory, also while a broker uses the folder.

        Raises:
            StoreLocked: another process uses it.
            StoreDamaged: a record that was safely on disk is not whole any more.
            StoreUnusable: files of a wrong length or name, or a folder that cannot be written.
        """
        lock = None if read_only else lock_store(disk)
        try:
            if lock is not None:
                remove_strays(disk)
                complete_begin(disk, config, lambda: on_progress(RecoveryProgress(0, 0)))
            recovered = recover(disk, clock, config, on_progress=on_progress, read_only=read_only)
            store = cls(disk, clock, config, recovered, lock)
            if lock is not None:
                mark_running(disk)
                # So that what recovery did need not be done again.
                store._ledger.settle()
                store.retention.measure_here()
        except BaseException as error:
            if lock is not None:
                lock.release()
            if isinstance(error, OSError):
                raise StoreUnusable(f"{disk} cannot be opened: {error}") from error
            raise
        return store

    def refuse_appends(self) -> None:
        """The first step of a stop: from now on appends raise ShuttingDown."""
        self._admission.close()

    def close(self) -> None:
        """Flush everything, write the checkpoint, mark the stop as clean, release the lock. Blocks.

        No work of this store may be running on another thread any more. After a failure only the
        lock is released, so that the next start recovers. Calling it again does nothing. Raises
        StoreFailed.
        """
        self._admission.close()
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if not self._admission.has_failed:
                self._close_cleanly()
        except OSError as error:
            self.fail(error)
            raise StoreFailed(f"the store could not be closed cleanly: {error}") from error
        finally:
            self._files.clear()
            lock.release()

    def _close_cleanly(self) -> None:
        self._ledger.flush_now()
        # What is on the disk is confirmed as far as this machine can; it goes to the queues.
        self.confirm(self._log.end)
        self._ledger.flush_now()
        self._log.spares.drop_all()
        is_written = not (self._queues.has_unwritten or self.index.has_unwritten)
        if self._dispatcher.end == self._log.end and is_written:
            mark_closed(self._disk)

    def fail(self, error: BaseException) -> None:
        """A write or fsync failed: from now on calls raise StoreFailed. Never undone."""
        self._admission.fail(error)

    @property
    def state(self) -> StoreState:
        return self._admission.state

    # ------------------------------------------------------------------------------ appending

    @property
    def appended_end(self) -> int:
        return self._log.end

    @property
    def flushed_end(self) -> int:
        return self._ledger.flushed_end

    @property
    def confirmed_end(self) -> int:
        return self._appends.confirmed_end

    @property
    def dispatched_end(self) -> int:
        return self._dispatcher.end

    @property
    def min_offset(self) -> int:
        """The first byte of the log that is still there."""
        return self._log.min_offset

    @property
    def unflushed_bytes(self) -> int:
        return self._log.end - self._ledger.flushed_end

    def append(
        self, batch: CheckedBatch, *, queue_id: int, reserve: bool = False, ends_topic: str = ""
    ) -> Appended:
        """Stamp the batch and write it to the log: all of it or nothing. In the page cache then.

        `reserve`: taken also on a disk that is too full for messages, as far as there is room;
        for what is little, and needed so that space can be freed at all. `ends_topic`: the batch is
        one record with the properties of `topic_end_properties`; the topic is empty from there on.

        Raises:
            ShuttingDown, NotWritable, Busy: nothing was stored; later it may work.
            MessageTooLarge: no segment can hold the batch.
            IllegalName: the topic cannot be a folder.
            StoreFailed: the disk failed; whether the bytes are there is unknown.
        """
        return self._appends.append(batch, queue_id, reserve=reserve, ends_topic=ends_topic)

    def confirm(self, end: int) -> None:
        """Let consumers see everything up to `end`. Raises StoreFailed."""
        self._appends.confirm(end)

    def on_grown(self, told: Callable[[Iterable[QueueName]], None]) -> None:
        """Tell `told`, from now on, which queues grew whenever more is confirmed, each once."""
        self._dispatcher.on_grown(told)

    # ------------------------------------------------------------------------------ flushing

    @property
    def checkpoint_due(self) -> bool:
        """Whether the next flush will carry a checkpoint."""
        return self._lock is not None and self._ledger.is_checkpoint_due()

    def take_flush_work(self) -> FlushWork | None:
        """What is unflushed now; None if nothing is, or while a flush is under way.

        Its `checkpoint`, if any, is to be run after it. Raises StoreFailed.
        """
        self._admission.check_not_failed()
        return None if self._lock is None else self._ledger.take_flush()

    def finish_flush(self, work: FlushWork) -> None:
        """`work.run` returned: the log is on the disk up to its end."""
        self._ledger.finish_flush(work)

    def finish_checkpoint(self, work: CheckpointWork) -> None:
        """`work.run` returned. If the disk was full the entries stay in memory for the next one."""
        self._ledger.finish_checkpoint(work)

    # ------------------------------------------------------------------------------ reading

    def queue_bounds(self, topic: str, queue_id: int) -> QueueBounds:
        """Minimum and maximum offset; zeros for an unknown queue."""
        queue = self._queues.get(topic, queue_id)
        return QueueBounds(0, 0) if queue is None else queue.bounds

    def queue_names(self) -> list[QueueName]:
        """Every (topic, queue id) with at least one entry ever, sorted."""
        return self._queues.names()

    def locate(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        filter: Filter | None = None,
    ) -> Located:
        """Where the messages from `offset` on lie in the log; asks the consume queue only. May wait
        for the disk, which `reads` never does.

        Of `filter` only the cheap answer is asked. Raises StoreFailed.
        """
        wanted = QueueRead(topic, queue_id, offset, max_bytes, max_messages, filter)
        return self.reads.locate(wanted)

    def read_nowait(self, runs: Sequence[tuple[int, int]]) -> bytes | None:
        """The bytes of `runs` end to end if they are in the page cache, else None.

        Raises StoreFailed, MessageNotFound.
        """
        self._admission.check_not_failed()
        return self._log.read_nowait(runs)

    def read(self, runs: Sequence[tuple[int, int]]) -> bytes:
        """[any thread] The bytes of `runs` end to end; may block. Raises MessageNotFound."""
        return self._log.read(runs)

    def record_at(self, physical_offset: int, size: int) -> bytes:
        """[any thread] One record's bytes. Raises MessageNotFound outside the log."""
        return self._log.read(((physical_offset, size),))

    def queue_entries(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        """Raw consume queue entries, 20 bytes each, cut at the queue's end."""
        queue = self._queues.get(topic, queue_id)
        return b"" if queue is None else queue.read_entries(self._files, offset, count)

    def plan_time_search(self, topic: str, queue_id: int) -> TimeSearch | None:
        """A search by store time that may `run` on any thread; None for an unknown queue."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return None
        return TimeSearch(self._disk, queue, self.record_at)

    def search_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The offset of the first message stored at or after a time (LOWER; else the maximum), or
        of the last one at or before it (UPPER; else the minimum). May block on the disk."""
        search = self.plan_time_search(topic, queue_id)
        return 0 if search is None else search.run(timestamp_ms, boundary)

    def plan_message_query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_messages: int
    ) -> MessageQuery:
        """The newest records with a key, to be looked for on any thread."""
        search = self.index.plan_search(topic, key, begin_ms=begin_ms, end_ms=end_ms)
        wanted = QueryWanted(topic, key, max_messages)
        return MessageQuery(search, self.record_at, wanted, self._clock, lowest=self.min_offset)

    def emptied_queues(self) -> dict[QueueName, int]:
        """Queues whose messages were all removed, and their next offsets: what no log tells."""
        return self._queues.emptied()

    def segments(self) -> list[SegmentInfo]:
        return self._log.segments()

    def contiguous_end(self, position: int) -> int:
        """Up to where the log's bytes from `position` on can be read as one run, in one segment;
        `position` itself at the end of the log. Raises MessageNotFound outside the log."""
        return self._log.contiguous_end(position)

    def walk_log(self, start: int = 0, chunk_bytes: int = 1 << 20) -> Iterator[tuple[int, bytes]]:
        """The log's bytes, blanks included: (position, bytes) in one segment."""
        return self._log.walk(start, chunk_bytes)

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            state=self.state,
            min_offset=self.min_offset,
            appended_end=self.appended_end,
            flushed_end=self.flushed_end,
            confirmed_end=self.confirmed_end,
            dispatched_end=self.dispatched_end,
            segment_count=self._log.segment_count,
            queue_count=len(self._queues),
            damaged_queue_count=len(self._queues.damaged),
            misplaced_records=self.recovery.misplaced_records + self.replicated.misplaced_records,
            queue_tail_bytes=self._queues.tail_bytes,
            appended_records=self._appends.counters.records,
            appended_bytes=self._appends.counters.bytes,
            appended_batches=self._appends.counters.batches,
            refused_batches=self._appends.counters.refused_batches,
            flushes=self._ledger.flushes,
            checkpoints=self._ledger.checkpoints,
            sync_latency=self._ledger.sync_latency.copy(),
            retention=self.retention.statistics(),
            last_store_timestamp_ms=self._log.store_timestamp_ms,
        )
