"""What Apache's broker needs to take over the waiting messages, written when this broker stops.

    config/delayOffset.json       how far each delay level is
    timerlog/, timerwheel         what waits for a time, as if Apache's timer had taken it in
    config/timercheck             written last: without it the other two do not count

Owns: the order of these writes, and the mark that tells the next start that the journal already has
their content. Blocks on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.broker.delayed.apache_files import (
    CHECKPOINT_PATH,
    LOG_DIRECTORY,
    SEEN_PATH,
    WHEEL_PATH,
    seen_mark,
)
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.tables.atomic_file import read_with_backup, replace_atomically
from aerobee.store.engine.tables.delay_offset_table import DELAY_OFFSETS_PATH, DelayOffsetTable
from aerobee.store.format.names import file_name, is_file_name
from aerobee.store.format.timer_checkpoint import TimerCheckpoint, TimerCheckpointIllegal
from aerobee.store.format.timer_files import (
    TIMER_LOG_FILE_BYTES,
    LastTimer,
    TimerFiles,
    TimerRows,
    timer_files,
)

_PAGE: Final = 4_096


@dataclass(frozen=True, slots=True)
class WaitsOn:
    """What waits when a broker stops. `last`: the last record of the timer queue, None if it never
    had any; `level_floors`: for each level, the offset below which all is done."""

    rows: TimerRows
    last: LastTimer | None
    level_floors: Mapping[int, int]
    now_ms: int


def write_apache_files(disk: Disk, waits: WaitsOn) -> None:
    """Raises OSError; Apache's broker may then deliver some messages again."""
    if waits.level_floors:
        _write_level_floors(disk, waits)
    if waits.last is not None:
        _write_timer_files(disk, waits)
    if (seen := seen_mark(disk)) is not None:
        replace_atomically(disk, SEEN_PATH, seen)


def _write_level_floors(disk: Disk, waits: WaitsOn) -> None:
    try:
        table = read_with_backup(disk, DELAY_OFFSETS_PATH, DelayOffsetTable.load).value
    except StoreUnusable:
        table = None
    table = table or DelayOffsetTable()
    before = table.changes
    for level, floor in waits.level_floors.items():
        table.put(level, floor)
    if table.changes != before:
        replace_atomically(disk, DELAY_OFFSETS_PATH, table.snapshot_bytes(waits.now_ms))


def _write_timer_files(disk: Disk, waits: WaitsOn) -> None:
    former = None
    if disk.exists(CHECKPOINT_PATH):
        try:
            former = TimerCheckpoint.decode(disk.read_file(CHECKPOINT_PATH))
        except TimerCheckpointIllegal:
            former = None
        disk.remove(CHECKPOINT_PATH)
        disk.fsync_directory("config")
    files = timer_files(
        waits.rows,
        waits.last,
        now_ms=waits.now_ms,
        file_bytes=_file_bytes(disk),
        former=former,
    )
    _write_log(disk, files)
    _write_wheel(disk, files)
    _write_whole(disk, CHECKPOINT_PATH, files.checkpoint.encode())
    disk.fsync_directory("config")


def _file_bytes(disk: Disk) -> int:
    """The length of the existing files: Apache's broker refuses other lengths."""
    if disk.exists(LOG_DIRECTORY):
        for entry in disk.list(LOG_DIRECTORY):
            if is_file_name(entry.name) and entry.size_bytes > 0:
                return entry.size_bytes
    return TIMER_LOG_FILE_BYTES


def _write_log(disk: Disk, files: TimerFiles) -> None:
    if not disk.exists(LOG_DIRECTORY):
        disk.make_directory(LOG_DIRECTORY)
        disk.fsync_directory("")
    for entry in disk.list(LOG_DIRECTORY):
        if not entry.is_directory:
            disk.remove(f"{LOG_DIRECTORY}/{entry.name}")
    for base, content in files.log_files():
        file = disk.open_file(f"{LOG_DIRECTORY}/{file_name(base)}", create=True)
        try:
            file.truncate(files.file_bytes)
            file.write_at(0, [content])
            file.datasync()
        finally:
            file.close()
    disk.fsync_directory(LOG_DIRECTORY)


def _write_wheel(disk: Disk, files: TimerFiles) -> None:
    """Nearly all of it is zero and takes no space."""
    wheel = files.wheel
    pages = np.frombuffer(wheel, np.uint8).reshape(-1, _PAGE)
    file = disk.open_file(WHEEL_PATH, create=True)
    try:
        file.truncate(0)
        file.truncate(len(wheel))
        for page in np.flatnonzero(pages.any(axis=1)).tolist():
            file.write_at(page * _PAGE, [wheel[page * _PAGE : (page + 1) * _PAGE]])
        file.datasync()
    finally:
        file.close()
    disk.fsync_directory("")


def _write_whole(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open_file(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [data])
        file.datasync()
    finally:
        file.close()
