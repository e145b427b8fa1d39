"""A log copied as bytes: however they are cut, what follows from it is as at the master."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import (
    Busy,
    CorruptFrame,
    MessageNotFound,
    NotWritable,
    ReplicationGap,
    ShuttingDown,
    StoreFailed,
)
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.properties import encode_properties
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.support.indexes import INDEXED, check_answers
from tests.support.property_runs import examples
from tests.support.replicas import check_equal, chunks_of, log_bytes, replicate
from tests.support.stores import (
    SMALL,
    append,
    batch_of,
    batch_with,
    check_agreement,
    find_by_key,
    flush,
    log_records,
    open_store,
    read_queue,
)

CONFIG = replace(INDEXED, segment_bytes=4096)


@dataclass(frozen=True)
class Batch:
    topic: str
    queue_id: int
    bodies: list[int]
    keys: list[str]
    sys_flag: int
    pause_ms: int

    def append(self, store: MessageStore, clock: ManualClock) -> None:
        clock.advance_ms(self.pause_ms)
        properties = [
            encode_properties({"TAGS": key[:1], "KEYS": key} if key else {})
            for key in (self.keys * len(self.bodies))[: len(self.bodies)]
        ]
        bodies = [bytes([65 + size % 26]) * size for size in self.bodies]
        batch = batch_with(self.topic, properties, bodies, sys_flag=self.sys_flag)
        store.append(batch, queue_id=self.queue_id)


BATCHES = st.lists(
    st.builds(
        Batch,
        topic=st.sampled_from(["A", "B", "%RETRY%C"]),
        queue_id=st.integers(0, 2),
        bodies=st.one_of(
            st.lists(st.integers(0, 300), min_size=1, max_size=4),
            st.lists(st.just(3), min_size=24, max_size=26),
        ),
        keys=st.lists(st.sampled_from(["", "k", "a b", "key-of-some-length"]), min_size=1),
        sys_flag=st.sampled_from([0, 0, 0, 0x4, 0x8, 0xC]),
        pause_ms=st.integers(0, 2_000),
    ),
    min_size=1,
    max_size=12,
)
SIZES = st.lists(st.one_of(st.integers(0, 40), st.integers(41, 5_000)), min_size=1, max_size=60)


def grown_master(batches: list[Batch]) -> tuple[SimulatedDisk, MessageStore]:
    disk, clock = SimulatedDisk(), ManualClock()
    master = open_store(disk, CONFIG, clock)
    for batch in batches:
        batch.append(master, clock)
        master.confirm(master.appended_end)
    return disk, master


@given(BATCHES, SIZES, st.data())
@settings(max_examples=examples(20), deadline=None)
def test_a_copy_is_equal_however_the_bytes_were_cut_and_confirmed(
    batches: list[Batch], sizes: list[int], data: st.DataObject
) -> None:
    disk, master = grown_master(batches)
    slave_disk = SimulatedDisk()
    slave = open_store(slave_disk, CONFIG)
    position = 0
    ends = {0, *(record.physical_offset + record.size for record in log_records(master))}
    for chunk in chunks_of(log_bytes(master), sizes):
        stored_end = slave.replicated.append(position, chunk)
        position += len(chunk)
        assert slave.replicated.received_end == position
        assert stored_end == slave.appended_end <= position
        assert stored_end in ends
        step = data.draw(st.sampled_from(["go on", "go on", "confirm", "confirm a part", "flush"]))
        if step == "confirm":
            slave.confirm(stored_end)
            assert slave.dispatched_end == stored_end
        elif step == "confirm a part":
            part = data.draw(st.integers(slave.confirmed_end, stored_end))
            slave.confirm(part)
            assert slave.dispatched_end == max(end for end in ends if end <= part)
        elif step == "flush":
            flush(slave)
    slave.confirm(slave.appended_end)
    check_equal(master, slave)
    check_answers(slave)
    master.close()
    slave.close()
    for folder in ("commitlog/", "consumequeue/"):
        assert slave_disk.contents(folder) == disk.contents(folder)
    assert slave_disk.contents("checkpoint") == disk.contents("checkpoint")
    reopened = open_store(slave_disk, CONFIG)
    assert reopened.recovery.clean
    assert not reopened.recovery.warnings
    check_agreement(reopened)


@given(BATCHES, BATCHES, SIZES, st.integers(0, 10_000))
@settings(max_examples=examples(10), deadline=None)
def test_a_slave_goes_on_as_master_with_the_next_offsets_whatever_is_confirmed(
    batches: list[Batch], later: list[Batch], sizes: list[int], confirmed: int
) -> None:
    _, master = grown_master(batches)
    slave = open_store(SimulatedDisk(), CONFIG)
    data = log_bytes(master)
    end = 0
    for chunk in chunks_of(data, sizes[:-1]):
        slave.replicated.append(end, chunk)
        end += len(chunk)
        if end > len(data) // 2:
            break
    slave.confirm(min(confirmed, slave.appended_end))
    next_offsets: dict[tuple[str, int], int] = {}
    for record in log_records(slave):
        if record.sys_flag & 0xC not in (0x4, 0xC):
            next_offsets[record.topic, record.queue_id] = record.queue_offset + 1
    slave.replicated.begin()
    clock = ManualClock()
    for batch in later:
        name = batch.topic, batch.queue_id
        before = len(log_records(slave))
        batch.append(slave, clock)
        first, *_ = added = log_records(slave)[before:]
        if batch.sys_flag not in (0x4, 0xC):
            assert first.queue_offset == next_offsets.get(name, 0)
            next_offsets[name] = added[-1].queue_offset + 1
    slave.confirm(slave.appended_end)
    check_agreement(slave)


@given(BATCHES, SIZES, st.data())
@settings(max_examples=examples(20), deadline=None)
def test_bytes_that_are_no_records_of_their_place_are_never_stored(
    batches: list[Batch], sizes: list[int], data: st.DataObject
) -> None:
    """A damaged size, magic or position; bytes that were lost; bytes that came twice."""
    _, master = grown_master(batches)
    whole = log_bytes(master)
    record = data.draw(st.sampled_from(log_records(master)))
    at = record.physical_offset
    damage = data.draw(st.sampled_from(["flip", "lose", "repeat", "zero"]))
    if damage == "flip":
        place = data.draw(st.sampled_from([*range(8), *range(28, 36)]))
        bad = bytearray(whole)
        bad[at + place] ^= 1 << data.draw(st.integers(0, 7))
        damaged = bytes(bad)
    elif damage == "lose":
        damaged = whole[:at] + whole[at + data.draw(st.integers(1, record.size)) :]
    elif damage == "repeat":
        damaged = whole[:at] + whole[at : at + record.size] + whole[at:]
    else:
        damaged = whole[:at] + bytes(record.size)
    slave = open_store(SimulatedDisk(), CONFIG)
    position = 0
    try:
        for chunk in chunks_of(damaged, sizes):
            slave.replicated.append(position, chunk)
            position += len(chunk)
    except CorruptFrame:
        assert slave.replicated.received_end == slave.appended_end
    else:
        # Nothing but the beginning of a record came, as far as anybody can tell.
        assert slave.replicated.received_end == position
    assert log_bytes(slave) == whole[: slave.appended_end]
    assert slave.appended_end <= at + (record.size if damage == "repeat" else 0)
    # The stream begins again, with the right bytes.
    replicate(master, slave, sizes)
    check_equal(master, slave)


@given(BATCHES, st.integers(0, 1 << 30), st.integers(0, 7), SIZES)
@settings(max_examples=examples(40), deadline=None)
def test_a_flipped_bit_anywhere_is_refused_or_leaves_a_store_that_works(
    batches: list[Batch], place: int, bit: int, sizes: list[int]
) -> None:
    """Bodies are not looked at: the frames have checksums."""
    _, master = grown_master(batches)
    damaged = bytearray(log_bytes(master))
    damaged[place % len(damaged)] ^= 1 << bit
    disk = SimulatedDisk()
    slave = open_store(disk, CONFIG)
    position = 0
    try:
        for chunk in chunks_of(bytes(damaged), sizes):
            slave.replicated.append(position, chunk)
            position += len(chunk)
    except CorruptFrame:
        pass
    assert len(slave.replicated.take_warnings()) <= 100
    end = slave.appended_end
    slave.confirm(end)
    flush(slave)
    slave.close()
    reopened = open_store(disk, replace(CONFIG, cut_damaged=True))
    assert reopened.appended_end <= end
    reopened.close()


def test_bytes_that_do_not_follow_change_nothing() -> None:
    master = open_store(SimulatedDisk())
    append(master, "A", 0, b"one", b"two")
    data = log_bytes(master)
    slave = open_store(SimulatedDisk())
    slave.replicated.append(0, data[:150])
    for position in (0, 149, 151, master.appended_end):
        with pytest.raises(ReplicationGap):
            slave.replicated.append(position, data[150:])
    slave.replicated.append(150, data[150:])
    slave.confirm(slave.appended_end)
    check_equal(master, slave)


def test_a_stream_that_begins_again_forgets_what_was_not_whole() -> None:
    master = open_store(SimulatedDisk())
    append(master, "A", 0, b"one", b"two")
    slave = open_store(SimulatedDisk())
    stored_end = slave.replicated.append(0, log_bytes(master)[:-1])
    assert stored_end == slave.appended_end < slave.replicated.received_end
    assert slave.replicated.begin() == stored_end == slave.replicated.received_end
    replicate(master, slave)
    check_equal(master, slave)


def test_a_blank_record_is_stored_with_the_record_behind_it() -> None:
    """So that the end which was told to the master is the end that the next start finds."""
    disk = SimulatedDisk()
    master, slave = open_store(SimulatedDisk()), open_store(disk)
    for _ in range(3):
        append(master, "A", 0, bytes(1500))
    data = log_bytes(master)
    assert len(master.log.segments()) == 2
    before_blank = slave.replicated.append(0, data[:4096])
    assert before_blank < 4096 == slave.replicated.received_end
    assert len(slave.log.segments()) == 1
    slave.confirm(before_blank)
    slave.close()
    assert "abort" not in disk.contents()
    slave = open_store(disk)
    assert slave.appended_end == before_blank
    slave.replicated.append(before_blank, data[before_blank : before_blank + 3])
    for position in range(before_blank + 3, len(data), 100):
        slave.replicated.append(position, data[position : position + 100])
    slave.confirm(slave.appended_end)
    check_equal(master, slave)


def test_what_stands_behind_a_blank_record_is_not_copied() -> None:
    """Apache's broker may leave remains of earlier records there."""
    master = open_store(SimulatedDisk())
    for _ in range(3):
        append(master, "A", 0, bytes(1500))
    data = bytearray(log_bytes(master))
    data[4090:4096] = b"remain"
    slave = open_store(SimulatedDisk())
    slave.replicated.append(0, bytes(data))
    slave.confirm(slave.appended_end)
    check_equal(master, slave)


@pytest.mark.parametrize("size", [90, 4089, 4096, 1 << 30, -1])
def test_a_size_that_no_record_has_is_refused_at_once(size: int) -> None:
    master = open_store(SimulatedDisk())
    append(master, "A", 0, b"one")
    head = bytearray(log_bytes(master)[:120])
    head[:4] = size.to_bytes(4, "big", signed=True)
    slave = open_store(SimulatedDisk())
    with pytest.raises(CorruptFrame, match="at 0"):
        slave.replicated.append(0, bytes(head))


def test_a_size_that_its_parts_contradict_is_refused_before_so_much_has_come() -> None:
    config = replace(SMALL, segment_bytes=1 << 30)
    master = open_store(SimulatedDisk(), config)
    append(master, "A", 0, bytes(200))
    head = bytearray(log_bytes(master)[:120])
    head[:4] = (1 << 29).to_bytes(4, "big", signed=True)
    slave = open_store(SimulatedDisk(), config)
    with pytest.raises(CorruptFrame, match="contradict"):
        slave.replicated.append(0, bytes(head))


def test_a_slave_that_flushes_too_slowly_takes_nothing_until_it_has() -> None:
    master = open_store(SimulatedDisk())
    append(master, "A", 0, bytes(900))
    append(master, "A", 0, bytes(900))
    data = log_bytes(master)
    middle = len(data) // 2
    slave = open_store(SimulatedDisk(), replace(SMALL, unflushed_bytes_max=1_200))
    slave.replicated.append(0, data[:middle])
    assert not slave.replicated.has_room(len(data) - middle)
    for _ in range(2):
        with pytest.raises(Busy):
            slave.replicated.append(middle, data[middle:])
    flush(slave)
    assert slave.replicated.has_room(len(data) - middle)
    slave.replicated.append(middle, data[middle:])
    slave.confirm(slave.appended_end)
    check_equal(master, slave)


def test_a_full_disk_ends_the_stream_and_leaves_whole_records() -> None:
    master = open_store(SimulatedDisk())
    for _ in range(3):
        append(master, "A", 0, bytes(1500))
    clock, disk = ManualClock(), SimulatedDisk()
    slave = open_store(disk, SMALL, clock)
    slave.replicated.append(0, log_bytes(master)[:2000])
    full = OSError(errno.ENOSPC, "full")
    disk.fault = lambda operation, path: full if operation == "allocate" else None
    with pytest.raises(NotWritable):
        slave.replicated.append(2000, log_bytes(master)[2000:])
    last = log_records(master)[1]
    assert slave.appended_end == last.physical_offset + last.size
    assert slave.replicated.received_end == slave.appended_end
    with pytest.raises(NotWritable):
        slave.replicated.append(slave.appended_end, b"")
    disk.fault = None
    clock.advance_ms(1_000)
    replicate(master, slave)
    check_equal(master, slave)


def test_a_failed_disk_and_a_closing_store_take_nothing() -> None:
    master = open_store(SimulatedDisk())
    append(master, "A", 0, b"one")
    disk = SimulatedDisk()
    slave = open_store(disk)
    disk.fault = lambda operation, path: OSError(errno.EIO, "bad") if operation == "write" else None
    with pytest.raises(StoreFailed):
        replicate(master, slave)
    closing = open_store(SimulatedDisk())
    closing.close()
    with pytest.raises(ShuttingDown):
        replicate(master, closing)


def test_closing_dispatches_what_is_not_confirmed_for_the_next_start_would_do_it_anyway() -> None:
    master = open_store(SimulatedDisk())
    append(master, "A", 0, b"one", b"two")
    disk = SimulatedDisk()
    slave = open_store(disk)
    replicate(master, slave, confirm=False)
    assert slave.queues.names() == []
    slave.close()
    reopened = open_store(disk)
    assert reopened.recovery.clean
    assert read_queue(reopened, "A", 0) == [b"one", b"two"]


def test_a_run_of_log_bytes_ends_with_its_segment_or_the_log() -> None:
    store = open_store(SimulatedDisk())
    assert store.log.contiguous_end(0) == 0
    for _ in range(3):
        append(store, "A", 0, bytes(1500))
    assert store.log.contiguous_end(0) == 4096
    assert store.log.contiguous_end(4095) == 4096
    assert store.log.contiguous_end(4096) == store.appended_end
    assert store.log.contiguous_end(store.appended_end) == store.appended_end
    with pytest.raises(MessageNotFound):
        store.log.contiguous_end(store.appended_end + 1)


def test_records_of_many_queues_and_long_properties_are_indexed_like_at_the_master() -> None:
    """So many that a thread hashes their keys, also where a part of them is confirmed."""
    config = replace(CONFIG, segment_bytes=1 << 20, index_slots_max=100, index_entries_max=5_000)
    master = open_store(SimulatedDisk(), config)
    for number in range(40):
        keys = " ".join(f"key-{number}-{index}" for index in range(number * 7 % 50 + 20))
        batch = batch_of(f"T{number % 3}", *[b"x"] * 5, properties={"KEYS": keys, "P": "x" * 800})
        master.append(batch, queue_id=number % 4)
    master.confirm(master.appended_end)
    slave = open_store(SimulatedDisk(), config)
    replicate(master, slave, confirm=False)
    slave.confirm(slave.appended_end // 3)
    slave.confirm(slave.appended_end)
    check_equal(master, slave)
    records = log_records(slave)
    found = find_by_key(slave, "T1", "key-1-3")
    assert len(found) == sum(1 for each in records if b"key-1-3 " in each.properties_bytes)


def test_readers_at_a_slave_hear_which_queues_grew_once_it_is_confirmed() -> None:
    master, slave = open_store(SimulatedDisk()), open_store(SimulatedDisk())
    grown: list[list[tuple[str, int]]] = []
    slave.on_grown(lambda queues: grown.append(list(queues)))
    for number in range(40):
        append(master, "A", number % 2, b"x")
    slave.replicated.append(0, log_bytes(master))
    assert grown == []
    slave.confirm(slave.appended_end)
    assert [sorted(queues) for queues in grown] == [[("A", 0), ("A", 1)]]
