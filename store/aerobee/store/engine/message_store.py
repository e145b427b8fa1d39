"""The store as the broker uses it: opened, appended to, failed, closed; its parts do the rest.

    log         bytes of records by their places       queues      entries and bounds of queues
    reads       messages of a queue                    index       records by key
    producers   what was sent before                   surveys     what audits ask of many queues
    replicated  appends of a copy                      ledger      what is to be made durable
    retention   what is removed                        supply      the log's next segments

Owns: the watermarks of the log.

    dispatched_end <= confirmed_end <= appended_end,  flushed_end <= appended_end

Appended bytes are in the page cache; flushed ones on the disk. Consumers see what is dispatched,
and dispatch goes as far as the caller confirms: to `appended_end` under ASYNC_FLUSH, to
`flushed_end` under SYNC_FLUSH. Everything is called on one thread, the loop, except what is marked
[any thread]. After the first failed write or fsync nothing is guaranteed: appends, flushes and
reads of queues raise StoreFailed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotWritable, StoreFailed
from aerobee.store.engine.admission import Admission
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk, DiskLock
from aerobee.store.engine.dispatcher import Dispatcher, Pending
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.flush_ledger import FlushLedger
from aerobee.store.engine.folder_state import lock_store, mark_closed, mark_running
from aerobee.store.engine.log.segment_supply import SegmentSupply, remove_strays
from aerobee.store.engine.producers.producers import Producers
from aerobee.store.engine.queue_reads import QueueReads
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.queues.surveys import Surveys
from aerobee.store.engine.recovery.recover import Recovered, recover
from aerobee.store.engine.replicas.closed_log import complete_begin
from aerobee.store.engine.replicas.replicated_appends import ReplicatedAppends
from aerobee.store.engine.replicas.scanned_chunk import EndedQueues
from aerobee.store.engine.retention.retention_ledger import RetentionLedger
from aerobee.store.engine.statistics import (
    AppendCounters,
    Appended,
    RecoveryProgress,
    StoreState,
    StoreStatistics,
)
from aerobee.store.format.checked_batch import CheckedBatch


class MessageStore:
    """Created by `open`."""

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
        self._windows = recovered.windows
        self.log = recovered.log
        self.queues = recovered.queues
        self.index = recovered.index
        self.recovery = recovered.report
        self._counters = AppendCounters()
        self._admission = Admission(clock, config, read_only=lock is None)
        self._dispatcher = Dispatcher(
            self.queues,
            self.index,
            end=self.log.end,
            store_timestamp_ms=self.log.store_timestamp_ms,
        )
        self.ledger = FlushLedger(
            disk,
            clock,
            config,
            log=self.log,
            queues=self.queues,
            index=self.index,
            windows=self._windows,
            dispatcher=self._dispatcher,
            admission=self._admission,
            checkpoint=recovered.checkpoint,
        )
        self.retention = RetentionLedger(
            disk,
            clock,
            config.retention,
            log=self.log,
            queues=self.queues,
            index=self.index,
            dispatcher=self._dispatcher,
            ledger=self.ledger,
        )
        self.supply = SegmentSupply(clock, config, log=self.log, admission=self._admission)
        self.reads = QueueReads(
            clock, config, self._files, log=self.log, queues=self.queues, admission=self._admission
        )
        self.surveys = Surveys(disk, self.log, self.queues)
        self.producers = Producers.of(recovered, self._dispatcher)
        self.replicated = ReplicatedAppends(
            disk,
            config,
            log=self.log,
            queues=self.queues,
            windows=self._windows,
            dispatcher=self._dispatcher,
            ledger=self.ledger,
            admission=self._admission,
            counters=self._counters,
        )
        self.confirmed_end = self.log.end

    def __repr__(self) -> str:
        return f"MessageStore({self.state}, {self.log!r}, {len(self.queues)} queues)"

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

        With `read_only` nothing is locked or written: repairs are made only in memory, and a broker
        may be using the folder.

        Raises:
            StoreLocked: another process uses it.
            StoreDamaged: a record that was safely on disk is damaged.
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
                # So that recovery's work need not be repeated.
                store.ledger.settle()
                store.retention.measure_here()
        except BaseException as error:
            if lock is not None:
                lock.release()
            if isinstance(error, OSError):
                raise StoreUnusable(f"{disk} cannot be opened: {error}") from error
            raise
        return store

    def close(self) -> None:
        """Flush everything, write the checkpoint, mark the stop as clean, release the lock. Blocks.

        No work of this store may still be running on another thread. After a failure only the lock
        is released, so that the next start recovers. Calling it again does nothing. Raises
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
        self.ledger.flush_now()
        # What is on disk is confirmed as far as this machine can tell; it goes to the queues.
        self.confirm(self.log.end)
        self.ledger.flush_now()
        self.log.spares.drop_all()
        is_written = not (self.queues.has_unwritten or self.index.has_unwritten)
        if self._dispatcher.end == self.log.end and is_written:
            mark_closed(self._disk)

    def fail(self, error: BaseException) -> None:
        """A write or fsync failed: from now on calls raise StoreFailed. Never undone."""
        self._admission.fail(error)

    def disk_hung(self, reason: str) -> None:
        """The disk does not respond, so nothing is taken; empty: it does again."""
        self._admission.disk_hung(reason)

    @property
    def state(self) -> StoreState:
        return self._admission.state

    # ------------------------------------------------------------------------------ watermarks

    @property
    def appended_end(self) -> int:
        return self.log.end

    @property
    def flushed_end(self) -> int:
        return self.ledger.flushed_end

    @property
    def dispatched_end(self) -> int:
        return self._dispatcher.end

    @property
    def min_offset(self) -> int:
        """The first byte still in the log."""
        return self.log.min_offset

    @property
    def unflushed_bytes(self) -> int:
        return self.log.end - self.ledger.flushed_end

    # ------------------------------------------------------------------------------ appending

    def append(
        self, batch: CheckedBatch, *, queue_id: int, reserve: bool = False, ends_topic: str = ""
    ) -> Appended:
        """Stamp the batch and write it to the log, into the page cache: all of it or nothing. Its
        entries and keys wait in the dispatcher until it is confirmed.

        `reserve`: accepted even on a disk that is too full for messages, as far as there is room;
        for small records without which no space can be freed. `ends_topic`: the batch is one record
        with the properties of `topic_end_properties`; the topic is empty from there on.

        Raises:
            ShuttingDown, NotWritable, Busy: nothing was stored; later it may work.
            MessageTooLarge: no segment can hold the batch.
            IllegalName: the topic cannot be a folder.
            StoreFailed: the disk failed; whether the bytes are there is unknown.
        """
        size = len(batch.buffer)
        log = self.log
        waiting = log.end - min(self.ledger.flushed_end, self.confirmed_end)
        if not self._admission.writable or waiting + size > self._config.unflushed_bytes_max:
            self._refuse(waiting, size, reserve=reserve)
        queue = self.queues.get_or_create(batch.topic, queue_id)
        base_queue_offset = queue.next_offset
        try:
            base = log.make_room(size)
            timestamp_ms = log.next_store_timestamp_ms(self._clock.now_ms())
            batch.stamp(
                queue_id=queue_id,
                base_queue_offset=base_queue_offset,
                base_physical_offset=base,
                store_timestamp_ms=timestamp_ms,
                store_host=self._config.store_host,
            )
            log.write(batch.buffer, timestamp_ms)
        except NotWritable as refusal:
            self._admission.allocation_failed(str(refusal))
            self._counters.refused_batches += 1
            raise
        except OSError as error:
            self.fail(error)
            raise StoreFailed(f"writing the commit log failed: {error}") from error
        queue.next_offset = base_queue_offset + batch.queued_count
        if batch.producers:
            self._windows.appended(
                batch.topic, queue_id, batch.producers, base_queue_offset, timestamp_ms
            )
        end = base + size
        entries = batch.dispatch_entries(base)
        keys = batch.index_keys(base, timestamp_ms) if self._config.index_enabled else ()
        self._dispatcher.submit(
            Pending(end, queue, entries, batch.queued_count, timestamp_ms, keys)
        )
        if ends_topic:
            self._windows.end_topic(ends_topic)
            self._dispatcher.submit_end(EndedQueues(end, self.queues.retire(ends_topic, base)))
        self._counters.add(batch.count, size)
        return Appended(base_queue_offset, base, end, timestamp_ms)

    def _refuse(self, waiting_bytes: int, size: int, *, reserve: bool) -> None:
        fits = self.log.fits(size) if reserve else None
        try:
            self._admission.refuse(waiting_bytes, size, reserve_fits=fits)
        except Exception:
            self._counters.refused_batches += 1
            raise

    def confirm(self, end: int) -> None:
        """Let consumers see everything up to `end`. Raises StoreFailed."""
        self._admission.check_not_failed()
        assert self.confirmed_end <= end, "what was confirmed stays confirmed"
        assert end <= self.log.end, "only what was appended can be confirmed"
        self.confirmed_end = end
        self._dispatcher.dispatch(end)
        self.ledger.watch_memory()

    def on_grown(self, told: Callable[[Iterable[QueueName]], None]) -> None:
        """From now on, after each confirm, calls `told` with the queues that grew, each once."""
        self._dispatcher.on_grown(told)

    # ------------------------------------------------------------------------------ statistics

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            state=self.state,
            min_offset=self.min_offset,
            appended_end=self.appended_end,
            flushed_end=self.flushed_end,
            confirmed_end=self.confirmed_end,
            dispatched_end=self.dispatched_end,
            segment_count=self.log.segment_count,
            queue_count=len(self.queues),
            damaged_queue_count=len(self.queues.damaged),
            misplaced_records=self.recovery.misplaced_records + self.replicated.misplaced_records,
            queue_tail_bytes=self.queues.tail_bytes,
            appended_records=self._counters.records,
            appended_bytes=self._counters.bytes,
            appended_batches=self._counters.batches,
            refused_batches=self._counters.refused_batches,
            flushes=self.ledger.flushes,
            checkpoints=self.ledger.checkpoints,
            sync_latency=self.ledger.sync_latency.copy(),
            retention=self.retention.statistics(),
            last_store_timestamp_ms=self.log.store_timestamp_ms,
        )
