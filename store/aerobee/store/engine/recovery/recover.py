"""From the files of the last run to a store that continues where it ended.

First the log is walked and assessed without changing anything; then the repairs are made:

    log, after the last whole record      cut off and zeroed
    segments after that                    removed
    consume queue entries after that       cut off
    consume queues that lack entries       completed from the log
    damaged consume queues                 built again from the start of the log
    key index                              cut, completed or built again likewise
    producers' windows                     likewise, but for what is too far back

An incomplete record is a torn tail, and cut, unless it is known to have been safely on disk: below
the flushed end of the checkpoint, or (after a clean stop) below what the queues point to. In that
case recovery raises StoreDamaged and an operator decides.

After a clean stop of our own the walk begins at the last dispatched record, if that is intact: what
is before it was synced before the folder was marked as closed. In all other cases it begins with a
segment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from aerobee.runtime.clock import Clock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreDamaged
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.folder_state import load_checkpoint, was_left_running
from aerobee.store.engine.index.index_recovery import IndexRecovery
from aerobee.store.engine.index.key_index import KeyIndex
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.engine.log.segment import BLANK_BYTES_MIN, COMMIT_LOG_DIRECTORY
from aerobee.store.engine.log.segment_files import (
    clear_behind,
    first_segment_after_close,
    first_segment_after_crash,
    load_segments,
    read_from_disk,
    remove_segments,
    sync_segments,
)
from aerobee.store.engine.producers.producer_windows import ProducerWindows
from aerobee.store.engine.producers.windows_recovery import WindowsRecovery
from aerobee.store.engine.queues.queue_ends import QUEUE_ENDS_FILE
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.engine.recovery.context import DerivedRecovery, RecoveryContext
from aerobee.store.engine.recovery.queue_recovery import QueueRecovery
from aerobee.store.engine.statistics import RecoveryProgress, RecoveryReport
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.scan import ScanEnd

OnProgress = Callable[[RecoveryProgress], None]


@dataclass(frozen=True, slots=True)
class Recovered:
    """The parts of a store, ready for use. Everything up to the log's end is on disk, unless the
    store was opened read-only."""

    files: FileCache
    log: CommitLog
    queues: QueueSet
    index: KeyIndex
    windows: ProducerWindows
    checkpoint: Checkpoint
    report: RecoveryReport


def recover(
    disk: Disk,
    clock: Clock,
    config: StoreConfig,
    *,
    on_progress: OnProgress | None,
    read_only: bool,
) -> Recovered:
    """Recover the folder. With `read_only` all repairs are made only in memory.

    Raises StoreDamaged, StoreUnusable, OSError.
    """
    started_s = clock.monotonic_s()
    recovery = _Recovery(disk, clock, config, on_progress, read_only)
    recovered = recovery.run()
    duration_s = clock.monotonic_s() - started_s
    return replace(recovered, report=replace(recovered.report, duration_s=duration_s))


class _Recovery:
    """One recovery, from beginning to end."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config: StoreConfig,
        on_progress: OnProgress | None,
        read_only: bool,
    ) -> None:
        self._on_progress = on_progress
        self._progress = RecoveryProgress(0, 0)
        self._clean = not was_left_running(disk)
        self._context = RecoveryContext(
            disk,
            config,
            read_only,
            load_segments(disk, config.segment_bytes, read_only=read_only),
            load_checkpoint(disk),
            on_read=self._got_on,
        )
        self._files = FileCache(disk, config.open_files_max)
        self._queues = QueueRecovery(self._context, self._files)
        self._index = IndexRecovery(self._context, clock)
        self._windows = WindowsRecovery(self._context, self._queues.queues)
        # In an order in which each may build on the ones before it.
        self._derived: tuple[DerivedRecovery, ...] = (self._queues, self._index, self._windows)
        checkpoint = self._context.checkpoint
        self._store_timestamp_ms = max(
            checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp
        )
        self._scanned_bytes = 0
        self._scanned_records = 0

    def run(self) -> Recovered:
        if not self._context.segments:
            self._begin_without_log()
            return self._recovered(0, 0, 0)
        for derived in self._derived:
            derived.load(clean=self._clean)
        start = self._scan_start()
        end, stopped_by = self._scan(start)
        self._judge(end, stopped_by)
        # Nothing was written before this point.
        cut_bytes = self._cut_log(start, end, stopped_by)
        for derived in self._derived:
            derived.complete(start, end)
        return self._recovered(start, end, cut_bytes)

    def _begin_without_log(self) -> None:
        """Raises StoreDamaged if there certainly was a log."""
        context = self._context
        safe_end = context.checkpoint.confirm_physical_offset
        if safe_end and not context.config.cut_damaged:
            raise StoreDamaged(
                f"the folder {COMMIT_LOG_DIRECTORY} is empty, but the checkpoint knows of "
                f"{safe_end} bytes: restore the log, or remove the checkpoint to start a new log",
                segment=COMMIT_LOG_DIRECTORY,
                position=0,
            )
        for derived in self._derived:
            derived.drop_all()
        context.checkpoint = Checkpoint()

    # ------------------------------------------------------------------------------ judging

    def _scan_start(self) -> int:
        """The log offset to walk from: the start of a segment, or a record within one."""
        context = self._context
        if not self._clean:
            index = first_segment_after_crash(context.disk, context.segments, context.checkpoint)
            return context.segments[index].base
        known_end = self._queues.queues.physical_end
        base = context.segments[first_segment_after_close(context.segments, known_end)].base
        last = self._queues.last_listed_record()
        if last is not None and last[0] > base and self._is_whole(*last):
            return last[0]
        return base

    def _is_whole(self, start: int, end: int) -> bool:
        """Whether exactly one record is there."""
        if end > self._context.log_files_end:
            return False
        walk = self._context.walk(start, check_crc=True, is_record_start=True, end=end)
        return sum(chunk.result.count for chunk in walk) == 1 and walk.end == end

    def _scan(self, start: int) -> tuple[int, ScanEnd]:
        """Find the log's end, and what stopped the walk there; dispatches along the way."""
        context = self._context
        # Sectors are lost only in a power failure, and only unflushed ones. In a folder left by
        # Apache's broker the flushed end is unknown, and the log ends where Apache's would end it.
        torn_from = None
        if not self._clean and context.disk.exists(QUEUE_ENDS_FILE):
            torn_from = context.checkpoint.confirm_physical_offset
        if torn_from is not None and not context.read_only:
            unflushed = [each for each in context.segments if each.base + each.size > torn_from]
            read_from_disk(context.disk, unflushed, torn_from)
        walk = context.walk(
            start,
            check_crc=context.config.check_crc_on_recovery,
            is_record_start=True,
            torn_from=torn_from,
        )
        total = context.log_files_end - start
        for derived in self._derived:
            derived.begin_scan(start)
        for chunk in walk:
            result = chunk.result
            self._scanned_bytes += result.valid_end
            self._scanned_records += result.count
            self._store_timestamp_ms = max(
                self._store_timestamp_ms, int(result.store_timestamps[-1])
            )
            for derived in self._derived:
                derived.feed(chunk)
            self._tell(chunk.position + result.valid_end - start, total)
        self._tell(total, total)
        return walk.end, walk.stopped_by

    def _tell(self, done: int, total: int) -> None:
        self._progress = RecoveryProgress(done, total)
        self._got_on()

    def _got_on(self) -> None:
        """Called also while parts of the log that do not count as progress are read again."""
        if self._on_progress is not None:
            self._on_progress(self._progress)

    def _judge(self, end: int, stopped_by: ScanEnd) -> None:
        """Raises StoreDamaged if what is at `end` was once safely on disk."""
        context = self._context
        safe_end = min(context.checkpoint.confirm_physical_offset, context.log_files_end)
        if self._clean:
            safe_end = max(safe_end, self._queues.known_behind(end))
        if end >= safe_end or context.config.cut_damaged:
            return
        segment = context.segments[context.index_of(min(end, context.log_files_end - 1))]
        raise StoreDamaged(
            f"{segment.path} is damaged at byte {end - segment.base} ({stopped_by}): the log was "
            f"whole up to {safe_end} and now ends at {end}. Restore the segment from a copy, or "
            "cut the log there with `aerobee store repair` and lose what follows",
            segment=segment.path,
            position=end,
        )

    # ------------------------------------------------------------------------------ the log

    def _cut_log(self, start: int, end: int, stopped_by: ScanEnd) -> int:
        """Cut the log at `end`; returns how many non-zero bytes were removed."""
        context = self._context
        kept = [segment for segment in context.segments if segment.base <= end]
        removed = context.segments[len(kept) :]
        context.segments = kept
        active = kept[-1]
        active.wrote = end - active.base
        read_only = context.read_only
        cut_bytes = clear_behind(context.disk, active, read_only=read_only)
        cut_bytes += remove_segments(context.disk, removed, read_only=read_only)
        if cut_bytes > (BLANK_BYTES_MIN if stopped_by is ScanEnd.BLANK else 0):
            context.warnings.append(
                f"{cut_bytes} bytes after log offset {end} were not whole records and were cut off"
            )
        if not read_only:
            # What was walked may be only in the page cache.
            sync_segments(context.disk, kept[context.index_of(start) :])
        return cut_bytes

    def _recovered(self, scan_start: int, end: int, cut_bytes: int) -> Recovered:
        context = self._context
        log = CommitLog(
            context.disk,
            self._files,
            context.config.segment_bytes,
            context.segments,
            store_timestamp_ms=self._store_timestamp_ms,
            keep_free_bytes=context.config.disk_free_bytes_min,
        )
        if context.segments and not context.read_only:
            active = context.segments[-1]
            active.file = context.disk.open_file(active.path)
        report = RecoveryReport(
            clean=self._clean,
            scan_start=scan_start,
            end=end,
            scanned_bytes=self._scanned_bytes,
            scanned_records=self._scanned_records,
            dispatched_records=self._queues.dispatched,
            cut_bytes=cut_bytes,
            rebuilt_queues=tuple(self._queues.rebuilt),
            warnings=tuple(context.warnings),
            misplaced_records=context.misplaced_records,
        )
        return Recovered(
            files=self._files,
            log=log,
            queues=self._queues.queues,
            index=self._index.index,
            windows=self._windows.windows,
            checkpoint=context.checkpoint,
            report=report,
        )
