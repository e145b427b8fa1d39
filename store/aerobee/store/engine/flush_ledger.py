"""Works given out to make data durable, and their completion.

Owns: `flushed_end` and the works under way, at most one of each kind. A work is taken, run on any
thread, and finished here; until then its bytes count as unflushed and its entries stay in memory.
"""

from __future__ import annotations

from typing import Final

from aerobee.runtime.clock import Clock
from aerobee.runtime.metrics.histogram import LATENCY_S, Histogram
from aerobee.store.engine.admission import Admission
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.dispatcher import Dispatcher
from aerobee.store.engine.flush_work import CheckpointWork, FlushWork
from aerobee.store.engine.index.key_index import KeyIndex
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.engine.producers.producer_windows import ProducerWindows
from aerobee.store.engine.producers.windows_file import WindowsFile
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.format.checkpoint import Checkpoint

BEHIND_FACTOR: Final = 4
"""A checkpoint is due once the configured bytes of entries or keys are in memory; while it runs
more may accumulate, up to this many times as much."""


class FlushLedger:
    """Loop thread only."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config: StoreConfig,
        *,
        log: CommitLog,
        queues: QueueSet,
        index: KeyIndex,
        windows: ProducerWindows,
        dispatcher: Dispatcher,
        admission: Admission,
        checkpoint: Checkpoint,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._windows_file = WindowsFile(disk, windows)
        self._dispatcher = dispatcher
        self.admission = admission
        self._checkpoint = checkpoint
        self.flushed_end = log.end
        self.flushes = 0
        self.sync_latency = Histogram(LATENCY_S)
        self.checkpoints = 0
        self._flush_work: FlushWork | None = None
        self._checkpoint_work: CheckpointWork | None = None
        self._checkpoint_due_s = clock.monotonic_s()

    # ------------------------------------------------------------------------------ the log

    def take_flush(self) -> FlushWork | None:
        """What is unflushed now; None if there is nothing, while a flush is under way, or if
        nothing may be written. Run its `checkpoint`, if any, after it. Raises StoreFailed."""
        self.admission.check_not_failed()
        return self._take_flush() if self.admission.is_in_use else None

    def _take_flush(self) -> FlushWork | None:
        if self._flush_work is not None:
            return None
        end = self._log.end
        checkpoint = self.take_checkpoint(end) if self._has_checkpoint_due() else None
        if end == self.flushed_end and checkpoint is None:
            return None
        files, directories = self._log.take_unsynced() if end > self.flushed_end else ([], [])
        self._flush_work = FlushWork(self._disk, directories, files, end, checkpoint, self._clock)
        return self._flush_work

    def finish_flush(self, work: FlushWork) -> None:
        """`work.run` returned: the log is on disk up to its end."""
        assert work is self._flush_work
        assert self.flushed_end <= work.end <= self._log.end
        self._flush_work = None
        self.flushed_end = work.end
        self.flushes += 1
        self.sync_latency.observe(work.sync_s)

    # ------------------------------------------------------------------------------ checkpoints

    @property
    def checkpoint_due(self) -> bool:
        """Whether the next flush will carry a checkpoint."""
        return self.admission.is_in_use and self._has_checkpoint_due()

    def _has_checkpoint_due(self, *, at_once: bool = False) -> bool:
        """Due by time, or because too many entries are in memory; only if there is anything new."""
        if self._checkpoint_work is not None:
            return False
        if self._queues.tail_bytes >= self._config.queue_tail_bytes_max:
            return True
        if self._index.pending_bytes >= self._config.index_pending_bytes_max:
            return True
        is_due = at_once or self._clock.monotonic_s() >= self._checkpoint_due_s
        return is_due and self._has_news

    @property
    def _has_news(self) -> bool:
        return (
            self._queues.has_unwritten
            or self._index.has_unwritten
            or self._log.store_timestamp_ms != self._checkpoint.physic_msg_timestamp
        )

    @property
    def is_settled(self) -> bool:
        """Whether flushes and checkpoints have nothing to do until the log grows."""
        return self.flushed_end == self._log.end and not self._has_news

    def take_checkpoint(self, flushed_end: int) -> CheckpointWork:
        """Valid once the log is on disk up to `flushed_end`."""
        interval_s = self._config.checkpoint_interval_ms / 1_000
        self._checkpoint_due_s = self._clock.monotonic_s() + interval_s
        checkpoint = Checkpoint(
            physic_msg_timestamp=self._log.store_timestamp_ms,
            logics_msg_timestamp=self._dispatcher.store_timestamp_ms,
            index_msg_timestamp=self._index.end_timestamp_ms,
            master_flushed_offset=self._checkpoint.master_flushed_offset,
            confirm_physical_offset=flushed_end,
        )
        self._checkpoint_work = CheckpointWork(
            self._disk,
            self._queues.take_write_out(),
            checkpoint,
            index_write=self._index.take_write(),
            windows_write=self._windows_file.take_write(self._log.end),
        )
        return self._checkpoint_work

    def finish_checkpoint(self, work: CheckpointWork) -> None:
        """`work.run` returned. If the disk was full the entries stay in memory for the next one."""
        assert work is self._checkpoint_work
        self._checkpoint_work = None
        if work.index_write is not None:
            self._index.finish_write(work.index_write)
        if work.error is None:
            if work.windows_write is not None:
                self._windows_file.finish_write(work.windows_write)
            self._queues.finish_write_out(work.queues)
            self._checkpoint = work.checkpoint
            self.checkpoints += 1
        self.admission.queue_files_full(work.error is not None)
        self.watch_memory()

    def watch_memory(self) -> None:
        """Whether checkpoints are so slow that appends must wait for them."""
        config = self._config
        waiting = ""
        if self._queues.tail_bytes > BEHIND_FACTOR * config.queue_tail_bytes_max:
            waiting = "consume queue entries"
        elif self._index.pending_bytes > BEHIND_FACTOR * config.index_pending_bytes_max:
            waiting = "keys of the index"
        self.admission.checkpoint_behind(waiting)

    def flush_now(self) -> None:
        """Flush, checkpoint and finish synchronously, including works that were taken and not
        finished, as running them twice is harmless. Blocks; raises OSError."""
        flush = self._flush_work or self._take_flush()
        if flush is not None:
            flush.run()
            self.finish_flush(flush)
        if self._checkpoint_work is None and self._has_checkpoint_due(at_once=True):
            self.take_checkpoint(self.flushed_end)
        if (checkpoint := self._checkpoint_work) is not None:
            checkpoint.run()
            self.finish_checkpoint(checkpoint)

    def settle(self) -> None:
        """Write a checkpoint of what recovery left, even if nothing is new. Blocks."""
        self.take_checkpoint(self.flushed_end)
        self.flush_now()
