"""Faults of the timer's files: what `timerlog/`, `timerwheel` and the commit log say differently.

None of the timer's files has a checksum. But records and an end mark fill a file of the timer log,
each record names its message and the record before it in its slot, and each slot of the wheel that
is still to come names the first and the last of its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.faults import Fault, FaultKind
from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.open_file import OpenFile, read_used, used_size
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.store.format.delayed_records import PRECISION_MS, TIMER_TOPIC
from aerobee.store.format.names import file_name, is_file_name
from aerobee.store.format.timer_checkpoint import TimerCheckpoint, TimerCheckpointIllegal
from aerobee.store.format.timer_log import TIMER_RECORD_SIZE, TimerRecord, scan_timer_log
from aerobee.store.format.timer_wheel import NO_POSITION, SLOT_DTYPE, SLOT_SIZE, WHEEL_SIZE

TIMER_LOG: Final = "timerlog"
TIMER_WHEEL: Final = "timerwheel"
_CHECKPOINT: Final = "config/timercheck"

_Slots = dict[int, tuple[int, int]]
"""The first and the last record of a time unit, by their positions in the timer log."""


def timer_faults(facts: StoreFacts) -> Iterator[Fault]:
    """Of a store whose broker stopped cleanly: a running one writes these files one by one."""
    if not facts.is_clean:
        return
    try:
        checkpoint = TimerCheckpoint.decode(facts.store.path(_CHECKPOINT).read_bytes())
    except (OSError, TimerCheckpointIllegal):
        return
    paths, read_ms = _log_files(facts.store), checkpoint.last_read_time_ms
    end = int(paths[-1].name) + paths[-1].stat().st_size if paths else 0
    flushed = checkpoint.last_log_flushed_position
    if flushed > end:
        last = f"/{paths[-1].name} ends at byte {end}" if paths else " has no file"
        text = f"it says that the timer log was written up to byte {flushed}, but {TIMER_LOG}{last}"
        yield Fault(FaultKind.CHANGED_TABLE, _CHECKPOINT, None, text)
    if not paths:
        return
    waiting: list[tuple[int, TimerRecord]] = []
    for path, following in zip(paths, [*paths[1:], None], strict=True):
        size, base = path.stat().st_size, int(path.name)
        data = read_used(StoreFile(str(path), base, size), TIMER_RECORD_SIZE)
        scan = scan_timer_log(data)
        is_blank = not used_size(data[scan.end :])
        if not scan.is_full and (following is not None or not is_blank):
            text = f"after {len(scan.records)} records it has bytes that are none"
            yield _fault(path.name, scan.end, text)
        elif following is not None and base + size != int(following.name):
            yield _fault(path.name, size, f"{following.name} does not follow it")
        is_to_come = np.array(scan.slot_times_ms(), dtype=np.int64) >= read_ms
        waiting += (
            (base + TIMER_RECORD_SIZE * number, one)
            for number, one in enumerate(scan)
            if is_to_come[number]
        )
    file_bytes = max(1, *(path.stat().st_size for path in paths))
    held: _Slots = {}
    for at, text in _of_records(facts, waiting, held):
        yield _fault(file_name(at - at % file_bytes), at % file_bytes, text)
    yield from _of_wheel(facts.store, read_ms, held, file_bytes)


def _log_files(store: StoreFolder) -> list[Path]:
    folder = store.path(TIMER_LOG)
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in paths if is_file_name(path.name))


def _of_records(
    facts: StoreFacts, waiting: Iterable[tuple[int, TimerRecord]], held: _Slots
) -> Iterator[tuple[int, str]]:
    """Positions of records that contradict another; fills `held`."""
    bounds = facts.bounds
    with closing(LogLookup(facts.store)) as lookup:
        for at, one in waiting:
            unit = (one.write_time_ms + one.delay_ms) // PRECISION_MS
            first, before = held.get(unit, (at, NO_POSITION))
            held[unit] = first, at
            if one.previous_position != before:
                yield at, f"a record follows {one.previous_position} in its slot, not {before}"
            elif bounds.begin <= one.commit_offset < bounds.end:
                message = lookup.record_at(one.commit_offset)
                if message is None or message.topic != TIMER_TOPIC:
                    yield at, f"a record names no timer at byte {one.commit_offset} of the log"


def _of_wheel(store: StoreFolder, read_ms: int, held: _Slots, file_bytes: int) -> Iterator[Fault]:
    """The first slot to come, if any, for which the timer log has other records."""
    path = store.path(TIMER_WHEEL)
    try:
        if path.stat().st_size != WHEEL_SIZE:
            return
        told = _slots_of_wheel(path, read_ms // PRECISION_MS)
    except OSError:
        return
    differs = sorted(unit for unit in told.keys() | held.keys() if told.get(unit) != held.get(unit))
    if differs:
        at = next(slots[differs[0]][0] for slots in (told, held) if differs[0] in slots)
        text = (
            f"{len(differs)} of its slots name other records than the timer log has; the first "
            f"should be in {TIMER_LOG}/{file_name(max(0, at - at % file_bytes))}"
        )
        yield Fault(FaultKind.CHANGED_TABLE, TIMER_WHEEL, None, text)


def _slots_of_wheel(path: Path, begin: int) -> _Slots:
    """Of time units from `begin` on."""
    slots: _Slots = {}
    with OpenFile(StoreFile(str(path), 0, WHEEL_SIZE)) as wheel:
        for first, end in wheel.data_ranges(0, WHEEL_SIZE):
            first -= first % SLOT_SIZE
            data = wheel.read(first, min(WHEEL_SIZE, end + -end % SLOT_SIZE))
            found = np.frombuffer(data, SLOT_DTYPE)
            for one in found[found["unit"] >= begin]:
                slots[int(one["unit"])] = int(one["first"]), int(one["last"])
    return slots


def _fault(name: str, position: int, text: str) -> Fault:
    return Fault(FaultKind.CHANGED_TABLE, f"{TIMER_LOG}/{name}", position, text)
