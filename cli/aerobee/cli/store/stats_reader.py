"""Figures of a store folder: from its queues alone, or with a walk through the log.

The quick way reads every queue entry, 20 bytes a message, and of the log only the heads of the
first and last message of each queue. Nothing is written; on a live folder what the broker has not
yet written to its queue files is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.format.checked_batch import UNQUEUED_BIT
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, PRE_BLANK_SIZE, unpack_entries
from aerobee.store.format.record_layout import (
    SYSFLAG_COMPRESSED,
    SYSFLAG_TRANSACTION_MASK,
)
from aerobee.store.format.tags import TagsCodes
from aerobee.store.repair.damage import Damage
from aerobee.store.repair.findings import Findings
from aerobee.store.repair.folder import Folder, QueueFolder
from aerobee.store.repair.log_check import LogCheck
from aerobee.store.repair.log_reader import LogReader
from aerobee.store.repair.queue_cursor import QueueCursor, read_entries

LARGEST_SHOWN = 10

_ENTRIES_PER_READ = 50_000
_FILES_MAX = 64
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class LargeMessage:
    """One of the largest messages."""

    size: int
    topic: str
    queue_id: int
    offset: int
    position: int


@dataclass(slots=True)
class QueueFigures:
    """One queue. Times are store times in Unix ms, 0 if unknown."""

    topic: str
    queue_id: int
    min_offset: int = 0
    max_offset: int = 0
    messages: int = 0
    bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0
    problem: str = ""


@dataclass(slots=True)
class LogFigures:
    """What only a walk through the log tells."""

    end: int = 0
    records: int = 0
    record_bytes: int = 0
    unqueued: int = 0
    compressed: int = 0
    property_bytes: int = 0
    damaged_regions: int = 0
    first_ms: int = 0
    last_ms: int = 0
    by_hour: Counter[int] = field(default_factory=Counter)
    """Hours since 1970 -> records."""


class QueueReader:
    """Reads the queues of a folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._files = FileCache(folder.disk, _FILES_MAX)
        self._log = LogReader(folder)
        self._largest: list[LargeMessage] = []

    def read(self) -> list[QueueFigures]:
        """All queues, sorted."""
        queues = sorted(self._folder.queues, key=lambda queue: (queue.topic, queue.queue_id))
        return [self._read_queue(queue) for queue in queues]

    @property
    def largest(self) -> list[LargeMessage]:
        """The largest messages of the queues read, the largest first."""
        return sorted(self._largest, key=lambda message: -message.size)[:LARGEST_SHOWN]

    def _read_queue(self, queue: QueueFolder) -> QueueFigures:
        figures = QueueFigures(queue.topic, queue.queue_id, problem=queue.problem)
        cursor = QueueCursor(queue.topic, queue.queue_id, queue)
        first: tuple[int, int] | None = None
        last: tuple[int, int] | None = None
        offset = queue.first
        while data := read_entries(self._folder, self._files, cursor, offset, _ENTRIES_PER_READ):
            positions, sizes, _ = unpack_entries(data)
            used = int(np.argmin(sizes > 0)) if not (sizes > 0).all() else len(sizes)
            positions, sizes = positions[:used], sizes[:used]
            kept = np.flatnonzero(
                (positions >= self._folder.log_min_offset) & (sizes != PRE_BLANK_SIZE)
            )
            if len(kept):
                if first is None:
                    figures.min_offset = offset + int(kept[0])
                    first = int(positions[kept[0]]), int(sizes[kept[0]])
                last = int(positions[kept[-1]]), int(sizes[kept[-1]])
                figures.messages += len(kept)
                figures.bytes += int(sizes[kept].sum())
                self._note_largest(queue, offset, positions, sizes, kept)
            figures.max_offset = offset + used
            offset += len(data) // ENTRY_SIZE
            if used < len(data) // ENTRY_SIZE:
                break
        if first is None or last is None:
            figures.min_offset = figures.max_offset
        else:
            figures.first_ms = self._stored_ms(*first)
            figures.last_ms = self._stored_ms(*last)
        return figures

    def _note_largest(
        self,
        queue: QueueFolder,
        offset: int,
        positions: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        sizes: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        kept: np.ndarray[tuple[int, ...], np.dtype[np.intp]],
    ) -> None:
        candidates = kept
        if len(kept) > LARGEST_SHOWN:
            chosen = np.argpartition(sizes[kept], -LARGEST_SHOWN)[-LARGEST_SHOWN:]
            candidates = kept[chosen]
        self._largest += [
            LargeMessage(
                int(sizes[index]),
                queue.topic,
                queue.queue_id,
                offset + index,
                int(positions[index]),
            )
            for index in candidates.tolist()
        ]
        if len(self._largest) > 100 * LARGEST_SHOWN:
            self._largest = self.largest

    def _stored_ms(self, position: int, size: int) -> int:
        record = self._log.record_at(position, size)
        return 0 if record is None else record.store_timestamp_ms


def walk_log(folder: Folder, on_progress: Callable[[int, int], None] | None) -> LogFigures:
    """Read the whole log."""
    figures = LogFigures()
    damage = Damage()
    total = folder.log_files_end - folder.log_min_offset
    log = LogCheck(
        folder,
        Findings(),
        damage,
        tags=TagsCodes(),
        on_bytes=lambda done: on_progress(done, total) if on_progress is not None else None,
    )
    for chunk in log:
        result = chunk.result
        transactions = result.sys_flags & SYSFLAG_TRANSACTION_MASK
        figures.unqueued += int(np.count_nonzero(transactions & UNQUEUED_BIT))
        figures.compressed += int(np.count_nonzero(result.sys_flags & SYSFLAG_COMPRESSED))
        ends = result.positions + result.sizes
        figures.property_bytes += int((ends - result.properties_starts).sum())
        hours, counts = np.unique(result.store_timestamps // _HOUR_MS, return_counts=True)
        figures.by_hour.update(dict(zip(hours.tolist(), counts.tolist(), strict=True)))
    figures.end = damage.log_end
    figures.records = log.totals.records
    figures.record_bytes = log.totals.record_bytes
    figures.damaged_regions = len(damage.regions)
    figures.first_ms = log.totals.first_timestamp_ms
    figures.last_ms = log.totals.last_timestamp_ms
    return figures


def tree_bytes(disk: RealDisk, path: str) -> int:
    """The lengths of all files below a folder."""
    return sum(
        tree_bytes(disk, f"{path}/{entry.name}") if entry.is_directory else entry.size_bytes
        for entry in disk.list(path)
    )
