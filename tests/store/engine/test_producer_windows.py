"""Producers' windows: what is stored is known, what is not stored is not, whoever reads the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import OutOfSequence
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.producers import producer_windows, window
from aerobee.store.engine.producers.producer_windows import (
    IDLE_MS,
    ProducerName,
    ProducerWindows,
)
from aerobee.store.engine.producers.window import INTERVALS_MAX, NEW, AlreadyStored, ProducerWindow
from aerobee.store.engine.producers.windows_file import (
    WINDOWS_FILE,
    WindowsFile,
    decode_windows,
)
from aerobee.store.format.batch import number_batch
from aerobee.store.format.producer_number import BROKER_PRODUCER_IDS, PRODUCER_ID_END, ProducerRun
from aerobee.store.format.scan import scan_records
from aerobee.store.format.tags import TagsCodes
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.support.compiled_form import replaces_what_is_compiled
from tests.support.fault_disk import FaultDisk, no_space
from tests.support.property_runs import examples
from tests.support.stores import SMALL, batch_of, crashed_copy, flush, open_store

IDS = (1, 7 << 30, PRODUCER_ID_END - 1)


class Sent(NamedTuple):
    producer: int
    queue_id: int
    sequence: int
    size: int


NEXT = -1
"""In place of a number: the producer goes on where it has come to on the queue."""

sends = st.builds(Sent, st.integers(0, 2), st.integers(0, 1), st.integers(0, 40), st.integers(1, 6))
# As real producers send: batches share intervals.
sends_in_order = st.builds(
    Sent, st.integers(0, 2), st.integers(0, 1), st.just(NEXT), st.integers(1, 6)
)
mixed_sends = sends_in_order | sends_in_order | sends


def contents(windows: ProducerWindows) -> dict[ProducerName, tuple[int, list[int]]]:
    return {name: (each.floor, each.intervals.tolist()) for name, each in windows.items()}


def send_drawn(store: MessageStore, sent: Sent) -> AlreadyStored:
    """What a property drew; as `send`."""
    sequence = sent.sequence
    if sequence == NEXT:
        name = ProducerName("T", sent.queue_id, IDS[sent.producer])
        window = dict(store.producers.windows.items()).get(name)
        sequence = window.intervals[-2] if window is not None and len(window) else 0
    return send(store, IDS[sent.producer], sequence, sent.size, sent.queue_id)


def send(
    store: MessageStore, producer_id: int, sequence: int, count: int, queue_id: int = 0
) -> AlreadyStored:
    """As ingest does: what is new is appended. Raises OutOfSequence."""
    standing = store.producers.standing("T", queue_id, producer_id, sequence, count)
    if standing.stored_count:
        return standing
    batch = batch_of("T", *(b"%x-%d" % (producer_id, sequence + n) for n in range(count)))
    number_batch(batch, [ProducerRun(producer_id, sequence, count)])
    appended = store.append(batch, queue_id=queue_id)
    return AlreadyStored(0, appended.base_queue_offset)


# ---------------------------------------------------------------------------------- one window


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8), st.integers(0, 3)), max_size=60))
def test_a_batch_is_new_known_or_out_of_sequence(batches: list[tuple[int, int, int]]) -> None:
    one = ProducerWindow()
    stored: dict[int, int] = {}
    queue_end = 0
    for sequence, count, others in batches:
        queue_end += others
        numbers = range(sequence, sequence + count)
        known = [number for number in numbers if number in stored]
        standing = one.standing(sequence, count) if one.intervals else AlreadyStored()
        if not known:
            assert standing == AlreadyStored()
            one.add(sequence, count, queue_end)
            stored.update((number, queue_end + at) for at, number in enumerate(numbers))
            queue_end += count
            continue
        is_beginning = known == list(numbers)[: len(known)]
        offsets = [stored[number] for number in known]
        is_run = offsets == list(range(offsets[0], offsets[0] + len(known)))
        if is_beginning and is_run:
            assert standing == AlreadyStored(len(known), offsets[0])
        else:
            assert standing is None


def test_at_least_the_last_128_batches_are_remembered_and_none_below_is_taken_for_new() -> None:
    one = ProducerWindow()
    for number in range(1_000):
        # Another producer's record lies between each two.
        one.add(number * 10, 10, number * 11)
    assert len(one) == INTERVALS_MAX == 128
    for number in range(1_000):
        expected = AlreadyStored(10, number * 11) if number >= 1_000 - 128 else None
        assert one.standing(number * 10, 10) == expected
    assert one.standing(10_000, 5) == AlreadyStored()


def test_a_hole_is_filled_once() -> None:
    one = ProducerWindow()
    one.add(0, 10, 0)
    one.add(20, 10, 10)
    assert one.standing(10, 10) == AlreadyStored()
    assert one.standing(10, 11) is None
    one.add(10, 10, 20)
    assert one.standing(10, 10) == AlreadyStored(10, 20)
    assert one.standing(5, 10) is None
    assert one.standing(25, 10) == AlreadyStored(5, 15)


def test_of_batches_in_one_interval_only_the_kept_records_are_remembered_after_a_cut() -> None:
    """Otherwise what is sent again would be acknowledged and stored nowhere."""
    one = ProducerWindow()
    one.add(0, 4, 0)
    one.add(4, 6, 4)
    assert len(one) == 1
    one.cut(7)
    assert one.standing(4, 6) == AlreadyStored(3, 4)
    one.cut(4)
    assert one.standing(0, 4) == AlreadyStored(4, 0)
    assert one.standing(4, 6) == AlreadyStored()


# ---------------------------------------------------------------------------------- the log


@settings(max_examples=examples(25))
@given(sent=st.lists(mixed_sends, max_size=40), chunk=st.integers(60, 900))
def test_every_reader_of_a_log_remembers_the_same(
    sent: list[Sent], chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("windows")
    store = open_store(root)
    for each in sent:
        try:
            send_drawn(store, each)
        except OutOfSequence:
            continue
    expected = contents(store.producers.windows)
    # A slave, which gets the log in pieces of any size.
    slave = open_store(tmp_path_factory.mktemp("slave"))
    for segment in store.log.segments():
        at = segment.base
        end = segment.base + segment.wrote_position
        while at < end:
            size = min(chunk, end - at)
            slave.replicated.append(at, store.log.record_at(at, size))
            at += size
    assert contents(slave.producers.windows) == expected
    for (topic, queue_id, _), (_, intervals) in expected.items():
        for first, end, offset in zip(*[iter(intervals)] * 3, strict=True):
            place = store.producers.place(topic, queue_id, offset, end - first)
            assert slave.producers.place(topic, queue_id, offset, end - first) == place
    slave.close()
    # The next process, after kill -9 and after a clean stop.
    crashed = open_store(crashed_copy(root, root.with_name(root.name + "-crashed")))
    assert contents(crashed.producers.windows) == expected
    crashed.close()
    store.close()
    reopened = open_store(root)
    assert contents(reopened.producers.windows) == expected
    reopened.close()


@settings(max_examples=examples(40))
@given(
    sent=st.lists(mixed_sends | st.just(None), max_size=40),
    kept=st.floats(0, 1),
    again=st.booleans(),
)
def test_what_the_log_lost_is_not_remembered(
    sent: list[Sent | None], kept: float, again: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Checkpoints come at any time, and the log is cut at any record, be it below them."""
    root = tmp_path_factory.mktemp("cut")
    store = open_store(root)
    send(store, 3, 0, 1)
    ends = [store.appended_end]
    for each in sent:
        if each is None:
            store.confirm(store.appended_end)
            flush(store)
            continue
        try:
            send_drawn(store, each)
        except OutOfSequence:
            continue
        ends.append(store.appended_end)
    store.close()
    end = ends[round(kept * (len(ends) - 1))]
    positions = _records(root)
    for position, size in positions:
        if position >= end:
            _wipe(root, position, size)
    (root / "checkpoint").unlink()
    (root / "consumequeue.ends").unlink()
    (root / "abort").write_text("1")
    for _ in range(1 + again):
        cut = open_store(root)
        assert cut.appended_end <= ends[-1]
        walked = ProducerWindows()
        for position, size in _records(root):
            data = cut.log.record_at(position, size)
            walked.feed(scan_records(data, check_crc=False, tags=TagsCodes()))
        assert {
            name: intervals for name, (_, intervals) in contents(cut.producers.windows).items()
        } == {name: intervals for name, (_, intervals) in contents(walked).items()}
        # Not closed: the next one finds what a crash leaves.
        _release(cut)


def _release(store: MessageStore) -> None:
    store.fail(OSError("the process is gone"))
    store.close()


def _records(root: Path) -> list[tuple[int, int]]:
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        data = path.read_bytes()
        result = scan_records(data, check_crc=False, tags=TagsCodes())
        found += [
            (int(path.name) + position, size)
            for position, size in zip(result.positions.tolist(), result.sizes.tolist(), strict=True)
        ]
    return found


def _wipe(root: Path, position: int, size: int) -> None:
    base = position - position % SMALL.segment_bytes
    path = root / "commitlog" / f"{base:020d}"
    data = bytearray(path.read_bytes())
    data[position - base : position - base + size] = bytes(size)
    path.write_bytes(data)


def test_the_beginning_of_a_batch_is_known_whatever_lies_behind_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 5, 0, 6)
    assert store.producers.standing("T", 0, 5, 0, 10) == AlreadyStored(6, 0)
    send(store, 9, 0, 1)
    assert store.producers.standing("T", 0, 5, 0, 10) == AlreadyStored(6, 0)
    # The rest, and what follows, under numbers of their own.
    send(store, 5, 10, 4)
    assert send(store, 5, 14, 3) == AlreadyStored(0, 11)
    assert store.producers.standing("T", 0, 5, 0, 10) == AlreadyStored(6, 0)
    assert store.producers.standing("T", 0, 5, 10, 4) == AlreadyStored(4, 7)
    store.close()


def test_a_duplicate_lies_where_the_first_one_was_stored(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    places = {}
    for number in range(20):
        clock.advance_ms(1_000)
        before = store.appended_end
        send(store, 5, number * 3, 3, queue_id=number % 2)
        places[number] = before, store.appended_end, clock.now_ms()
        if number == 9:
            store.confirm(store.appended_end)
            flush(store)
        if number == 14:
            store.confirm(store.appended_end)
    for number, (start, end, timestamp_ms) in places.items():
        standing = store.producers.standing("T", number % 2, 5, number * 3, 3)
        assert standing.stored_count == 3
        place = store.producers.place("T", number % 2, standing.queue_offset, 3)
        assert place.base_queue_offset == standing.queue_offset == number // 2 * 3
        assert place.end == end
        assert place.store_timestamp_ms == timestamp_ms
        assert start <= place.base_physical_offset < end
    store.close()
    with pytest.raises(OutOfSequence, match="removed"):
        store.producers.place("T", 5, 0, 1)


# ---------------------------------------------------------------------------------- bounds


def test_idle_windows_go_and_too_many_never_stay() -> None:
    windows = ProducerWindows(windows_max=10, intervals_max=30)

    def add(producer: int, sequence: int, at_ms: int) -> None:
        windows.appended("T", 0, [ProducerRun(producer, sequence, 1)], sequence * 2, at_ms)

    for producer in range(1, 11):
        add(producer, 0, producer)
    add(1, 1, 20)
    add(11, 0, 21)
    known = [name.producer_id for name, _ in windows.items()]
    assert known == [3, 4, 5, 6, 7, 8, 9, 10, 1, 11]
    assert windows.forgotten_early == 1
    add(12, 0, IDLE_MS + 10)
    assert [name.producer_id for name, _ in windows.items()] == [6, 7, 8, 9, 10, 1, 11, 12]
    assert windows.forgotten_early == 1
    for sequence in range(30):
        add(12, sequence * 2, IDLE_MS + 11)
    assert sum(len(each) for _, each in windows.items()) <= 30


@replaces_what_is_compiled(producer_windows)
def test_clients_do_not_displace_what_the_broker_itself_has_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By it a new master knows which timed messages the last one moved."""
    monkeypatch.setattr(producer_windows, "BROKER_WINDOWS_MAX", 3)
    windows = ProducerWindows(windows_max=10, intervals_max=30)
    broker = BROKER_PRODUCER_IDS
    for producer in range(4):
        windows.appended("T", 0, [ProducerRun(broker + producer, 7, 1)], producer, 0)
    for producer in range(1, 200):
        windows.appended("T", 0, [ProducerRun(producer, 0, 1)], producer, 5 * IDLE_MS)
    restored = ProducerWindows(windows_max=10, intervals_max=30)
    restored.restore(windows.take_all())
    for known in (windows, restored):
        stored = [
            producer
            for producer in range(4)
            if known.standing(ProducerName("T", 0, broker + producer), 7, 1) != NEW
        ]
        assert stored == [1, 2, 3]
        assert len(known) == 13


# ---------------------------------------------------------------------------------- the file


def test_a_damaged_file_is_made_from_the_log_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(40):
        send(store, 5, number * 3, 3, queue_id=number % 3)
    store.confirm(store.appended_end)
    expected = contents(store.producers.windows)
    store.close()
    path = tmp_path / WINDOWS_FILE
    path.write_bytes(b"\0" * 100)
    store = open_store(tmp_path)
    assert contents(store.producers.windows) == expected
    assert any(WINDOWS_FILE in warning for warning in store.recovery.warnings)
    store.close()


@given(
    rounds=st.lists(st.lists(sends, max_size=8), min_size=1, max_size=6),
    cut=st.integers(0, 1 << 30),
)
def test_a_file_cut_anywhere_tells_what_its_whole_blocks_say(
    rounds: list[list[Sent]], cut: int
) -> None:
    disk = SimulatedDisk()
    windows = ProducerWindows()
    file = WindowsFile(disk, windows)
    states = []
    for position, sent in enumerate(rounds):
        for at, (producer, queue_id, sequence, count) in enumerate(sent):
            run = ProducerRun(IDS[producer], sequence, count)
            windows.appended("T", queue_id, [run], 100 * at, position)
        write = file.take_write(position)
        if write is not None:
            write.run()
            file.finish_write(write)
        states.append((len(disk.read_file(WINDOWS_FILE)), contents(windows)))
    data = disk.read_file(WINDOWS_FILE)
    cut %= len(data) + 1
    saved = decode_windows(data[:cut])
    whole = [state for size, state in states if size <= cut]
    if not whole:
        assert saved is None
        return
    assert saved is not None
    restored = ProducerWindows()
    restored.restore(saved.rows)
    assert contents(restored) == whole[-1]


def test_a_file_that_grew_too_long_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.store.engine.producers.windows_file._SLACK_BYTES", 100)
    disk = SimulatedDisk()
    windows = ProducerWindows()
    file = WindowsFile(disk, windows)
    for number in range(300):
        windows.appended("T", 0, [ProducerRun(1 + number % 5, number, 1)], 2 * number, number)
        write = file.take_write(number)
        assert write is not None
        write.run()
        file.finish_write(write)
        assert len(disk.read_file(WINDOWS_FILE)) < 20_000
        saved = decode_windows(disk.read_file(WINDOWS_FILE))
        assert saved is not None
        assert saved.position == number
        restored = ProducerWindows()
        restored.restore(saved.rows)
        assert contents(restored) == contents(windows)
    assert file.take_write(300) is None


def test_a_full_disk_delays_the_file_and_loses_nothing(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    store = open_store(disk)
    send(store, 5, 0, 3)
    store.confirm(store.appended_end)
    disk.write_error = (lambda path: path.startswith(WINDOWS_FILE), no_space())
    flush(store)
    disk.write_error = None
    send(store, 5, 3, 3)
    store.confirm(store.appended_end)
    expected = contents(store.producers.windows)
    store.close()
    store = open_store(tmp_path)
    assert contents(store.producers.windows) == expected
    store.close()


def test_a_disk_that_is_full_when_the_log_lost_its_end_makes_no_producer_unknown(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    for number in range(300):
        clock.advance_ms(1_000)
        send(store, 5 + number // 100, number, 1)
        store.confirm(store.appended_end)
        flush(store)
    store.close()
    position, size = _records(tmp_path)[-1]
    _wipe(tmp_path, position, size)
    (tmp_path / "abort").write_text("1")
    disk = FaultDisk(tmp_path)
    disk.write_error = (lambda path: path.startswith(WINDOWS_FILE), no_space())
    config = replace(SMALL, cut_damaged=True)
    store = open_store(disk, config)
    expected = contents(store.producers.windows)
    assert expected
    _release(store)
    store = open_store(tmp_path, config)
    assert {name: known for name, (_, known) in contents(store.producers.windows).items()} == {
        name: known for name, (_, known) in expected.items()
    }
    store.close()


def test_the_limits_are_those_that_the_documentation_states() -> None:
    assert (window.INTERVALS_MAX, producer_windows.IDLE_MS) == (128, 3_600_000)
    assert (producer_windows.WINDOWS_MAX, producer_windows.INTERVALS_MAX) == (100_000, 1_000_000)
