"""Which delayed messages Apache's broker has delivered, according to its files.

    config/delayOffset.json       how far each delay level is
    timerlog/, config/timercheck  what is in the timer's wheel, and what it has taken in

Owns: turning these files into facts of the timer journal, when a folder is opened that Apache's
broker has used since. A missing or unreadable file says nothing: everything that it could have
shown as delivered counts as waiting. Blocks on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final
from zlib import crc32

import numpy as np

from aerobee.broker.timers.entries import (
    TIMER_QUEUE,
    Floor,
    Marked,
    Removed,
    Source,
)
from aerobee.broker.timers.frontier import Region
from aerobee.broker.timers.pending import FIRST, NUMBER_MAX, Int64Array, Key
from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.atomic_file import read_with_backup
from aerobee.store.engine.tables.delay_offset_table import DELAY_OFFSETS_PATH, DelayOffsetTable
from aerobee.store.format.consume_queue_entry import unpack_entries
from aerobee.store.format.delayed_records import (
    TIMER_TOPIC,
    NotDelayed,
    recalls,
    timer_due_ms,
)
from aerobee.store.format.names import is_file_name, parse_file_name
from aerobee.store.format.progress_file import TIMER_SEEN
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.record_view import Record
from aerobee.store.format.tags import SCHEDULE_TOPIC
from aerobee.store.format.timer_checkpoint import TimerCheckpoint, TimerCheckpointIllegal
from aerobee.store.format.timer_files import timers_in_wheel
from aerobee.store.format.timer_log import scan_timer_log

CHECKPOINT_PATH: Final = "config/timercheck"
LOG_DIRECTORY: Final = "timerlog"
WHEEL_PATH: Final = "timerwheel"
SEEN_PATH: Final = f"config/{TIMER_SEEN}"
"""Which state of these files is already in the journal."""

_ENTRIES_PER_READ: Final = 65_536
_SOURCES_PER_ENTRY: Final = 1_000


@dataclass(frozen=True, slots=True)
class TakenOver:
    """`entries` for the journal; once they are in it, `seen` becomes the content of SEEN_PATH."""

    entries: tuple[Marked | Removed, ...]
    seen: bytes


def read_apache_files(disk: Disk, store: MessageStore) -> TakenOver | None:
    """What is not known to be in the journal; None if nothing is new. Raises OSError."""
    seen = seen_mark(disk)
    if seen is None or _read(disk, SEEN_PATH) == seen:
        return None
    entries: list[Marked | Removed] = []
    if floors := _level_floors(disk, store):
        entries.append(Marked(tuple(floors)))
    entries += _timer_entries(disk, store)
    return TakenOver(tuple(entries), seen)


def seen_mark(disk: Disk) -> bytes | None:
    """What SEEN_PATH says about the files as they are; None if there are none."""
    parts = [_read(disk, path) for path in (DELAY_OFFSETS_PATH, CHECKPOINT_PATH)]
    if not any(parts):
        return None
    return " ".join(f"{crc32(part):08x}" for part in parts).encode() + b"\n"


def forget_apache_files(disk: Disk) -> None:
    """Called when the log loses what they describe or is replaced. Blocks; raises OSError."""
    paths = [CHECKPOINT_PATH, SEEN_PATH, DELAY_OFFSETS_PATH, f"{DELAY_OFFSETS_PATH}.bak"]
    for path in paths:
        if disk.exists(path):
            disk.remove(path)
            disk.fsync_directory("config")


def _read(disk: Disk, path: str) -> bytes:
    return disk.read_file(path) if disk.exists(path) else b""


# ------------------------------------------------------------------------------------- levels


def _level_floors(disk: Disk, store: MessageStore) -> list[Floor]:
    try:
        table = read_with_backup(disk, DELAY_OFFSETS_PATH, DelayOffsetTable.load).value
    except StoreUnusable:
        return []
    floors = []
    for level, offset in ({} if table is None else table.offsets()).items():
        bounds = store.queues.bounds(SCHEDULE_TOPIC, level - 1)
        # Apache's broker corrects what it reads in the same way.
        floor = min(max(offset, bounds.min_offset), bounds.max_offset)
        if floor:
            floors.append(Floor(level, floor))
    return floors


# ------------------------------------------------------------------------------------- the timer


def _timer_entries(disk: Disk, store: MessageStore) -> Iterator[Marked | Removed]:
    try:
        checkpoint = TimerCheckpoint.decode(disk.read_file(CHECKPOINT_PATH))
    except (FileNotFoundError, TimerCheckpointIllegal):
        return
    listed = disk.list(LOG_DIRECTORY) if disk.exists(LOG_DIRECTORY) else []
    log = {
        parse_file_name(entry.name): partial(disk.read_file, f"{LOG_DIRECTORY}/{entry.name}")
        for entry in listed
        if is_file_name(entry.name)
    }
    last = _last_position(log)
    if last is None and checkpoint.last_queue_offset > 0:
        return  # the log that says what waits is gone
    read_ms = checkpoint.last_read_time_ms
    wheel = timers_in_wheel(log, read_time_ms=read_ms, log_begin=store.min_offset)
    queue = _TimerQueue(store)
    last_record = None if last is None else queue.record_at(last)
    taken_in = checkpoint.last_queue_offset
    if last_record is not None:
        # The messages up to this one are in the log, even if the checkpoint says less.
        taken_in = max(taken_in, last_record.queue_offset + 1)
    taken_in = min(taken_in, queue.end)
    if taken_in > queue.begin:
        yield Marked((Region(FIRST, Key(read_ms, NUMBER_MAX), taken_in),))
    waiting = np.sort(wheel.positions[~wheel.is_delete])
    deletes = wheel.positions[wheel.is_delete].tolist()
    dropped = {name for name in map(queue.recalled_by, deletes) if name}
    done: list[Source] = []
    for offset, position in queue.entries(taken_in):
        at = int(np.searchsorted(waiting, position))
        is_waiting = at < len(waiting) and int(waiting[at]) == position
        if is_waiting and not dropped:
            continue
        source = queue.done_source(offset, position, read_ms, is_waiting, dropped)
        if source is not None:
            done.append(source)
    for first in range(0, len(done), _SOURCES_PER_ENTRY):
        yield Removed(tuple(done[first : first + _SOURCES_PER_ENTRY]), "as Apache's timer said")


def _last_position(log: dict[int, partial[bytes]]) -> int | None:
    """The position of the message that was taken in last."""
    for base in sorted(log, reverse=True):
        records = scan_timer_log(log[base]()).records
        if len(records):
            return int(records["commit_offset"][-1])
    return None


class _TimerQueue:
    """The timer topic's queue and its records."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        bounds = store.queues.bounds(TIMER_TOPIC, 0)
        self.begin, self.end = bounds.min_offset, bounds.max_offset
        self._sizes: dict[int, int] = {}

    def entries(self, end: int) -> Iterator[tuple[int, int]]:
        """Offsets and positions below `end`."""
        for start in range(self.begin, end, _ENTRIES_PER_READ):
            count = min(_ENTRIES_PER_READ, end - start)
            columns = unpack_entries(self._store.queues.read_entries(TIMER_TOPIC, 0, start, count))
            positions: Int64Array = columns[0]
            self._sizes = dict(zip(positions.tolist(), columns[1].tolist(), strict=True))
            yield from zip(range(start, start + len(positions)), positions.tolist(), strict=True)

    def record_at(self, position: int) -> Record | None:
        """None if there is no record of the timer topic at this position, or no longer."""
        try:
            size = self._sizes.get(position) or int.from_bytes(
                self._store.log.record_at(position, 4), "big"
            )
            record = Record(self._store.log.record_at(position, size))
            return record if record.topic == TIMER_TOPIC else None
        except (MessageNotFound, RecordCorrupt):
            return None

    def recalled_by(self, position: int) -> str | None:
        record = self.record_at(position)
        return None if record is None else recalls(record)

    def done_source(
        self, offset: int, position: int, read_ms: int, is_waiting: bool, dropped: set[str]
    ) -> Source | None:
        """A message that is due after `read_ms` and will not be delivered from here: it was
        recalled, or postponed by being stored again. None: it waits, or its time decides."""
        record = self.record_at(position)
        if record is None:
            return None
        try:
            due_ms = timer_due_ms(record)
        except NotDelayed:
            return None
        if due_ms <= read_ms or recalls(record) is not None:
            return None
        unique_key = record.unique_key or ""
        names = {unique_key, f"{record.property_value('REAL_TOPIC')}+{unique_key}"}
        if is_waiting and not names & dropped:
            return None
        return Source(TIMER_QUEUE, offset, due_ms)
