"""What becomes of timer files at a start: the log is right, the wheel follows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.timer_checkpoint import TimerCheckpoint
from aerobee.store.format.timer_log import (
    TIMER_RECORD_SIZE,
    TimerRecord,
    encode_end_mark,
    records_per_file,
)
from aerobee.store.format.timer_recovery import RecoveredTimer, recover_timer
from aerobee.store.format.timer_wheel import TimerSlot

FILE_BYTES = 240
PER_FILE = records_per_file(FILE_BYTES)
NOW_MS = 1_700_000_000_000
SIZE = 100


def record_of(number: int, second: int, *, previous: int = -1) -> TimerRecord:
    """The number-th message, due so many seconds from now."""
    return TimerRecord(previous, 1, NOW_MS, second * 1000, number * SIZE, SIZE, 7)


def files_of(records: list[TimerRecord]) -> tuple[dict[int, bytes], dict[int, int]]:
    """The log's files, and the position of each record by its number."""
    files: dict[int, bytes] = {}
    positions: dict[int, int] = {}
    for first in range(0, len(records), PER_FILE):
        base = first // PER_FILE * FILE_BYTES
        part = records[first : first + PER_FILE]
        data = b"".join(record.encode() for record in part)
        for number in range(len(part)):
            positions[first + number] = base + number * TIMER_RECORD_SIZE
        if len(part) == PER_FILE:
            data += encode_end_mark(FILE_BYTES - len(data))
        files[base] = data.ljust(FILE_BYTES, b"\0")
    return files, positions


def wheel_of(records: list[TimerRecord], positions: dict[int, int]) -> list[TimerSlot]:
    slots: dict[int, TimerSlot] = {}
    for number, record in enumerate(records):
        at = positions[number]
        known = slots.get(record.slot_time_ms)
        slots[record.slot_time_ms] = TimerSlot(
            record.slot_time_ms,
            at if known is None else known.first_position,
            at,
            1 if known is None else known.count + 1,
        )
    return sorted(slots.values(), key=lambda slot: slot.time_ms)


def recover(
    files: dict[int, bytes], wheel: list[TimerSlot], flushed: int, *, offset: int = 99
) -> RecoveredTimer:
    return recover_timer(
        TimerCheckpoint(NOW_MS, flushed, offset, 99),
        wheel,
        {base: data.__bytes__ for base, data in files.items()},
        file_bytes=FILE_BYTES,
        queue_bounds=(0, 50),
        find_queue_offset=lambda at, size: at // SIZE if size == SIZE else None,
    )


def without_counts(slots: list[TimerSlot]) -> list[tuple[int, int, int]]:
    return [(slot.time_ms, slot.first_position, slot.last_position) for slot in slots]


def test_files_in_order_are_taken_as_they_are() -> None:
    records = [record_of(number, number // 3) for number in range(11)]
    files, positions = files_of(records)
    wheel = wheel_of(records, positions)
    found = recover(files, wheel, flushed=positions[10] + TIMER_RECORD_SIZE)
    assert found.slots == wheel
    assert found.queue_offset == 11
    assert found.log_end == positions[10] + TIMER_RECORD_SIZE


@given(st.lists(st.integers(0, 6), max_size=20), st.data())
def test_a_wheel_that_was_not_saved_is_made_from_the_log(
    seconds: list[int], data: st.DataObject
) -> None:
    records = [record_of(number, second) for number, second in enumerate(seconds)]
    files, positions = files_of(records)
    saved = data.draw(st.integers(0, len(records)))
    found = recover(files, wheel_of(records[:saved], positions), flushed=0)
    wanted = wheel_of(records, positions)
    assert without_counts(found.slots) == without_counts(wanted)
    # The numbers in the slots are only what the wheel had.
    assert sum(slot.count for slot in found.slots) == saved


@given(st.integers(1, 20), st.data())
def test_a_torn_log_takes_the_slots_back_with_it(count: int, data: st.DataObject) -> None:
    records = [record_of(number, number % 4) for number in range(count)]
    files, positions = files_of(records)
    kept = data.draw(st.integers(0, count - 1))
    base = positions[kept] // FILE_BYTES * FILE_BYTES
    files[base] = files[base][: positions[kept] - base].ljust(FILE_BYTES, b"\0")
    found = recover(files, wheel_of(records, positions), flushed=0)
    assert found.log_end == positions[kept]
    last = {slot.time_ms: slot.last_position for slot in found.slots}
    for slot in wheel_of(records[:kept], positions):
        assert last[slot.time_ms] == slot.last_position


def test_reading_goes_on_behind_the_message_of_the_last_record() -> None:
    files, positions = files_of([record_of(number, 5) for number in range(3)])
    assert recover(files, [], flushed=0).queue_offset == 3
    assert positions[2] == 2 * TIMER_RECORD_SIZE


def test_reading_goes_on_at_the_checkpoint_if_the_last_record_names_no_message() -> None:
    bad = TimerRecord(-1, 1, NOW_MS, 1000, 5 * SIZE, SIZE + 1, 7)
    files, _ = files_of([bad])
    assert recover(files, [], flushed=0, offset=2).queue_offset == 2
    assert recover({}, [], flushed=0, offset=2).queue_offset == 2
    assert recover({0: bytes(FILE_BYTES)}, [], flushed=0, offset=77).queue_offset == 50
