"""Appending: offsets, segments, timestamps, and everything that refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Busy, MessageTooLarge, NotWritable, ShuttingDown, StoreFailed
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.retention.retention_policy import DiskSpace
from aerobee.store.engine.statistics import StoreState
from aerobee.store.format.consume_queue_entry import unpack_entries
from aerobee.store.format.record import HostAddress, Record
from tests.support.fault_disk import FaultDisk, broken, no_space
from tests.support.stores import (
    SMALL,
    append,
    batch_of,
    check_agreement,
    flush,
    locate,
    log_records,
    open_store,
    read_queue,
)


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return open_store(tmp_path)


def test_queue_offsets_count_per_queue_and_physical_offsets_through_the_log(
    store: MessageStore,
) -> None:
    first = append(store, "Orders", 0, b"a", b"b")
    second = append(store, "Orders", 1, b"c")
    third = append(store, "Orders", 0, b"d")
    assert (first.base_queue_offset, first.base_physical_offset) == (0, 0)
    assert (second.base_queue_offset, second.base_physical_offset) == (0, first.end)
    assert (third.base_queue_offset, third.base_physical_offset) == (2, second.end)
    assert read_queue(store, "Orders", 0) == [b"a", b"b", b"d"]
    check_agreement(store)


def test_the_stamp_carries_the_stores_own_host(tmp_path: Path) -> None:
    host = HostAddress.parse("10.1.2.3:10911")
    store = open_store(tmp_path, replace(SMALL, store_host=host))
    append(store, "Orders", 3, b"a")
    record = log_records(store)[0]
    assert (record.store_host, record.queue_id) == (host, 3)
    assert record.store_timestamp_ms == 1_700_000_000_000


def test_a_batch_that_does_not_fit_goes_to_the_next_segment_as_a_whole(
    store: MessageStore,
) -> None:
    append(store, "Orders", 0, b"x" * 3500)
    appended = append(store, "Orders", 0, b"y" * 200, b"z" * 200)
    assert appended.base_physical_offset == 4096
    assert [segment.wrote_position for segment in store.log.segments()] == [
        4096,
        appended.end - 4096,
    ]
    blank_at = len(batch_of("Orders", b"x" * 3500).buffer)
    blank = store.log.record_at(blank_at, 8)
    assert blank == (4096 - blank_at).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert read_queue(store, "Orders", 0) == [b"x" * 3500, b"y" * 200, b"z" * 200]


@pytest.mark.parametrize("left", [8, 7])
def test_eight_bytes_stay_free_for_the_blank_record(store: MessageStore, left: int) -> None:
    append(store, "Orders", 0, b"")
    first_size = store.appended_end
    append(store, "Orders", 0, b"x" * (4096 - 2 * first_size - left))
    fits = left == 8
    assert len(store.log.segments()) == (1 if fits else 2)
    assert store.appended_end == (4096 - left if fits else 4096 + 4096 - first_size - left)
    append(store, "Orders", 0, b"")
    check_agreement(store)


def test_a_batch_larger_than_a_segment_is_refused_and_nothing_changes(store: MessageStore) -> None:
    append(store, "Orders", 0, b"a")
    end = store.appended_end
    with pytest.raises(MessageTooLarge, match="segment"):
        store.append(batch_of("Orders", b"x" * 4096), queue_id=0)
    assert store.appended_end == end
    assert append(store, "Orders", 0, b"b").base_queue_offset == 1


def test_store_timestamps_never_fall_even_if_the_clock_steps_back(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    first = append(store, "Orders", 0, b"a")
    clock.step_wall_ms(-60_000)
    second = append(store, "Orders", 0, b"b")
    assert second.store_timestamp_ms == first.store_timestamp_ms
    store.close()
    reopened = open_store(tmp_path, clock=clock)
    assert append(reopened, "Orders", 0, b"c").store_timestamp_ms == first.store_timestamp_ms


@pytest.mark.parametrize("transaction_type", [0x4, 0xC])
def test_prepared_and_rollback_records_take_no_offset_and_no_queue_entry(
    store: MessageStore, transaction_type: int
) -> None:
    append(store, "Orders", 0, b"a")
    grown: list[QueueName] = []
    store.on_grown(grown.extend)
    store.append(batch_of("Orders", b"half", sys_flag=transaction_type), queue_id=0)
    store.confirm(store.appended_end)
    assert grown == []
    append(store, "Orders", 0, b"b")
    assert read_queue(store, "Orders", 0) == [b"a", b"b"]
    assert [record.queue_offset for record in log_records(store)] == [0, 0, 1]
    check_agreement(store)


def test_entries_of_the_schedule_topic_hold_the_time_of_delivery(store: MessageStore) -> None:
    batch = batch_of("SCHEDULE_TOPIC_XXXX", b"later", properties={"DELAY": "3"})
    appended = store.append(batch, queue_id=2)
    store.confirm(store.appended_end)
    _, _, codes = unpack_entries(store.queues.read_entries("SCHEDULE_TOPIC_XXXX", 2, 0, 1))
    assert codes.tolist() == [appended.store_timestamp_ms + 10_000]


def test_consumers_see_nothing_before_it_is_confirmed(store: MessageStore) -> None:
    first = store.append(batch_of("Orders", b"a"), queue_id=0)
    store.append(batch_of("Orders", b"b"), queue_id=0)
    store.append(batch_of("Orders", b"c"), queue_id=1)
    assert store.queues.bounds("Orders", 0).max_offset == 0
    grown: list[list[QueueName]] = []
    store.on_grown(lambda queues: grown.append(list(queues)))
    store.confirm(first.end)
    assert grown == [[("Orders", 0)]]
    assert read_queue(store, "Orders", 0) == [b"a"]
    assert store.dispatched_end == store.confirmed_end == first.end
    store.confirm(store.appended_end)
    store.confirm(store.appended_end)
    assert grown[1:] == [[("Orders", 0), ("Orders", 1)]], "each queue once, and no empty news"


# ---------------------------------------------------------------------------------- refusals


def test_back_pressure_refuses_until_a_flush_has_made_room(tmp_path: Path) -> None:
    store = open_store(tmp_path, replace(SMALL, unflushed_bytes_max=1000))
    append(store, "Orders", 0, b"x" * 700)
    with pytest.raises(Busy, match="wait for the disk"):
        append(store, "Orders", 0, b"x" * 700)
    flush(store)
    assert append(store, "Orders", 0, b"x" * 700).base_queue_offset == 1
    assert store.statistics().refused_batches == 1


def test_unconfirmed_bytes_count_as_waiting_even_if_they_are_flushed(tmp_path: Path) -> None:
    store = open_store(tmp_path, replace(SMALL, unflushed_bytes_max=1000))
    store.append(batch_of("Orders", b"x" * 700), queue_id=0)
    flush(store)
    with pytest.raises(Busy):
        store.append(batch_of("Orders", b"x" * 700), queue_id=0)
    store.confirm(store.appended_end)
    store.append(batch_of("Orders", b"x" * 700), queue_id=0)


def test_a_disk_below_its_minimum_refuses_and_recovers_by_itself(tmp_path: Path) -> None:
    store = open_store(tmp_path, replace(SMALL, disk_free_bytes_min=1_000_000))
    store.retention.observe(DiskSpace(999_999, 2_000_000))
    with pytest.raises(NotWritable, match="999999 bytes free"):
        append(store, "Orders", 0, b"a")
    assert store.state is StoreState.DISK_FULL
    store.retention.observe(DiskSpace(1_000_000, 2_000_000))
    assert append(store, "Orders", 0, b"a").base_queue_offset == 0


def test_no_space_for_another_segment_refuses_and_recovers_by_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FaultDisk(tmp_path)
    store = open_store(disk, clock=clock)
    append(store, "Orders", 0, b"x" * 3000)
    disk.allocate_error = no_space()
    end = store.appended_end
    for _ in range(2):
        with pytest.raises(NotWritable, match="another log segment"):
            append(store, "Orders", 0, b"y" * 2000)
    assert store.appended_end == end
    assert [entry.name for entry in disk.list("") if "preallocated" in entry.name] == []
    disk.allocate_error = None
    with pytest.raises(NotWritable):  # the disk is asked again only after a pause
        append(store, "Orders", 0, b"y" * 2000)
    clock.advance_ms(1_000)
    append(store, "Orders", 0, b"y" * 2000)
    assert read_queue(store, "Orders", 0) == [b"x" * 3000, b"y" * 2000]
    check_agreement(store)


def test_a_record_that_still_fits_is_taken_on_a_full_disk(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    store = open_store(disk)
    append(store, "Orders", 0, b"x" * 2500)
    disk.allocate_error = no_space()
    work = store.supply.take_prepare()
    assert work is not None
    work.run()
    store.supply.finish_prepare(work)
    append(store, "Orders", 0, b"y" * 100)
    assert read_queue(store, "Orders", 0) == [b"x" * 2500, b"y" * 100]


def test_after_a_failed_write_nothing_is_taken_or_read_any_more(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    store = open_store(disk)
    append(store, "Orders", 0, b"a")
    end = store.appended_end
    disk.write_error = (lambda path: path.startswith("commitlog/"), broken())
    with pytest.raises(StoreFailed, match="Input/output error"):
        append(store, "Orders", 0, b"b" * 300)
    disk.write_error = None
    assert store.appended_end == end
    assert store.state is StoreState.FAILED
    with pytest.raises(StoreFailed):
        append(store, "Orders", 0, b"c")
    with pytest.raises(StoreFailed):
        store.ledger.take_flush()
    with pytest.raises(StoreFailed):
        locate(store, "Orders", 0, 0, max_messages=1, max_bytes=1)
    with pytest.raises(StoreFailed):
        store.confirm(store.appended_end)
    store.close()
    assert disk.exists("abort")
    recovered = open_store(tmp_path)
    assert read_queue(recovered, "Orders", 0) == [b"a"]
    check_agreement(recovered)


def test_a_closed_store_refuses_appends(store: MessageStore) -> None:
    append(store, "Orders", 0, b"a")
    store.close()
    assert read_queue(store, "Orders", 0) == [b"a"]
    with pytest.raises(ShuttingDown):
        append(store, "Orders", 0, b"b")


# ---------------------------------------------------------------------------------- segments


def test_the_prepared_segment_is_used_when_the_active_one_is_full(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    store = open_store(disk)
    append(store, "Orders", 0, b"a")
    assert store.supply.take_prepare() is None  # not half full yet
    append(store, "Orders", 0, b"x" * 2048)
    work = store.supply.take_prepare()
    assert work is not None
    assert store.supply.take_prepare() is None  # one at a time
    work.run()
    store.supply.finish_prepare(work)
    assert store.supply.take_prepare() is None  # one spare is enough
    disk.allocate_error = no_space()
    append(store, "Orders", 0, b"y" * 2048)
    assert [segment.base for segment in store.log.segments()] == [0, 4096]
    check_agreement(store)


def test_a_segment_that_could_not_be_made_durable_is_not_used_and_its_space_comes_back(
    tmp_path: Path,
) -> None:
    disk = FaultDisk(tmp_path)
    clock = ManualClock()
    store = open_store(disk, SMALL, clock)
    append(store, "Orders", 0, b"x" * 3000)
    work = store.supply.take_prepare()
    assert work is not None
    disk.datasync_error = (lambda path: "preallocated" in path, no_space())
    work.run()
    assert work.spare is None
    store.supply.finish_prepare(work)
    assert not list(tmp_path.glob("preallocated-*"))
    assert store.supply.take_prepare() is None  # after a pause only
    disk.datasync_error = None
    clock.advance_ms(1_000)
    again = store.supply.take_prepare()
    assert again is not None
    again.run()
    store.supply.finish_prepare(again)
    append(store, "Orders", 0, b"y" * 3000)
    assert [segment.base for segment in store.log.segments()] == [0, 4096]
    check_agreement(store)


def test_an_append_does_not_wait_for_a_segment_that_is_still_being_prepared(
    store: MessageStore,
) -> None:
    append(store, "Orders", 0, b"x" * 3000)
    work = store.supply.take_prepare()
    assert work is not None
    append(store, "Orders", 0, b"y" * 3000)
    work.run()
    store.supply.finish_prepare(work)  # late: kept for the next roll
    append(store, "Orders", 0, b"z" * 3000)
    assert [segment.base for segment in store.log.segments()] == [0, 4096, 8192]
    check_agreement(store)


def test_the_spare_segment_goes_at_a_clean_close(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, "Orders", 0, b"x" * 3000)
    work = store.supply.take_prepare()
    assert work is not None
    work.run()
    store.supply.finish_prepare(work)
    store.close()
    assert not list(tmp_path.glob("preallocated-*"))
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == ["0" * 20]


def test_segments_have_their_full_length_from_the_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, "Orders", 0, b"a")
    assert (tmp_path / "commitlog" / ("0" * 20)).stat().st_size == 4096
    assert Record(store.log.record_at(0, store.appended_end)).body == b"a"
