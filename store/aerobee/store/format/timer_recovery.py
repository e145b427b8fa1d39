"""What Apache's timer reads from its files when a broker starts. Pure: works on bytes already read.

The log is authoritative, and the wheel follows it. Records are replayed from one file before the
flushed position up to the first bytes that are not a record: each becomes the last one of its slot.
If a slot points after the log's end (the log was damaged), the log is replayed from the slot's
first record. The timer topic is then read from the message after that of the log's last record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from aerobee.store.format.delayed_records import PRECISION_MS
from aerobee.store.format.timer_checkpoint import TimerCheckpoint
from aerobee.store.format.timer_log import (
    COMMIT_OFFSET_AT,
    TIMER_RECORD_SIZE,
    scan_timer_log,
)
from aerobee.store.format.timer_wheel import SLOTS_PER_WHEEL, TimerSlot, slot_index

ReadFile = Callable[[], bytes]
"""Reads a whole timer log file."""

FindQueueOffset = Callable[[int, int], int | None]
"""(commit log offset, size) -> queue offset of the record there; None if there is none."""


@dataclass(frozen=True, slots=True)
class RecoveredTimer:
    """`log_end` is where the next record will be written; `slots` are in the order of the wheel."""

    log_end: int
    queue_offset: int
    slots: list[TimerSlot]


def recover_timer(
    checkpoint: TimerCheckpoint,
    wheel: list[TimerSlot],
    log: Mapping[int, ReadFile],
    *,
    file_bytes: int,
    queue_bounds: tuple[int, int],
    find_queue_offset: FindQueueOffset,
) -> RecoveredTimer:
    """The state from which the timer would continue with these files.

    Args:
        log: the log's files by the position of their first byte.
        file_bytes: the length of such a file.
        queue_bounds: minimum and maximum offset of the timer topic's queue.
    """
    recovery = _Recovery(wheel, log, file_bytes)
    begin = max(0, checkpoint.last_log_flushed_position - (file_bytes if log else 0))
    log_end = recovery.replay(begin, until=None)
    first_behind = recovery.first_of_slots_behind(log_end, checkpoint.last_read_time_ms)
    last_read = recovery.queue_offset_at(log_end, find_queue_offset)
    queue_offset = checkpoint.last_queue_offset if last_read is None else last_read + 1
    queue_offset = min(queue_offset, checkpoint.master_queue_offset)
    low, high = queue_bounds
    if first_behind is not None:
        recovery.replay(first_behind, until=log_end)
    return RecoveredTimer(log_end, max(low, min(queue_offset, high)), recovery.slots())


class _Recovery:
    """The wheel while the log is replayed into it."""

    def __init__(self, wheel: list[TimerSlot], log: Mapping[int, ReadFile], file_bytes: int):
        self._slots = {slot_index(slot.time_ms): slot for slot in wheel}
        self._log = log
        self._bases = sorted(log)
        self._file_bytes = file_bytes
        for base, following in pairwise(self._bases):
            if base + file_bytes != following:
                raise ValueError(f"the timer log has a hole after its file {base}")

    def slots(self) -> list[TimerSlot]:
        return [self._slots[index] for index in sorted(self._slots)]

    def replay(self, begin: int, *, until: int | None) -> int:
        """Apply the records from the file that contains `begin` on to the slots; returns where they
        end."""
        end = 0
        for base in self._bases[max(0, bisect_right(self._bases, begin) - 1) :]:
            if until is not None and base >= until:
                break
            data = self._log[base]()
            scan = scan_timer_log(data if until is None else data[: until - base])
            for number, time_ms in enumerate(scan.slot_times_ms()):
                self._note(time_ms, base + number * TIMER_RECORD_SIZE)
            end = base + scan.end
            if not scan.is_full:
                break
        return end

    def _note(self, time_ms: int, position: int) -> None:
        index = slot_index(time_ms)
        unit_ms = time_ms // PRECISION_MS * PRECISION_MS
        slot = self._slots.get(index)
        if slot is not None and slot.time_ms == unit_ms:
            first, count, magic = slot.first_position, slot.count, slot.magic
        else:
            # The slot's counter is kept, whatever time it counted for.
            first = position
            count, magic = (0, 0) if slot is None else (slot.count, slot.magic)
        self._slots[index] = TimerSlot(unit_ms, first, position, count, magic)

    def first_of_slots_behind(self, log_end: int, read_time_ms: int) -> int | None:
        """The lowest first position among future slots that point after the log's end."""
        wheel_ms = SLOTS_PER_WHEEL * PRECISION_MS
        read_unit_ms = read_time_ms // PRECISION_MS * PRECISION_MS
        firsts = [
            slot.first_position
            for slot in self._slots.values()
            if slot.last_position > log_end and 0 <= slot.time_ms - read_unit_ms < wheel_ms
        ]
        first = min(firsts, default=log_end)
        return first if first < log_end else None

    def queue_offset_at(self, log_end: int, find: FindQueueOffset) -> int | None:
        """The queue offset of the message that the last record refers to."""
        at = log_end - TIMER_RECORD_SIZE + COMMIT_OFFSET_AT
        index = bisect_right(self._bases, at) - 1
        if at < 0 or index < 0:
            return None
        data = self._log[self._bases[index]]()
        in_file = at - self._bases[index]
        commit_offset = int.from_bytes(data[in_file : in_file + 8], "big", signed=True)
        size = int.from_bytes(data[in_file + 8 : in_file + 12], "big", signed=True)
        return find(commit_offset, size) if commit_offset >= 0 and size > 0 else None
