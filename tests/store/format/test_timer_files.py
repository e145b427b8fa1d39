"""Timer wheel, timer log and timer checkpoint: bytes as worked out by hand, and back again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.timer_checkpoint import (
    TIMER_CHECKPOINT_SIZE,
    TimerCheckpoint,
    TimerCheckpointIllegal,
)
from aerobee.store.format.timer_log import (
    END_MARK_SIZE,
    MAGIC_BASE,
    MAGIC_DELETE,
    TIMER_RECORD_SIZE,
    TimerLogCorrupt,
    TimerRecord,
    decode_timer_record,
    encode_end_mark,
    records_per_file,
    scan_timer_log,
)
from aerobee.store.format.timer_wheel import (
    SLOTS_PER_WHEEL,
    WHEEL_SIZE,
    TimerSlot,
    TimerWheelCorrupt,
    decode_wheel,
    encode_slot,
    encode_wheel,
    slot_index,
)

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
NUMBERS = st.integers(0, (1 << 63) - 1)
TIMES = st.integers(0, (1 << 43) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
RECORDS = st.builds(
    TimerRecord,
    previous_position=I64,
    magic=st.integers(0, 15),
    write_time_ms=st.integers(0, 1 << 43),
    delay_ms=I32,
    commit_offset=I64,
    size=I32,
    topic_hash=I32,
)


def test_a_log_record_looks_as_documented() -> None:
    record = TimerRecord(
        previous_position=-1,
        magic=MAGIC_BASE,
        write_time_ms=1_700_000_000_000,
        delay_ms=100_000,
        commit_offset=0x40000400,
        size=197,
        topic_hash=0x8E987641 - (1 << 32),
    )
    data = bytes.fromhex(
        "00000034 ffffffffffffffff 00000001 0000018bcfe56800 000186a0 0000000040000400 000000c5"
        "8e987641 0000000000000000"
    )
    assert record.encode() == data
    assert decode_timer_record(data) == record
    assert record.slot_time_ms == 1_700_000_100_000


def test_a_wheel_slot_looks_as_documented() -> None:
    slot = TimerSlot(1_700_000_100_000, first_position=0, last_position=0, count=1)
    assert encode_slot(slot) == bytes.fromhex(
        "000000006553f164 0000000000000000 0000000000000000 00000001 00000000"
    )
    assert slot_index(slot.time_ms) == 512_100
    wheel = encode_wheel([slot])
    assert len(wheel) == WHEEL_SIZE == 38_707_200
    assert wheel[16_387_200 : 16_387_200 + 32] == encode_slot(slot)


def test_slots_come_in_the_order_of_the_wheel() -> None:
    late = TimerSlot(SLOTS_PER_WHEEL * 1000 * 1484, 52, 104, 2)
    early = TimerSlot(late.time_ms - 1000, 0, 0, 1)
    assert decode_wheel(encode_wheel([early, late])) == [late, early]


@pytest.mark.parametrize("size", [0, 32, WHEEL_SIZE - 1, WHEEL_SIZE + 32])
def test_a_wheel_has_exactly_one_length(size: int) -> None:
    with pytest.raises(TimerWheelCorrupt, match=str(size)):
        decode_wheel(bytes(size))


@given(st.lists(RECORDS, max_size=8), st.integers(0, 60))
def test_a_log_file_gives_back_its_records(records: list[TimerRecord], rest: int) -> None:
    data = b"".join(record.encode() for record in records)
    marked = data + encode_end_mark(rest + END_MARK_SIZE) + bytes(rest)
    for file, is_full in ((data, False), (data + bytes(rest), False), (marked, True)):
        scan = scan_timer_log(file)
        assert list(scan) == records
        assert (scan.end, scan.is_full) == (len(data), is_full)
        assert scan.slot_times_ms() == [record.slot_time_ms for record in records]


@given(st.binary(max_size=200))
def test_any_bytes_are_scanned_without_complaint(data: bytes) -> None:
    scan = scan_timer_log(data)
    assert scan.end == TIMER_RECORD_SIZE * len(list(scan)) <= len(data)


@pytest.mark.parametrize(
    ("at", "byte"), [(3, 53), (12, 1), (15, 16)], ids=["size", "high magic", "fifth bit"]
)
def test_what_is_no_record_ends_the_log(at: int, byte: int) -> None:
    record = TimerRecord(-1, MAGIC_BASE | MAGIC_DELETE, 1, 1, 1, 1, 1)
    data = bytearray(record.encode() * 3)
    data[TIMER_RECORD_SIZE + at] = byte
    assert list(scan_timer_log(data)) == [record]
    with pytest.raises(TimerLogCorrupt):
        decode_timer_record(data, TIMER_RECORD_SIZE)
    with pytest.raises(TimerLogCorrupt, match="no whole"):
        decode_timer_record(data, 2 * TIMER_RECORD_SIZE + 1)


def test_a_file_keeps_room_for_its_end_mark() -> None:
    assert records_per_file(1024) == 19
    assert records_per_file(100 * 1024 * 1024) == (104_857_600 - 16) // 52
    assert records_per_file(0) == 0


def test_a_checkpoint_is_one_page() -> None:
    checkpoint = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7)
    data = checkpoint.encode()
    assert len(data) == TIMER_CHECKPOINT_SIZE
    assert data[:56] == b"".join(number.to_bytes(8, "big") for number in range(1, 8))
    assert not any(data[56:])
    assert TimerCheckpoint.decode(data[:32]) == TimerCheckpoint(1, 2, 3, 4)


@given(st.builds(TimerCheckpoint, TIMES, I64, NUMBERS, I64, I64, TIMES, I64))
def test_a_checkpoint_comes_back(checkpoint: TimerCheckpoint) -> None:
    assert TimerCheckpoint.decode(checkpoint.encode()) == checkpoint


@pytest.mark.parametrize(
    "data", [b'{"dataVersion":{"counter":7},"topicConfigTable":{}}', b"\xff" * 32]
)
def test_what_is_no_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(TimerCheckpointIllegal, match="impossible values"):
        TimerCheckpoint.decode(data)


def test_a_short_checkpoint_is_refused() -> None:
    with pytest.raises(TimerCheckpointIllegal, match="31 bytes"):
        TimerCheckpoint.decode(bytes(31))
