"""A replica's log that is cut or emptied while nobody has it open."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.errors import StoreLocked, StoreUnusable
from aerobee.store.engine.folder_state import load_checkpoint, was_left_running
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.replicas.closed_log import BEGIN_FILE, begin_log_at, cut_log
from aerobee.store.engine.tables.epoch_table import load_epochs, save_epochs
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.support.indexes import INDEXED, append_keys, check_answers
from tests.support.property_runs import examples
from tests.support.replicas import check_equal, log_bytes, replicate
from tests.support.stores import (
    SMALL,
    append,
    check_agreement,
    flush,
    log_records,
    open_store,
    read_queue,
)

CONFIG = replace(INDEXED, consume_queue_entries_per_file=3)


def store_of(disk: SimulatedDisk, count: int = 12) -> MessageStore:
    """A few segments with records of three queues."""
    clock = ManualClock()
    store = open_store(disk, CONFIG, clock)
    grow(store, clock, count)
    return store


def grow(store: MessageStore, clock: ManualClock, count: int, word: str = "old") -> None:
    for number in range(count):
        clock.advance_ms(1_000)
        append_keys(store, f"T{number % 2}", f"{word}-{number} k", "k", confirm=False)
        append(store, "T2", number % 3, bytes(700))
        if number % 3 == 0:
            flush(store)


def record_ends(store: MessageStore) -> list[int]:
    return [record.physical_offset + record.size for record in log_records(store)]


CUTS = st.integers(0, 35)


@given(CUTS)
@settings(max_examples=examples(30), deadline=None)
def test_a_cut_log_ends_there_and_what_follows_from_it_too(cut: int) -> None:
    disk = SimulatedDisk()
    store = store_of(disk)
    before = log_bytes(store)
    ends = [0, *record_ends(store)]
    store.close()
    end = ends[cut % len(ends)]
    cut_log(disk, CONFIG, end)
    reopened = open_store(disk, CONFIG)
    assert reopened.appended_end == end
    assert log_bytes(reopened) == before[:end]
    check_agreement(reopened)
    check_answers(reopened)
    assert reopened.recovery.rebuilt_queues == (), "its queues are cut like the log"
    # It goes on there with other records, at the queues' next offsets.
    grow(reopened, ManualClock(), 5, "new")
    check_agreement(reopened)
    check_answers(reopened)
    reopened.close()
    assert open_store(disk, CONFIG).recovery.clean


def test_a_log_is_cut_though_a_full_disk_kept_its_folder_from_being_closed_in_order() -> None:
    disk = SimulatedDisk()
    store = store_of(disk)
    before = log_bytes(store)
    ends = record_ends(store)
    grow(store, ManualClock(), 5, "more")
    full = OSError(errno.ENOSPC, "full")
    disk.fault = lambda operation, path: (
        full if operation in ("write", "allocate", "create") and "consumequeue" in path else None
    )
    store.close()
    assert was_left_running(disk)
    cut_log(disk, CONFIG, ends[2])
    disk.fault = None
    reopened = open_store(disk, CONFIG)
    assert log_bytes(reopened) == before[: ends[2]]
    check_agreement(reopened)
    check_answers(reopened)


def test_the_checkpoint_of_a_cut_log_knows_no_time_of_what_is_cut_off() -> None:
    """By the next broker's clock what follows may be older, and recovery would pass over it."""
    disk = SimulatedDisk()
    store = store_of(disk)
    kept = log_records(store)[:9]
    store.close()
    cut_log(disk, CONFIG, kept[-1].physical_offset + kept[-1].size)
    checkpoint = load_checkpoint(disk)
    latest_ms = kept[-1].store_timestamp_ms
    assert 0 < checkpoint.physic_msg_timestamp <= latest_ms
    assert 0 < checkpoint.logics_msg_timestamp <= latest_ms
    assert 0 < checkpoint.index_msg_timestamp <= latest_ms


def test_a_log_is_cut_between_two_segments() -> None:
    disk = SimulatedDisk()
    store = store_of(disk)
    base = store.log.segments()[2].base
    store.close()
    cut_log(disk, CONFIG, base)
    reopened = open_store(disk, CONFIG)
    assert reopened.appended_end == base
    check_agreement(reopened)


@pytest.mark.parametrize("end", [0, 4096, 3 * 4096])
def test_nothing_is_cut_from_a_log_that_does_not_reach_so_far(end: int) -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    if end:
        append(store, "A", 0, b"one")
    store.close()
    before = disk.contents()
    cut_log(disk, SMALL, end)
    assert disk.contents() == before


def test_a_log_is_not_cut_before_its_beginning() -> None:
    disk = SimulatedDisk()
    begin_log_at(disk, SMALL, 8192)
    before = disk.contents()
    with pytest.raises(ValueError, match="8192"):
        cut_log(disk, SMALL, 8191)
    assert disk.contents() == before
    cut_log(disk, SMALL, 8192)
    assert open_store(disk).appended_end == 8192


@pytest.mark.parametrize("position", [0, 4096, 3 * 4096])
def test_an_emptied_log_begins_where_it_was_told(position: int) -> None:
    disk = SimulatedDisk()
    store_of(disk).close()
    save_epochs(disk, [(1, 0)])
    begin_log_at(disk, CONFIG, position)
    assert load_epochs(disk).value is None
    store = open_store(disk, CONFIG)
    assert (store.min_offset, store.appended_end) == (position, position)
    assert store.queues.names() == []
    assert not store.recovery.warnings
    appended = append(store, "A", 0, b"one")
    assert (appended.base_physical_offset, appended.base_queue_offset) == (position, 0)
    check_agreement(store)
    check_answers(store)
    store.close()
    assert open_store(disk, CONFIG).recovery.clean


@pytest.mark.parametrize("position", [-4096, 1, 4095])
def test_a_log_begins_with_a_segment(position: int) -> None:
    disk = SimulatedDisk()
    store_of(disk).close()
    before = disk.contents()
    with pytest.raises(ValueError, match="no segment"):
        begin_log_at(disk, CONFIG, position)
    assert disk.contents() == before


@pytest.mark.parametrize("change", [cut_log, begin_log_at])
def test_a_log_that_somebody_has_open_is_not_changed(
    change: Callable[[SimulatedDisk, StoreConfig, int], None],
) -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    append(store, "A", 0, b"one")
    with pytest.raises(StoreLocked):
        change(disk, SMALL, 0)
    assert read_queue(store, "A", 0) == [b"one"]


def test_a_disk_without_room_for_the_first_segment_leaves_the_rest_for_the_next_start() -> None:
    disk = SimulatedDisk()
    store_of(disk).close()
    full = OSError(errno.ENOSPC, "full")
    disk.fault = lambda operation, path: full if operation == "allocate" else None
    with pytest.raises(StoreUnusable):
        begin_log_at(disk, CONFIG, 8192)
    with pytest.raises(StoreUnusable):
        open_store(disk, CONFIG)
    assert BEGIN_FILE in disk.contents()
    disk.fault = None
    assert open_store(disk, CONFIG).min_offset == 8192
    assert BEGIN_FILE not in disk.contents()


def test_a_slave_may_begin_in_the_middle_of_its_masters_log() -> None:
    """Its queues begin with the first message that the log has of them, and those without any
    where the master's count on."""
    master_disk = SimulatedDisk()
    clock = ManualClock()
    master = open_store(master_disk, CONFIG, clock)
    append(master, "gone", 7, b"one", b"two")
    grow(master, clock, 12)
    master.close()
    # Retention takes the first two segments.
    for path in sorted(master_disk.contents("commitlog/"))[:2]:
        master_disk.remove(path)
    master = open_store(master_disk, CONFIG, clock)
    assert master.min_offset == 8192
    assert master.queues.emptied() == {("gone", 7): 2}
    disk = SimulatedDisk()
    open_store(disk, CONFIG).close()
    begin_log_at(disk, CONFIG, master.min_offset)
    slave = open_store(disk, CONFIG)
    replicate(master, slave, [100] * 60)
    assert log_bytes(slave) == log_bytes(master)
    for name in master.queues.names():
        assert slave.queues.bounds(*name) == master.queues.bounds(*name) or name == ("gone", 7)
    slave.replicated.begin_queues(master.queues.emptied())
    slave.replicated.begin_queues({("T2", 0): 1, ("never", 0): 0})
    assert slave.queues.emptied() == {("gone", 7): 2}
    check_agreement(slave)
    for _ in range(2):
        slave.close()
        slave = open_store(disk, CONFIG)
        assert slave.queues.emptied() == {("gone", 7): 2}
    assert append(slave, "gone", 7, b"three").base_queue_offset == 2
    check_agreement(slave)


def test_a_deposed_master_cuts_its_tail_and_follows() -> None:
    clock = ManualClock()
    old_disk = SimulatedDisk()
    old = open_store(old_disk, CONFIG, clock)
    grow(old, clock, 6)
    new = open_store(SimulatedDisk(), CONFIG, clock)
    replicate(old, new)
    common = old.appended_end
    grow(old, clock, 6, "lost")
    new.replicated.begin()
    grow(new, clock, 4, "new")
    old.close()
    cut_log(old_disk, CONFIG, common)
    old = open_store(old_disk, CONFIG, clock)
    replicate(new, old, [333] * 20)
    check_equal(new, old)
    check_answers(old)
