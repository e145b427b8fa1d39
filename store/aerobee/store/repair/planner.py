"""From the findings of a verification to the steps of a repair.

The order of the steps matters: files first (names, lengths, missing ones), then records inside
them, then what is derived, then the marks that let the next start derive it. What the plan cannot
repair is in `left`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.folder_state import CHECKPOINT_FILE
from aerobee.store.engine.index.index_files import INDEX_DIRECTORY, INDEX_MARK_FILE
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, segment_path
from aerobee.store.engine.producers.windows_file import WINDOWS_FILE
from aerobee.store.engine.queues.consume_queue import queue_directory
from aerobee.store.engine.queues.queue_ends import QUEUE_ENDS_FILE
from aerobee.store.engine.tables.atomic_file import BACKUP_SUFFIX
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.repair.actions import (
    CreateSegment,
    ForgetProgress,
    KeepMarks,
    MoveAway,
    RenameSegments,
    ResizeFile,
    RestoreBackup,
    Step,
    ZeroBytes,
)
from aerobee.store.repair.damage import LostRange, QueueName, ranges_of
from aerobee.store.repair.folder import SegmentFile
from aerobee.store.repair.queue_cursor import first_offset_behind
from aerobee.store.repair.record_steps import RecordSteps
from aerobee.store.repair.tables_check import CONFIG_DIRECTORY
from aerobee.store.repair.verify import Verified

_FILES_MAX = 64


@dataclass(frozen=True, slots=True)
class RepairWishes:
    """What the operator allows and requests."""

    cut_at_damage: bool = False
    rebuild_queues: bool = False
    topics: frozenset[str] = frozenset()
    rebuild_index: bool = False
    drop_unreadable_tables: bool = False


@dataclass(slots=True)
class RepairPlan:
    """Steps in order; `left` is what stays as it is, and why."""

    folder: str
    steps: list[Step] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    must_open: bool = False
    """Whether to open and close the store afterwards, which derives what is missing."""

    @property
    def lost(self) -> list[LostRange]:
        """All messages that are lost once the plan is carried out, as ranges by queue."""
        by_queue: dict[QueueName, list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]] = {}
        for step in self.steps:
            for lost in step.lost:
                offsets = np.arange(lost.first, lost.end, dtype=np.int64)
                by_queue.setdefault((lost.topic, lost.queue_id), []).append(offsets)
        return [found for name in sorted(by_queue) for found in ranges_of(name, by_queue[name])]


def plan_repair(verified: Verified, wishes: RepairWishes, folder: str) -> RepairPlan:
    """The plan; `folder` is the archive's. Reads the store folder, changes nothing."""
    return _Planner(verified, wishes, folder).plan()


class _Planner:
    def __init__(self, verified: Verified, wishes: RepairWishes, folder: str) -> None:
        self._verified = verified
        self._wishes = wishes
        self._plan = RepairPlan(folder)
        self._damage = verified.damage
        self._folder = verified.folder
        self._disk: Disk = verified.folder.disk
        self._files = FileCache(self._disk, _FILES_MAX)
        regions = verified.damage.regions
        self._cut_at = (
            min((region.start for region in regions), default=None)
            if wishes.cut_at_damage
            else None
        )
        self._log_end = verified.damage.log_end
        if regions and self._cut_at is None:
            self._log_end = max(self._log_end, max(region.end for region in regions))

    def plan(self) -> RepairPlan:
        plan = self._plan
        self._place_segments()
        self._move_strays()
        self._complete_segments()
        records = RecordSteps(self._verified, plan.folder)
        if self._cut_at is not None:
            self._cut_log(self._cut_at)
        else:
            for region in self._damage.regions:
                plan.steps += records.quarantine(region)
            if self._damage.tail_end > self._log_end:
                plan.steps += self._zero_tail(self._log_end, self._damage.tail_end)
        plan.steps += records.fix_headers(behind=self._cut_at)
        plan.left += records.left
        for name, why in records.queues_to_rebuild.items():
            self._damage.bad_queues.setdefault(name, why)
        if (
            records.moves_keys
            and not self._damage.index_problem
            and self._disk.list(INDEX_DIRECTORY)
        ):
            self._damage.index_problem = "records that it lists are gone"
        self._derive_again()
        self._restore_tables()
        plan.must_open = any(step.file.partition("/")[0] != CONFIG_DIRECTORY for step in plan.steps)
        if plan.must_open:
            marks = (CHECKPOINT_FILE, QUEUE_ENDS_FILE, INDEX_MARK_FILE, WINDOWS_FILE)
            kept = [mark for mark in marks if self._disk.exists(mark)]
            text = f"keep {', '.join(kept)} as they are now"
            plan.steps.insert(0, KeepMarks(CHECKPOINT_FILE, text, marks=kept))
        return plan

    def _add(self, step: Step) -> None:
        self._plan.steps.append(step)

    # ------------------------------------------------------------------------------ files

    def _place_segments(self) -> None:
        moves = [
            (segment.path, segment_path(segment.base))
            for segment in self._folder.segments
            if segment.path not in (None, segment_path(segment.base))
        ]
        named = [(old, new) for old, new in moves if old is not None]
        if named:
            shown = ", ".join(f"{old} -> {new}" for old, new in named)
            self._add(RenameSegments(COMMIT_LOG_DIRECTORY, f"rename {shown}", moves=named))
            for segment in self._folder.segments:
                if segment.path is not None:
                    segment.path = segment_path(segment.base)
        for segment in self._folder.segments:
            if segment.is_foreign and segment.path is not None:
                self._add(
                    MoveAway(segment.path, "it holds another segment's bytes", segment.file_bytes)
                )
                segment.path, segment.file_bytes = None, 0

    def _move_strays(self) -> None:
        for path in dict.fromkeys(self._folder.strays):
            self._add(MoveAway(path, "it does not belong to the store", _size_of(self._disk, path)))

    def _complete_segments(self) -> None:
        """Every place of the log, up to its end, gets a file of the right length."""
        size = self._folder.segment_bytes
        for segment in self._folder.segments:
            if segment.base >= self._end_of_use():
                if segment.path is not None and self._is_behind_a_gap(segment):
                    self._add(MoveAway(segment.path, "it is past the end of the log", size))
            elif segment.path is None:
                self._add(CreateSegment(segment_path(segment.base), "make the missing file", size))
            elif segment.file_bytes != size:
                self._add(
                    ResizeFile(
                        segment.path,
                        f"{segment.file_bytes} bytes become {size}",
                        abs(segment.file_bytes - size),
                        old_size=segment.file_bytes,
                        new_size=size,
                    )
                )

    def _end_of_use(self) -> int:
        """Segments that start here or later hold nothing."""
        return self._cut_at if self._cut_at is not None else max(self._log_end, 1)

    def _is_behind_a_gap(self, segment: SegmentFile) -> bool:
        return segment.file_bytes != self._folder.segment_bytes or any(
            other.path is None and self._end_of_use() <= other.base < segment.base
            for other in self._folder.segments
        )

    # ------------------------------------------------------------------------------ the log

    def _cut_log(self, at: int) -> None:
        """Let the log end at `at`; what followed is kept only in the archive."""
        damage = self._damage
        end = max(damage.log_end, damage.tail_end, *(each.end for each in damage.regions))
        self._plan.steps += self._zero_tail(at, end, tuple(self._lost_behind(at)))
        damage.index_problem = damage.index_problem or "the log was cut"
        damage.checkpoint_problem = damage.checkpoint_problem or "the log was cut"

    def _zero_tail(self, at: int, end: int, lost: Sequence[LostRange] = ()) -> Iterator[Step]:
        """Cut the log at `at`; it is used up to `end`."""
        size = self._folder.segment_bytes
        for segment in self._folder.segments:
            if segment.path is None or segment.base + size <= at or segment.base >= end:
                continue
            if segment.base >= at and self._cut_at is not None:
                yield MoveAway(segment.path, "it is after the cut", size, lost=lost)
            else:
                start = max(at - segment.base, 0)
                stop = min(end - segment.base, size)
                yield ZeroBytes(
                    segment.path,
                    f"cut the log at {segment.base + start}: {stop - start} bytes become zeros",
                    stop - start,
                    start,
                    lost,
                )
            lost = ()

    def _lost_behind(self, at: int) -> Iterator[LostRange]:
        """Messages whose records start at or after `at`, according to the queues."""
        for name, cursor in sorted(self._verified.cursors.items()):
            first = first_offset_behind(self._folder, self._files, cursor, at)
            if first is not None and first < cursor.end:
                yield LostRange(*name, first, cursor.end)

    # ------------------------------------------------------------------------------ derived

    def _derive_again(self) -> None:
        wishes, damage = self._wishes, self._damage
        bad = dict(damage.bad_queues)
        for queue in self._folder.queues:
            if wishes.rebuild_queues and (not wishes.topics or queue.topic in wishes.topics):
                bad.setdefault((queue.topic, queue.queue_id), "as asked for")
        rebuilt = 0
        for name in sorted(bad):
            cursor = self._verified.cursors.get(name)
            if cursor is not None and cursor.first_seen is None and cursor.end:
                self._plan.left.append(
                    f"queue {name[1]} of {name[0]} has no messages any more; rebuilt, it would "
                    f"count from 0 instead of {cursor.end}: its files stay ({bad[name]})"
                )
                continue
            path = queue_directory(*name)
            rebuilt += 1
            if self._disk.exists(path):
                self._move_tree(path, f"rebuild the queue: {bad[name]}")
        if damage.index_problem or wishes.rebuild_index:
            why = damage.index_problem or "as asked for"
            self._move_tree(INDEX_DIRECTORY, f"rebuild the index: {why}")
        else:
            why = ""
        if rebuilt or why or damage.checkpoint_problem:
            reason = damage.checkpoint_problem or "so that the log is read from its start"
            marks = [QUEUE_ENDS_FILE, *([INDEX_MARK_FILE] if why else [])]
            index_ms = 0 if why else self._verified.index_end_timestamp_ms
            self._add(
                ForgetProgress(
                    "checkpoint",
                    reason,
                    checkpoint=Checkpoint(index_msg_timestamp=index_ms),
                    marks=[mark for mark in marks if self._disk.exists(mark)],
                )
            )

    def _move_tree(self, path: str, text: str) -> None:
        """With everything in it, which then needs no step of its own."""
        self._plan.steps = [
            step
            for step in self._plan.steps
            if not (isinstance(step, MoveAway) and step.file.startswith(f"{path}/"))
        ]
        self._add(MoveAway(path, text, _tree(self._disk, path)))

    def _restore_tables(self) -> None:
        for path in self._damage.config_from_backup:
            self._add(
                RestoreBackup(
                    path, f"from {path}{BACKUP_SUFFIX}", _size_of(self._disk, path + BACKUP_SUFFIX)
                )
            )
        for path in self._damage.config_unreadable:
            if self._wishes.drop_unreadable_tables:
                for each in (path, path + BACKUP_SUFFIX):
                    if self._disk.exists(each):
                        self._add(MoveAway(each, "begin with defaults", _size_of(self._disk, each)))
            else:
                self._plan.left.append(
                    f"{path} cannot be read, nor its backup: restore it from a copy, or start "
                    "with defaults by --drop-unreadable-tables"
                )


def _size_of(disk: Disk, path: str) -> int:
    folder, _, name = path.rpartition("/")
    return next((entry.size_bytes for entry in disk.list(folder) if entry.name == name), 0)


def _tree(disk: Disk, path: str) -> int:
    return sum(
        _tree(disk, f"{path}/{entry.name}") if entry.is_directory else entry.size_bytes
        for entry in disk.list(path)
    )
