"""Timer files between Apache's broker and this one: what waits goes on, nothing comes twice."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.delayed_records import TIMER_TOPIC, recalls, timer_due_ms
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.record import Record
from aerobee.store.format.timer_checkpoint import TimerCheckpoint
from aerobee.store.format.timer_files import (
    OVERDUE_SLOTS_MS,
    ROLL_WINDOW_MS,
    LastTimer,
    TimerFiles,
    TimerRows,
    timer_files,
    timers_in_wheel,
)
from aerobee.store.format.timer_log import (
    MAGIC_ROLL,
    TimerRecord,
    decode_timer_record,
    encode_end_mark,
    records_per_file,
    scan_timer_log,
)
from aerobee.store.format.timer_recovery import RecoveredTimer, recover_timer
from aerobee.store.format.timer_wheel import decode_wheel, encode_wheel

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
FILE_BYTES = 1_024
NOW = 1_700_000_000_400
WRITE = 1_700_000_000_000
SIZE = 100
DAY = 86_400_000

# ------------------------------------------------------------------------------------- golden


@dataclass(frozen=True)
class Golden:
    """The timer's files of a golden store, and the records of its timer topic."""

    manifest: dict[str, Any]
    wheel: bytes
    log: dict[int, bytes]
    checkpoint: bytes
    records: list[Record]

    @property
    def written(self) -> list[TimerRecord]:
        return [record for base in sorted(self.log) for record in scan_timer_log(self.log[base])]


@pytest.fixture(scope="module")
def golden(golden_log: Any) -> Golden:
    name = golden_log.name
    files: dict[str, bytes] = {}
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        for member in archive.getmembers():
            path = member.name.removeprefix(f"{name}/")
            if member.isfile() and path.startswith(("timer", "config/timercheck")):
                content = archive.extractfile(member)
                assert content is not None
                files[path] = content.read()
    return Golden(
        golden_log.manifest,
        files["timerwheel"],
        {int(path[9:]): data for path, data in files.items() if path.startswith("timerlog/")},
        files["config/timercheck"],
        [record for record in golden_log.records() if record.topic == TIMER_TOPIC],
    )


def rows_of(records: list[Record]) -> TimerRows:
    def column(values: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array(values, np.int64)

    return TimerRows(
        deliver_ms=column([timer_due_ms(record) for record in records]),
        positions=column([record.physical_offset for record in records]),
        sizes=column([record.size for record in records]),
        topic_hashes=column(
            [java_string_hash(record.property_value("REAL_TOPIC") or "") for record in records]
        ),
        queue_offsets=column([record.queue_offset for record in records]),
        is_delete=np.array([recalls(record) is not None for record in records]),
    )


def last_of(records: list[Record]) -> LastTimer:
    last = records[-1]
    topic = last.property_value("REAL_TOPIC") or ""
    return LastTimer(last.physical_offset, last.size, java_string_hash(topic), last.queue_offset)


def whole_files(files: TimerFiles) -> dict[int, bytes]:
    return {base: data.ljust(files.file_bytes, b"\0") for base, data in files.log_files()}


def test_files_of_apache_are_written_as_they_were_read(golden: Golden) -> None:
    assert encode_wheel(decode_wheel(golden.wheel)) == golden.wheel
    assert TimerCheckpoint.decode(golden.checkpoint).encode() == golden.checkpoint
    per_file = records_per_file(FILE_BYTES)
    for base, data in golden.log.items():
        records = list(scan_timer_log(data))
        again = b"".join(record.encode() for record in records)
        if len(records) == per_file and base != max(golden.log):
            again += encode_end_mark(FILE_BYTES - len(again))
        assert again.ljust(FILE_BYTES, b"\0") == data


def test_taking_all_messages_in_at_apaches_time_gives_apaches_files(golden: Golden) -> None:
    """Slots, links, rolls, deletes, counts and the ends of files, without a byte's difference."""
    times_ms = {record.write_time_ms for record in golden.written}
    files = timer_files(
        rows_of(golden.records),
        last_of(golden.records),
        now_ms=min(times_ms) + 1,
        file_bytes=FILE_BYTES,
    )
    assert bytes(files.wheel) == golden.wheel
    if len(times_ms) == 1:
        assert whole_files(files) == golden.log
    else:
        # Apache took them in at different times, so only what is counted from there differs.
        ours = [record for _, data in files.log_files() for record in scan_timer_log(data)]
        assert [taken_in_at_once(record) for record in ours] == [
            taken_in_at_once(record) for record in golden.written
        ]
    checkpoint = TimerCheckpoint.decode(golden.checkpoint)
    for name in ("last_log_flushed_position", "last_queue_offset", "master_queue_offset"):
        assert getattr(files.checkpoint, name) == getattr(checkpoint, name), name


def taken_in_at_once(record: TimerRecord) -> tuple[int, ...]:
    return (
        *(record.previous_position, record.magic, record.slot_time_ms),
        *(record.commit_offset, record.size, record.topic_hash),
    )


def test_what_waits_in_apaches_files_is_found(golden: Golden) -> None:
    checkpoint = TimerCheckpoint.decode(golden.checkpoint)
    found = timers_in_wheel(readers(golden.log), read_time_ms=checkpoint.last_read_time_ms)
    pending = golden.manifest.get("specialSends")
    if pending is not None:
        wanted = {
            send["physicalOffset"]
            for send in pending
            if send["kind"] in ("timer-pending", "timer-recalled")
        }
        assert set(found.positions[~found.is_delete].tolist()) == wanted
    assert (len(found), int(found.is_delete.sum()), int(found.is_rolled.sum())) == (40, 1, 2)
    by_position = {record.physical_offset: record for record in golden.records}
    for position, slot_ms, rolled in zip(
        found.positions.tolist(), found.slots_ms.tolist(), found.is_rolled.tolist(), strict=True
    ):
        if position in by_position and not rolled:
            due_ms = timer_due_ms(by_position[position])
            assert slot_ms < due_ms <= slot_ms + 1_000


# ------------------------------------------------------------------------------------- Apache


def readers(files: Mapping[int, bytes]) -> dict[int, Any]:
    return {base: data.__bytes__ for base, data in files.items()}


def recovered(files: TimerFiles, queue_end: int) -> RecoveredTimer:
    """As Apache's timer goes on from the files; the n-th message lies at n * SIZE."""
    return recover_timer(
        TimerCheckpoint.decode(files.checkpoint.encode()),
        decode_wheel(files.wheel),
        readers(whole_files(files)),
        file_bytes=files.file_bytes,
        queue_bounds=(0, queue_end),
        find_queue_offset=lambda at, size: at // SIZE if size == SIZE else None,
    )


def given_out(files: TimerFiles, until_ms: int) -> list[tuple[int, int, bool]]:
    """(slot's time, log position, whether rolled) as Apache's timer gives messages out: second by
    second from where it stopped reading, each slot from its last record back to its first."""
    log = whole_files(files)
    slots = {slot.time_ms: slot for slot in decode_wheel(files.wheel)}
    found: list[tuple[int, int, bool]] = []
    for time_ms in sorted(slots):
        if not files.checkpoint.last_read_time_ms <= time_ms < until_ms:
            continue
        chain: list[tuple[int, int, bool]] = []
        position = slots[time_ms].last_position
        while position >= 0:
            base = position // files.file_bytes * files.file_bytes
            record = decode_timer_record(log[base], position - base)
            assert record.slot_time_ms == time_ms
            chain.append((time_ms, record.commit_offset, bool(record.magic & MAGIC_ROLL)))
            position = record.previous_position
        assert position == -1
        assert slots[time_ms].count == len(chain)
        found += reversed(chain)
    return found


def rows(deliver_ms: Mapping[int, int]) -> TimerRows:
    """By queue offset, when each of the messages that wait is due."""
    offsets = np.array(sorted(deliver_ms), np.int64)
    return TimerRows(
        deliver_ms=np.array([deliver_ms[at] for at in sorted(deliver_ms)], np.int64),
        positions=offsets * SIZE,
        sizes=np.full(len(offsets), SIZE),
        topic_hashes=np.full(len(offsets), 7),
        queue_offsets=offsets,
        is_delete=np.zeros(len(offsets), np.bool_),
    )


def files_of(deliver_ms: Mapping[int, int], queue_end: int, **options: Any) -> TimerFiles:
    last = LastTimer((queue_end - 1) * SIZE, SIZE, 7, queue_end - 1) if queue_end else None
    return timer_files(
        rows(deliver_ms), last, **{"now_ms": NOW, "file_bytes": FILE_BYTES, **options}
    )


@given(
    st.dictionaries(
        st.integers(0, 99),
        st.integers(-20_000, 20_000) | st.integers(-2 * DAY, 5 * DAY) | st.just(400 * DAY),
    ),
    st.integers(100, 120),
)
def test_apache_goes_on_with_each_message_that_waits_and_repeats_none(
    due_in_ms: dict[int, int], queue_end: int
) -> None:
    deliver_ms = {offset: NOW + wait_ms for offset, wait_ms in due_in_ms.items()}
    files = files_of(deliver_ms, queue_end)
    apache = recovered(files, queue_end)
    assert apache.queue_offset == queue_end, "nothing of the queue is read again"
    assert apache.log_end == files.checkpoint.last_log_flushed_position
    assert apache.slots == decode_wheel(files.wheel)

    out = given_out(files, until_ms=WRITE + 400 * DAY)
    assert sorted(position // SIZE for _, position, _ in out) == sorted(deliver_ms)
    for slot_ms, position, rolled in out:
        due_ms = deliver_ms[position // SIZE]
        if rolled:
            assert WRITE + ROLL_WINDOW_MS // 2 <= slot_ms <= WRITE + ROLL_WINDOW_MS < due_ms
        elif due_ms > WRITE - OVERDUE_SLOTS_MS + 1_000:
            assert slot_ms < due_ms <= slot_ms + 1_000, "it is given out when the slot is over"
        else:
            assert slot_ms == WRITE - OVERDUE_SLOTS_MS
    in_a_slot = [(slot_ms, position) for slot_ms, position, _ in out]
    assert in_a_slot == sorted(in_a_slot), "in order of time, and within a second of sending"


@pytest.mark.parametrize("queue_end", [0, 7])
def test_when_nothing_waits_apache_takes_nothing_in(queue_end: int) -> None:
    files = files_of({}, queue_end)
    assert given_out(files, until_ms=WRITE + 10 * DAY) == []
    assert recovered(files, queue_end).queue_offset == queue_end
    assert files.checkpoint.last_read_time_ms == WRITE


def test_the_last_message_is_not_repeated_though_it_was_recalled() -> None:
    files = files_of({3: NOW + 60_000}, queue_end=9)
    assert len(files.records) == 2
    assert files.records["commit_offset"].tolist() == [300, 800], "a file's last is its newest"
    assert [position for _, position, _ in given_out(files, until_ms=WRITE + DAY)] == [300]


def test_what_is_due_in_two_days_or_later_is_rolled() -> None:
    first_rolled_ms = WRITE + ROLL_WINDOW_MS + 1
    files = files_of({0: first_rolled_ms - 1, 1: first_rolled_ms, 2: NOW + 5 * DAY}, queue_end=3)
    assert given_out(files, until_ms=WRITE + 5 * DAY) == [
        (WRITE + ROLL_WINDOW_MS // 2, 100, True),
        (WRITE + ROLL_WINDOW_MS - 1_000, 0, False),
        (WRITE + ROLL_WINDOW_MS, 200, True),
    ]


@pytest.mark.parametrize(("count", "files"), [(19, 1), (20, 2), (38, 2), (39, 3)])
def test_the_log_is_cut_into_files_as_apache_cuts_it(count: int, files: int) -> None:
    written = files_of(dict.fromkeys(range(count), NOW + 5000), queue_end=count)
    contents = dict(written.log_files())
    assert sorted(contents) == [number * FILE_BYTES for number in range(files)]
    for base in sorted(contents)[:-1]:
        assert scan_timer_log(contents[base]).is_full
    assert recovered(written, count).queue_offset == count


def test_our_files_read_back_name_the_same_messages() -> None:
    deliver_ms = {0: NOW - 5_000, 1: NOW + 900, 4: NOW + 3 * DAY, 5: NOW + 1_000}
    files = files_of(deliver_ms, queue_end=9)
    found = timers_in_wheel(
        readers(whole_files(files)), read_time_ms=files.checkpoint.last_read_time_ms
    )
    assert found.positions.tolist() == [0, 100, 400, 500]
    assert found.is_rolled.tolist() == [False, False, True, False]
    assert found.slots_ms.tolist()[:2] == [WRITE - 5_000, WRITE + 1_000]
    gone = timers_in_wheel(
        readers(whole_files(files)),
        read_time_ms=files.checkpoint.last_read_time_ms,
        log_begin=101,
    )
    assert gone.positions.tolist() == [400, 500]


def test_a_message_that_was_taken_in_twice_waits_once() -> None:
    log = b"".join(
        TimerRecord(-1, 1, WRITE, delay_ms, position, SIZE, 7).encode()
        for delay_ms, position in ((1_000, 500), (1_000, 600), (2_000, 500))
    )
    found = timers_in_wheel(readers({0: log}), read_time_ms=WRITE)
    assert found.positions.tolist() == [500, 600]
    assert found.slots_ms.tolist() == [WRITE + 2_000, WRITE + 1_000]


def test_a_checkpoint_counts_on_from_the_former_one() -> None:
    former = TimerCheckpoint(state_version=4, changed_ms=1, counter=63)
    checkpoint = files_of({}, queue_end=1, former=former).checkpoint
    assert (checkpoint.state_version, checkpoint.changed_ms, checkpoint.counter) == (4, NOW, 64)


def test_rows_that_are_out_of_order_are_refused() -> None:
    one = rows({1: NOW, 2: NOW})
    swapped = TimerRows(
        one.deliver_ms,
        *(one.positions, one.sizes, one.topic_hashes),
        queue_offsets=one.queue_offsets[::-1],
        is_delete=one.is_delete,
    )
    with pytest.raises(ValueError, match="order"):
        timer_files(swapped, LastTimer(900, SIZE, 7, 9), now_ms=NOW)
    for last in (None, LastTimer(100, SIZE, 7, 1)):
        with pytest.raises(ValueError, match="after the last"):
            timer_files(one, last, now_ms=NOW)
    with pytest.raises(ValueError, match="no record"):
        files_of({1: NOW}, queue_end=2, file_bytes=60)
