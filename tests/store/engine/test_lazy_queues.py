"""Queues whose files nobody looks at until they are used: what is wrong is never served.

A start that finds a list of queue ends believes it. These stores look at no file unasked, so each
damage is met by the first reader or the first checkpoint, and mended by the next start.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.disk import DirectoryEntry, DiskFile, RealDisk
from aerobee.store.engine.errors import QueueDamaged
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.message_store import MessageStore
from tests.support.fault_disk import FaultDisk
from tests.support.stores import (
    SMALL,
    append,
    batch_of,
    check_agreement,
    crashed_copy,
    flush,
    locate,
    open_store,
    read_queue,
)

pytestmark = pytest.mark.many_files
LAZY = replace(SMALL, queue_checks_at_start_max=0)
BODIES = {queue_id: [b"%d-%d" % (queue_id, n) for n in range(20)] for queue_id in range(3)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Twenty messages in each of three queues, closed cleanly."""
    store = open_store(tmp_path / "store")
    for number in range(20):
        for queue_id, bodies in BODIES.items():
            append(store, "Orders", queue_id, bodies[number])
    store.close()
    return tmp_path / "store"


def queue_file(root: Path, first_entry: int = 0, queue_id: int = 1) -> Path:
    return root / "consumequeue/Orders" / str(queue_id) / f"{first_entry * 20:020d}"


def put(path: Path, entry: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(entry * 20)
        file.write(data)


def files_of(root: Path, queue_id: int) -> list[Path]:
    return list((root / "consumequeue/Orders" / str(queue_id)).glob("0*"))


def lose_queue(root: Path) -> None:
    shutil.rmtree(queue_file(root).parent)


def lose_first_file(root: Path) -> None:
    queue_file(root).unlink()


def lose_last_file(root: Path) -> None:
    queue_file(root, 10).unlink()


def shorten(root: Path) -> None:
    queue_file(root, 10).write_bytes(queue_file(root, 10).read_bytes()[:150])


def zero_the_last_entry(root: Path) -> None:
    put(queue_file(root, 10), 9, bytes(20))


def zero_the_middle(root: Path) -> None:
    put(queue_file(root), 4, bytes(20))


def shift_by_one(root: Path) -> None:
    entries = queue_file(root, 10).read_bytes()
    queue_file(root, 10).write_bytes(entries[20:] + entries[-20:])


def take_another_queues_last_file(root: Path) -> None:
    shutil.copy(queue_file(root, 10, 2), queue_file(root, 10))


def take_another_queues_first_file(root: Path) -> None:
    shutil.copy(queue_file(root, 0, 2), queue_file(root))


def restore_an_older_copy(root: Path) -> None:
    put(queue_file(root, 10), 5, bytes(5 * 20))


DAMAGES = [
    lose_queue,
    lose_first_file,
    lose_last_file,
    shorten,
    zero_the_last_entry,
    zero_the_middle,
    shift_by_one,
    take_another_queues_last_file,
    take_another_queues_first_file,
    restore_an_older_copy,
]
by_name = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)


@by_name
def test_a_damaged_queue_serves_nothing_until_the_next_start_has_built_it_again(
    root: Path, damage: Callable[[Path], None]
) -> None:
    damage(root)
    store = open_store(root, LAZY)
    for _ in range(2):
        with pytest.raises(QueueDamaged, match="queue 1 of topic Orders"):
            locate(store, "Orders", 1, 0, max_messages=32, max_bytes=4096)
    for queue_id in (0, 2):
        assert read_queue(store, "Orders", queue_id) == BODIES[queue_id]
    assert append(store, "Orders", 1, b"next").base_queue_offset == 20
    assert store.queues.bounds("Orders", 1).max_offset == 21
    assert store.statistics().damaged_queue_count == 1
    store.close()
    reopened = open_store(root, LAZY)
    assert reopened.recovery.clean
    assert reopened.recovery.rebuilt_queues == (("Orders", 1),)
    assert read_queue(reopened, "Orders", 1) == [*BODIES[1], b"next"]
    check_agreement(reopened)
    reopened.close()
    assert open_store(root, LAZY).recovery.rebuilt_queues == ()


@by_name
def test_a_checkpoint_adds_nothing_to_files_that_are_not_the_queues(
    root: Path, damage: Callable[[Path], None]
) -> None:
    if damage is zero_the_middle:
        put(queue_file(root, 10), 9, bytes(20))
    damage(root)
    before = {path: path.read_bytes() for path in files_of(root, 1)}
    store = open_store(root, LAZY)
    append(store, "Orders", 1, b"next")
    append(store, "Orders", 2, b"other")
    store.close()
    for path, data in before.items():
        assert path.read_bytes() == data
    assert queue_file(root, 20, 2).exists()
    assert set(files_of(root, 1)) == set(before)
    reopened = open_store(root, LAZY)
    assert reopened.recovery.rebuilt_queues == (("Orders", 1),)
    assert read_queue(reopened, "Orders", 1) == [*BODIES[1], b"next"]
    check_agreement(reopened)


@by_name
def test_after_a_crash_a_damaged_queue_that_got_messages_is_built_again_at_once(
    root: Path, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    store = open_store(root, LAZY)
    append(store, "Orders", 1, b"next")
    crashed = crashed_copy(root, tmp_path / "crashed")
    damage(crashed)
    recovered = open_store(crashed, LAZY)
    assert recovered.recovery.rebuilt_queues == (("Orders", 1),)
    assert read_queue(recovered, "Orders", 1) == [*BODIES[1], b"next"]
    check_agreement(recovered)


def test_a_cold_read_finds_the_damage_too(root: Path) -> None:
    lose_queue(root)
    store = open_store(root, LAZY)
    disk = RealDisk(root)
    files = FileCache(disk, LAZY.open_files_max)
    queue = store.queues.get("Orders", 1)
    assert queue is not None
    assert queue.read_entries_nowait(files, 0, 5) is None  # nobody has looked yet
    with pytest.raises(QueueDamaged):
        queue.plan_read(disk, 0, 5).run()
    with pytest.raises(QueueDamaged):
        queue.read_entries_nowait(files, 0, 5)
    other = store.queues.get("Orders", 2)
    assert other is not None
    entries = other.plan_read(disk, 3, 15).run()
    assert len(entries) == 15 * 20
    assert other.read_entries_nowait(files, 3, 15) == entries
    assert other.read_entries(files, 3, 15) == entries


class CountingDisk(RealDisk):
    """Counts what touches queue files, and keeps the most handles open at once in sight."""

    __slots__ = ("touched",)

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.touched: list[str] = []

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        if path.startswith("consumequeue/"):
            self.touched.append(path)
        return super().open_file(path, create=create, read_only=read_only)

    def list(self, path: str) -> list[DirectoryEntry]:
        if path.startswith("consumequeue"):
            self.touched.append(path)
        return super().list(path)


def many_queues(root: Path, clock: ManualClock | None = None) -> MessageStore:
    store = open_store(root, replace(SMALL, segment_bytes=1 << 20), clock)
    for number in range(200):
        append(store, f"Topic-{number // 4}", number % 4, b"%d" % number)
    return store


def test_a_clean_start_touches_no_queue_file_but_the_one_with_the_last_entry(
    tmp_path: Path,
) -> None:
    many_queues(tmp_path).close()
    disk = CountingDisk(tmp_path)
    store = open_store(disk, replace(LAZY, segment_bytes=1 << 20))
    assert store.recovery.clean
    assert disk.touched == [f"consumequeue/Topic-49/3/{0:020d}"]
    check_agreement(store)
    assert len(disk.touched) > 200


def test_after_a_crash_only_queues_that_changed_are_touched(tmp_path: Path) -> None:
    clock = ManualClock()
    store = many_queues(tmp_path / "running", clock)
    clock.advance_ms(6_000)
    flush(store)
    append(store, "Topic-7", 2, b"unwritten")
    append(store, "New", 0, b"unwritten")
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    disk = CountingDisk(crashed)
    recovered = open_store(disk, replace(LAZY, segment_bytes=1 << 20))
    assert not recovered.recovery.clean
    assert recovered.recovery.dispatched_records == 2
    assert {path.split("/")[1] for path in disk.touched} <= {"Topic-7", "New"}
    check_agreement(recovered)


def test_the_handles_that_are_kept_open_do_not_grow_with_the_queues(tmp_path: Path) -> None:
    many_queues(tmp_path).close()
    before = len(os.listdir("/proc/self/fd"))
    store = open_store(tmp_path, replace(LAZY, segment_bytes=1 << 20, open_files_max=10))
    check_agreement(store)
    assert len(os.listdir("/proc/self/fd")) <= before + 10 + 8


def test_a_list_that_was_lost_costs_a_look_at_every_file_and_nothing_else(tmp_path: Path) -> None:
    many_queues(tmp_path).close()
    (tmp_path / "consumequeue.ends").unlink()
    store = open_store(tmp_path, replace(LAZY, segment_bytes=1 << 20))
    assert store.recovery.rebuilt_queues == ()
    check_agreement(store)
    store.close()
    assert (tmp_path / "consumequeue.ends").exists()


def test_a_queue_that_begins_behind_removed_messages_is_listed_without_a_file(
    tmp_path: Path,
) -> None:
    """Its blank entries lie in no file until its first message does."""
    store = open_store(tmp_path)
    for _ in range(13):
        append(store, "Old", 0, b"o")
    append(store, "Orders", 0, b"x" * 3500)
    append(store, "Orders", 0, b"y" * 3500)
    store.close()
    for path in sorted((tmp_path / "commitlog").iterdir())[:1]:
        path.unlink()
    shutil.rmtree(tmp_path / "consumequeue/Old")
    open_store(tmp_path).close()
    for config in (LAZY, SMALL):
        store = open_store(tmp_path, config)
        assert store.recovery.rebuilt_queues == ()
        bounds = store.queues.bounds("Old", 0)
        assert (bounds.min_offset, bounds.max_offset) == (13, 13)
        store.close()
    assert not (tmp_path / "consumequeue/Old").exists()
    store = open_store(tmp_path, LAZY)
    assert append(store, "Old", 0, b"new").base_queue_offset == 13
    store.close()
    assert read_queue(open_store(tmp_path, LAZY), "Old", 0) == [b"new"]


def test_a_log_cut_by_the_operator_cuts_the_queues_though_they_are_listed(root: Path) -> None:
    segment = sorted((root / "commitlog").iterdir())[-1]
    with segment.open("r+b") as file:
        file.seek(150)
        file.write(b"\xff" * 10)
    store = open_store(root, replace(LAZY, cut_damaged=True))
    check_agreement(store)
    store.close()
    check_agreement(open_store(root, LAZY))


def test_many_queues_in_one_checkpoint_are_written_whether_or_not_all_can_be_synced_at_once(
    tmp_path: Path,
) -> None:
    for name in ("at once", "one by one"):
        clock = ManualClock()
        root = tmp_path / name
        disk = _SyncingDisk(root, can_sync_all=name == "at once")
        store = open_store(disk, replace(SMALL, segment_bytes=1 << 20), clock)
        for round_number in range(3):
            for number in range(60):
                store.append(
                    batch_of(f"T{number}", *[b"%d" % round_number] * 7), queue_id=number % 2
                )
            store.confirm(store.appended_end)
            clock.advance_ms(6_000)
            flush(store)
            assert store.statistics().queue_tail_bytes == 0
        assert bool(disk.whole_syncs) == (name == "at once")
        crashed = crashed_copy(root, tmp_path / f"{name} crashed")
        check_agreement(open_store(crashed, replace(LAZY, segment_bytes=1 << 20)))


class _SyncingDisk(RealDisk):
    """A disk on which everything can be synced by one call, or not."""

    __slots__ = ("_can_sync_all", "whole_syncs")

    def __init__(self, root: Path, *, can_sync_all: bool) -> None:
        super().__init__(root)
        self._can_sync_all = can_sync_all
        self.whole_syncs = 0

    def sync_all(self) -> bool:
        if not self._can_sync_all:
            return False
        self.whole_syncs += 1
        return super().sync_all()


class PowerFailures(FaultDisk):
    """Keeps what a power failure would leave, at every step of `kinds` until there are enough."""

    def __init__(self, root: Path, states: Path) -> None:
        super().__init__(root)
        self._states = states
        self.kept: list[Path] | None = None

    def keep(self) -> None:
        if self.kept is not None and len(self.kept) < 40:
            target = self._states / str(len(self.kept))
            self.cut_power(target, random.Random(len(self.kept)))
            self.kept.append(target)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if random.Random(new).random() < 0.3:
            self.keep()

    def sync_all(self) -> bool:
        self.keep()
        synced = super().sync_all()
        self.keep()
        return synced

    def fsync_directory(self, path: str) -> None:
        super().fsync_directory(path)
        self.keep()


def test_a_power_failure_while_many_queues_are_written_at_once_loses_nothing(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    config = replace(LAZY, segment_bytes=1 << 17)
    disk = PowerFailures(tmp_path / "store", tmp_path)
    store = open_store(disk, config, clock)
    kept = []
    for round_number in range(2):
        for number in range(40):
            bodies = [b"%d" % round_number] * (1 + number % 4 * 5)
            store.append(batch_of(f"T{number}", *bodies), queue_id=0)
        store.confirm(store.appended_end)
        clock.advance_ms(6_000)
        work = store.ledger.take_flush()
        assert work is not None
        assert work.checkpoint is not None
        work.run()
        store.ledger.finish_flush(work)
        flushed_end = store.flushed_end
        disk.kept = []
        work.checkpoint.run()
        kept, disk.kept = disk.kept, None
        store.ledger.finish_checkpoint(work.checkpoint)
        assert len(kept) > 3
        for state in kept:
            recovered = open_store(state, config, clock)
            assert recovered.appended_end >= flushed_end
            check_agreement(recovered)
            recovered.close()
            shutil.rmtree(state)
