"""From a checked batch to bytes in the log, and from there to what consumers may see.

Owns: how far the log is confirmed, and what was appended since the store was opened. A batch is
stamped and written as a whole or not at all; its entries and keys wait in the dispatcher until the
caller confirms them.
"""

from __future__ import annotations

from aerobee.broker.store.admission import Admission
from aerobee.broker.store.appended import AppendCounters, Appended
from aerobee.broker.store.config import StoreConfig
from aerobee.broker.store.dispatcher import Dispatcher, Pending
from aerobee.broker.store.flush_ledger import FlushLedger
from aerobee.broker.store.log.commit_log import CommitLog
from aerobee.broker.store.producers.producer_windows import ProducerWindows
from aerobee.broker.store.queues.queue_set import QueueSet
from aerobee.broker.store.replicas.scanned_chunk import EndedQueues
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotWritable, StoreFailed
from aerobee.store_format.checked_batch import CheckedBatch


class AppendPath:
    """See the module; loop thread only."""

    def __init__(
        self,
        clock: Clock,
        config: StoreConfig,
        *,
        log: CommitLog,
        queues: QueueSet,
        windows: ProducerWindows,
        dispatcher: Dispatcher,
        ledger: FlushLedger,
        admission: Admission,
    ) -> None:
        self._clock = clock
        self._config = config
        self._log = log
        self._queues = queues
        self._windows = windows
        self._dispatcher = dispatcher
        self._ledger = ledger
        self._admission = admission
        self.confirmed_end = log.end
        self.counters = AppendCounters()

    def append(
        self, batch: CheckedBatch, queue_id: int, *, reserve: bool = False, ends_topic: str = ""
    ) -> Appended:
        """See `MessageStore.append`."""
        size = len(batch.buffer)
        log = self._log
        waiting = log.end - min(self._ledger.flushed_end, self.confirmed_end)
        if not self._admission.writable or waiting + size > self._config.unflushed_bytes_max:
            self._refuse(waiting, size, reserve=reserve)
        queue = self._queues.get_or_create(batch.topic, queue_id)
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
        except NotWritable:
            self._admission.allocation_failed()
            self.counters.refused_batches += 1
            raise
        except OSError as error:
            self._admission.fail(error)
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
            self._dispatcher.submit_end(EndedQueues(end, self._queues.retire(ends_topic, base)))
        self.counters.add(batch.count, size)
        return Appended(base_queue_offset, base, end, timestamp_ms)

    def _refuse(self, waiting_bytes: int, size: int, *, reserve: bool) -> None:
        fits = self._log.fits(size) if reserve else None
        try:
            self._admission.refuse(waiting_bytes, size, reserve_fits=fits)
        except Exception:
            self.counters.refused_batches += 1
            raise

    def confirm(self, end: int) -> None:
        """See `MessageStore.confirm`."""
        self._admission.check_not_failed()
        assert self.confirmed_end <= end, "what was confirmed stays confirmed"
        assert end <= self._log.end, "only what was appended can be confirmed"
        self.confirmed_end = end
        self._dispatcher.dispatch(end)
        self._ledger.watch_memory()
