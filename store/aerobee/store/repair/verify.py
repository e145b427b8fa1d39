"""Verifies everything in a store folder, read-only.

Order: names and small files first, then the log once from beginning to end alongside the queues,
then what only the end can show. Memory does not depend on the log's length: a cursor per queue is
kept, and a bounded stretch of records.

On a live folder nothing newer than the start is judged: entries that the broker still has in
memory, and the log's last, unfinished record, are not findings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.folder_state import CHECKPOINT_FILE
from aerobee.store.engine.log.segment import Segment, segment_path
from aerobee.store.engine.log.segment_files import first_segment_after_crash
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.index_file import IndexGeometry
from aerobee.store.format.scan import ScanEnd
from aerobee.store.format.tags import TagsCodes
from aerobee.store.repair.damage import Damage, DamagedRegion, Placed, QueueName
from aerobee.store.repair.findings import Findings, Kind, Severity
from aerobee.store.repair.folder import (
    Folder,
    InspectedDisk,
    SegmentFile,
    inspect_folder,
)
from aerobee.store.repair.former_topics import find_former_topics
from aerobee.store.repair.index_check import IndexCheck
from aerobee.store.repair.log_check import LogCheck, LogTotals
from aerobee.store.repair.queue_check import QueueCheck
from aerobee.store.repair.queue_cursor import QueueCursor
from aerobee.store.repair.tables_check import (
    check_checkpoint,
    check_consumer_offsets,
    check_tables,
    read_marks,
)

OnProgress = Callable[[int, int], None]
"""Called with the bytes of the log done and in total."""


@dataclass(slots=True)
class Verified:
    """What was found, for people (`findings`) and for a repair (`damage`)."""

    folder: Folder
    config: StoreConfig
    findings: Findings
    damage: Damage
    checkpoint: Checkpoint
    is_aborted: bool
    totals: LogTotals
    queued_records: int
    index_entries: int
    index_end_timestamp_ms: int
    cursors: dict[QueueName, QueueCursor]

    @property
    def is_sound(self) -> bool:
        return self.findings.is_sound


def verify_store(
    disk: InspectedDisk,
    config: StoreConfig,
    *,
    check_index: bool = True,
    is_locked_by_us: bool = False,
    on_progress: OnProgress | None = None,
) -> Verified:
    """Read the whole folder; `is_locked_by_us`: the caller holds its lock.

    Raises StoreUnusable if it is not a store, OSError.
    """
    names = ("commitlog", "consumequeue", "config")
    if not any(disk.exists(name) for name in names):
        raise StoreUnusable(f"{disk} is not a store: it has none of {', '.join(names)} in it")
    findings = Findings()
    folder = inspect_folder(disk, config, findings, is_locked_by_us=is_locked_by_us)
    return _Verification(folder, config, findings, check_index, on_progress).run()


class _Verification:
    """One run."""

    def __init__(
        self,
        folder: Folder,
        config: StoreConfig,
        findings: Findings,
        check_index: bool,
        on_progress: OnProgress | None,
    ) -> None:
        self._check_index = check_index
        self._index_geometry = IndexGeometry(config.index_slots_max, config.index_entries_max)
        self._config = config
        self._on_progress = on_progress
        self._findings = findings
        self._damage = Damage()
        self._folder = folder

    def run(self) -> Verified:
        folder, findings, damage = self._folder, self._findings, self._damage
        checkpoint, ends, is_aborted = read_marks(folder, findings, damage)
        tags = TagsCodes(delays_ms=self._config.delay_levels_ms)
        recovery_start = self._recovery_start(checkpoint)
        may_lack = is_aborted or folder.is_live
        former_topics = find_former_topics(
            folder, tags, unlisted_from=recovery_start if may_lack else None
        )
        log = LogCheck(
            folder,
            findings,
            damage,
            tags=tags,
            on_bytes=self._tell,
        )
        queues = QueueCheck(
            folder,
            findings,
            damage,
            ends=ends or {},
            is_aborted=is_aborted,
            recovery_start=recovery_start,
            former_topics=former_topics,
        )
        index = (
            IndexCheck(folder, self._index_geometry, findings, damage, is_aborted=is_aborted)
            if self._check_index
            else None
        )
        for chunk in log:
            queues.feed(chunk)
            if index is not None:
                index.feed(chunk)
        queues.finish()
        if index is not None:
            index.finish()
        if not folder.is_live:
            self._judge_end(log, queues, checkpoint, is_aborted, ends is not None)
        check_checkpoint(folder, checkpoint, log.totals.last_timestamp_ms, findings, damage)
        check_tables(folder, findings, damage)
        check_consumer_offsets(folder, queues.cursors, findings, unsettled=former_topics.unsettled)
        return Verified(
            folder,
            self._config,
            findings,
            damage,
            checkpoint,
            is_aborted,
            log.totals,
            queues.queued_records,
            index.entries if index is not None else 0,
            index.end_timestamp_ms if index is not None else checkpoint.index_msg_timestamp,
            queues.cursors,
        )

    def _tell(self, done: int) -> None:
        if self._on_progress is not None:
            folder = self._folder
            self._on_progress(done, folder.log_files_end - folder.log_min_offset)

    def _recovery_start(self, checkpoint: Checkpoint) -> int:
        """Where a start after a crash would begin to read the log."""
        folder = self._folder
        if not folder.segments or any(segment.path is None for segment in folder.segments):
            return 0
        size = folder.segment_bytes
        segments = [Segment(segment.base, size, size) for segment in folder.segments]
        if any(
            segment.path != found.path
            for segment, found in zip(segments, folder.segments, strict=True)
        ):
            return 0
        return segments[first_segment_after_crash(folder.disk, segments, checkpoint)].base

    # ------------------------------------------------------------------------------ the end

    def _judge_end(
        self,
        log: LogCheck,
        queues: QueueCheck,
        checkpoint: Checkpoint,
        is_aborted: bool,
        is_checkpoint_known: bool,
    ) -> None:
        """Whether the log ends where it may: a torn tail, or the loss of durable data."""
        folder, damage = self._folder, self._damage
        ahead = self._credible_ahead(queues, checkpoint)
        known_end = max((_end_of(placed) for placed in ahead), default=0)
        safe_end = checkpoint.confirm_physical_offset
        if safe_end > damage.log_end and not (
            is_checkpoint_known or damage.tail_bytes or known_end > damage.log_end
        ):
            text = (
                f"it knows of {safe_end} bytes, but nothing else shows more than {damage.log_end}"
            )
            damage.checkpoint_problem = text
            self._findings.add(
                Kind.CHECKPOINT_AHEAD, CHECKPOINT_FILE, text, severity=Severity.DAMAGE
            )
            safe_end = 0
        safe_end = min(safe_end, folder.log_files_end)
        if not is_aborted:
            safe_end = max(safe_end, known_end)
        if safe_end > damage.log_end:
            self._report_short(log, ahead, safe_end)
            return
        for placed in ahead:
            self._findings.add(
                Kind.QUEUE_AHEAD,
                f"consumequeue/{placed.topic}/{placed.queue_id}",
                f"{len(placed.offsets)} entries from offset {int(placed.offsets[0])} on lead "
                f"past the log's end at {damage.log_end}",
                topic=placed.topic,
                queue=placed.queue_id,
            )
        if damage.tail_bytes:
            segment = next(s for s in reversed(folder.segments) if s.base <= damage.log_end)
            self._findings.add(
                Kind.LOG_TORN_TAIL,
                segment.name,
                f"{damage.tail_bytes} bytes that are not zero are past the log's end at "
                f"{damage.log_end}, up to {damage.tail_end} ({log.stopped_by})",
                position=damage.log_end - segment.base,
                log_position=damage.log_end,
            )

    def _credible_ahead(self, queues: QueueCheck, checkpoint: Checkpoint) -> list[Placed]:
        """Entries that point after the log's end. If they point after all files, a missing last
        segment is assumed if more than one says so."""
        folder = self._folder
        ahead = queues.judge.unmatched.ahead
        files_end = folder.log_files_end
        beyond = [placed for placed in ahead if _end_of(placed) > files_end]
        count = sum(int((placed.positions >= files_end).sum()) for placed in beyond)
        if not beyond:
            return ahead
        if count < 2 and checkpoint.confirm_physical_offset <= files_end:
            for placed in beyond:
                queues.judge.unmatched.report_beyond(placed)
            return [placed for placed in ahead if _end_of(placed) <= files_end]
        self._findings.add(
            Kind.LOG_GAP,
            segment_path(files_end),
            "the file is missing or empty; queues lead to records in it",
            position=0,
        )
        folder.segments.append(SegmentFile(files_end, None, 0))
        return ahead

    def _report_short(self, log: LogCheck, ahead: list[Placed], safe_end: int) -> None:
        folder, damage = self._folder, self._damage
        segment_bytes = folder.segment_bytes
        for segment in folder.segments:
            start = max(segment.base, damage.log_end)
            end = min(segment.base + segment_bytes, safe_end)
            if start >= end:
                continue
            region = DamagedRegion(
                start,
                end,
                segment.base,
                Kind.LOG_SHORT,
                str(log.stopped_by),
                log.totals.last_timestamp_ms,
            )
            for placed in ahead:
                mine = (placed.positions >= start) & (placed.positions + placed.sizes <= end)
                if mine.any():
                    region.placed.append(_part(placed, mine))
            damage.regions.append(region)
            kind = Kind.LOG_SHORT
            if log.stopped_by not in (ScanEnd.ZERO, ScanEnd.BLANK, ScanEnd.BUFFER_END):
                kind = _KIND_AT_END.get(log.stopped_by, Kind.LOG_SHORT)
            self._findings.add(
                kind,
                segment.name,
                f"the log ends at {damage.log_end} ({log.stopped_by}), but it was safely on the "
                f"disk up to {safe_end}",
                position=start - segment.base,
                log_position=start,
                bytes=end - start,
            )


_KIND_AT_END = {
    ScanEnd.BAD_CRC: Kind.LOG_RECORD_CRC,
    ScanEnd.BAD_LENGTHS: Kind.LOG_RECORD_LENGTHS,
    ScanEnd.TRUNCATED: Kind.LOG_RECORD_LENGTHS,
    ScanEnd.BAD_TOPIC: Kind.LOG_RECORD_TOPIC,
    ScanEnd.BAD_MAGIC: Kind.LOG_RECORD_MAGIC,
}


def _end_of(placed: Placed) -> int:
    return int((placed.positions + placed.sizes).max())


def _part(placed: Placed, mine: npt.NDArray[np.bool_]) -> Placed:
    return Placed(
        placed.topic,
        placed.queue_id,
        placed.offsets[mine],
        placed.positions[mine],
        placed.sizes[mine],
    )
