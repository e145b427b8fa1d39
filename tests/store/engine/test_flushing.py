"""Flushing: what is synced before what, what the checkpoint says, and disks that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import NotWritable, StoreFailed
from aerobee.store.engine.statistics import StoreState
from aerobee.store.format.checkpoint import Checkpoint
from tests.support.fault_disk import FaultDisk, broken, no_space
from tests.support.indexes import INDEXED, append_keys
from tests.support.stores import (
    SMALL,
    append,
    batch_of,
    check_agreement,
    flush,
    open_store,
    read_queue,
)


def checkpoint_in(root: Path) -> Checkpoint:
    return Checkpoint.decode((root / "checkpoint").read_bytes())


def test_the_log_is_synced_before_queues_and_queues_before_the_checkpoint(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FaultDisk(tmp_path)
    store = open_store(disk, clock=clock)
    append(store, "Orders", 0, b"x" * 3000)
    append(store, "Orders", 1, b"y" * 3000)
    clock.advance_ms(5_000)
    disk.calls.clear()
    flush(store)
    synced = [path for call, path in disk.calls if call == "datasync"]
    log_files = ["commitlog/" + "0" * 20, "commitlog/" + "4096".zfill(20)]
    assert synced[:2] == log_files
    assert synced[-1] == "checkpoint"
    first_queue_write = next(
        at for at, (call, path) in enumerate(disk.calls) if call == "write" and "queue" in path
    )
    last_log_sync = max(at for at, (_, path) in enumerate(disk.calls) if path in log_files)
    assert last_log_sync < first_queue_write
    named = [path for call, path in disk.calls if call == "rename"]
    assert f"consumequeue/Orders/0/{'0' * 20}" in named
    for directory in ("commitlog", "", "consumequeue", "consumequeue/Orders"):
        assert ("fsync_directory", directory) in disk.calls


def test_the_key_index_is_synced_before_the_checkpoint(tmp_path: Path) -> None:
    """Apache's recovery takes the checkpoint's word for it."""
    clock = ManualClock()
    disk = FaultDisk(tmp_path)
    store = open_store(disk, INDEXED, clock)
    for number in range(40):
        append_keys(store, "Orders", f"unique-{number} key")
    clock.advance_ms(5_000)
    disk.calls.clear()
    flush(store)
    synced = [path for call, path in disk.calls if call == "datasync"]
    assert len({path for path in synced if path.startswith("index/")}) > 1
    assert synced.index("checkpoint") == len(synced) - 1


def test_flushed_end_moves_only_when_the_flush_is_finished(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = append(store, "Orders", 0, b"a")
    work = store.ledger.take_flush()
    assert work is not None
    assert work.end == first.end
    append(store, "Orders", 0, b"b")
    assert store.ledger.take_flush() is None  # one at a time
    work.run()
    assert store.flushed_end == 0
    store.ledger.finish_flush(work)
    assert store.flushed_end == first.end
    assert store.unflushed_bytes == store.appended_end - first.end


def test_nothing_unflushed_gives_no_work(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.ledger.take_flush() is None
    append(store, "Orders", 0, b"a")
    flush(store)
    assert store.ledger.take_flush() is None


def test_the_checkpoint_comes_by_interval_and_names_the_last_record(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    appended = append(store, "Orders", 0, b"a")
    flush(store, checkpoint=False)
    assert checkpoint_in(tmp_path) == Checkpoint()
    clock.advance_ms(5_000)
    assert store.ledger.checkpoint_due
    flush(store)
    assert not store.ledger.checkpoint_due
    assert checkpoint_in(tmp_path) == Checkpoint(
        physic_msg_timestamp=appended.store_timestamp_ms,
        logics_msg_timestamp=appended.store_timestamp_ms,
        confirm_physical_offset=appended.end,
    )


def test_the_checkpoint_does_not_run_ahead_of_dispatch(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    dispatched = append(store, "Orders", 0, b"a")
    clock.advance_ms(5_000)
    store.append(batch_of("Orders", b"b"), queue_id=0)
    flush(store)
    checkpoint = checkpoint_in(tmp_path)
    assert checkpoint.logics_msg_timestamp == dispatched.store_timestamp_ms
    assert checkpoint.physic_msg_timestamp == dispatched.store_timestamp_ms + 5_000


def test_entries_leave_memory_once_they_are_in_files_and_readers_see_no_difference(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path, replace(SMALL, queue_tail_bytes_max=200))
    bodies = [b"m%d" % number for number in range(35)]
    for body in bodies[:25]:
        append(store, "Orders", 0, body)
    assert store.ledger.checkpoint_due  # by size
    work = store.ledger.take_flush()
    assert work is not None
    work.run()
    store.ledger.finish_flush(work)
    assert work.checkpoint is not None
    for body in bodies[25:]:
        append(store, "Orders", 0, body)
    work.checkpoint.run()
    assert read_queue(store, "Orders", 0) == bodies
    assert store.statistics().queue_tail_bytes == 35 * 20
    store.ledger.finish_checkpoint(work.checkpoint)
    assert store.statistics().queue_tail_bytes == 10 * 20
    assert read_queue(store, "Orders", 0) == bodies
    names = sorted(path.name for path in (tmp_path / "consumequeue/Orders/0").iterdir())
    assert names == ["0" * 20, "200".zfill(20), "400".zfill(20)]
    check_agreement(store)


def test_a_failed_fsync_of_the_log_fails_the_store_for_good(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    store = open_store(disk)
    append(store, "Orders", 0, b"a")
    disk.datasync_error = (lambda path: path.startswith("commitlog/"), broken())
    work = store.ledger.take_flush()
    assert work is not None
    with pytest.raises(OSError, match="Input/output"):
        work.run()
    store.fail(broken())
    disk.datasync_error = None
    with pytest.raises(StoreFailed, match="must restart"):
        append(store, "Orders", 0, b"b")
    with pytest.raises(StoreFailed):
        store.ledger.take_flush()
    assert store.flushed_end == 0
    store.close()
    assert disk.exists("abort")


def test_a_failed_fsync_while_closing_leaves_the_stop_unclean(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    store = open_store(disk)
    append(store, "Orders", 0, b"a")
    disk.datasync_error = (lambda path: True, broken())
    with pytest.raises(StoreFailed, match="closed cleanly"):
        store.close()
    assert disk.exists("abort")
    recovered = open_store(tmp_path)  # the lock is free
    assert not recovered.recovery.clean
    assert read_queue(recovered, "Orders", 0) == [b"a"]


def test_a_disk_too_full_for_queue_files_refuses_appends_until_they_are_written(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    disk = FaultDisk(tmp_path)
    store = open_store(disk, clock=clock)
    append(store, "Orders", 0, b"a")
    clock.advance_ms(5_000)
    disk.write_error = (lambda path: path.startswith("preallocated-queue"), no_space())
    flush(store)
    assert store.flushed_end == store.appended_end
    assert store.state is StoreState.DISK_FULL
    with pytest.raises(NotWritable, match="consume queues"):
        append(store, "Orders", 0, b"b")
    assert read_queue(store, "Orders", 0) == [b"a"]
    disk.write_error = None
    clock.advance_ms(5_000)
    flush(store)
    append(store, "Orders", 0, b"b")
    store.close()
    assert not disk.exists("abort")
    assert read_queue(open_store(tmp_path), "Orders", 0) == [b"a", b"b"]


def test_a_disk_that_stays_full_leaves_the_stop_unclean_and_loses_nothing(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    store = open_store(disk)
    append(store, "Orders", 0, b"a")
    disk.write_error = (lambda path: path.startswith("preallocated-queue"), no_space())
    store.close()
    assert disk.exists("abort")
    recovered = open_store(tmp_path)
    assert read_queue(recovered, "Orders", 0) == [b"a"]
    check_agreement(recovered)


def test_closing_finishes_what_was_taken_and_never_run(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    append(store, "Orders", 0, b"a")
    clock.advance_ms(5_000)
    assert store.ledger.take_flush() is not None
    append(store, "Orders", 0, b"b")
    store.close()
    assert not (tmp_path / "abort").exists()
    assert read_queue(open_store(tmp_path), "Orders", 0) == [b"a", b"b"]


def test_closing_twice_does_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, "Orders", 0, b"a")
    store.close()
    store.close()
    assert store.state is StoreState.CLOSING
