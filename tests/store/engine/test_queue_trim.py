"""Queues follow the log's minimum: what they begin with, and which of their files go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.queues.consume_queue import ConsumeQueue
from aerobee.store.engine.queues.queue_ends import read_queue_ends
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.consume_queue_entry import pack_entries, unpack_entries

ENTRIES_PER_FILE = 4
RECORD_BYTES = 100


def files_of(root: Path, queue: ConsumeQueue) -> list[int]:
    """The first entry of each file."""
    return sorted(int(path.name) // 20 for path in (root / queue.directory).glob("0*"))


def grow(queues: QueueSet, queue: ConsumeQueue, positions: list[int]) -> None:
    sizes = [RECORD_BYTES] * len(positions)
    entries = pack_entries(positions, sizes, sizes)
    queues.append(queue, entries, len(positions), positions[-1] + RECORD_BYTES)


def write_out(queues: QueueSet) -> None:
    work = queues.take_write_out()
    work.run(Checkpoint())
    queues.finish_write_out(work)


def trim(queues: QueueSet, log_min_offset: int) -> int:
    work = queues.take_trim(log_min_offset)
    work.run()
    queues.finish_trim(work)
    return work.removed_files


@given(
    first_offset=st.integers(0, 9),
    gaps=st.lists(st.integers(0, 3), min_size=1, max_size=25),
    written=st.integers(0, 25),
    minimums=st.lists(st.integers(0, 110), min_size=1, max_size=3),
)
def test_a_queue_begins_at_its_first_message_that_the_log_has(
    first_offset: int,
    gaps: list[int],
    written: int,
    minimums: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("trim")
    queues = QueueSet(FileCache(RealDisk(root), 4), ENTRIES_PER_FILE)
    queue = queues.get_or_create("Orders", 0)
    if first_offset:
        queues.begin_at(queue, first_offset)
    positions: list[int] = []
    position = 0
    for gap in gaps:
        position += gap * RECORD_BYTES
        positions.append(position)
        position += RECORD_BYTES
    in_files = min(written, len(positions))
    if in_files:
        grow(queues, queue, positions[:in_files])
        write_out(queues)
    if positions[in_files:]:
        grow(queues, queue, positions[in_files:])
    files_before = files_of(root, queue)
    for minimum in sorted(minimums):
        log_min_offset = minimum * RECORD_BYTES
        removed = trim(queues, log_min_offset)
        expected = first_offset + sum(position < log_min_offset for position in positions)
        assert queue.min_offset == expected
        assert queue.end == first_offset + len(positions)
        if expected < queue.end:
            assert queue.min_position == positions[expected - first_offset]
        needed = [
            first
            for first in files_before
            if first + ENTRIES_PER_FILE > expected or first == files_before[-1]
        ]
        assert files_of(root, queue) == needed
        assert removed == len(files_before) - len(needed)
        files_before = needed
        kept = queue.read_entries(FileCache(RealDisk(root), 4), expected, 100)
        assert unpack_entries(kept)[0].tolist() == positions[expected - first_offset :]
    write_out(queues)
    assert not queues.has_unwritten


def test_queues_that_begin_above_the_minimum_are_not_looked_at(tmp_path: Path) -> None:
    queues = QueueSet(FileCache(RealDisk(tmp_path), 4), ENTRIES_PER_FILE)
    for number in range(20):
        grow(queues, queues.get_or_create("Orders", number), [number * 1_000])
    assert len(queues.take_trim(0).beginnings) == 0
    assert len(queues.take_trim(5_001).beginnings) == 6
    trim(queues, 5_001)
    assert len(queues.take_trim(5_001).beginnings) == 0
    assert len(queues.take_trim(7_000).beginnings) == 1  # six are empty now, and go on being so
    grow(queues, queues.get_or_create("Orders", 0), [90_000])
    assert queues.get_or_create("Orders", 0).min_position == 90_000


def test_a_queue_may_grow_and_be_written_out_while_it_is_trimmed(tmp_path: Path) -> None:
    queues = QueueSet(FileCache(RealDisk(tmp_path), 4), ENTRIES_PER_FILE)
    queue = queues.get_or_create("Orders", 0)
    grow(queues, queue, [number * 100 for number in range(10)])
    write_out(queues)
    work = queues.take_trim(950)
    grow(queues, queue, [number * 100 for number in range(10, 14)])
    write_out(queues)
    work.run()
    grow(queues, queue, [1_400])
    queues.finish_trim(work)
    assert (queue.min_offset, queue.end) == (10, 15)
    assert files_of(tmp_path, queue) == [8, 12]
    entries = queue.read_entries(FileCache(RealDisk(tmp_path), 4), 10, 100)
    assert unpack_entries(entries)[0].tolist() == [1_000, 1_100, 1_200, 1_300, 1_400]


def trimmed(queues: QueueSet, queue: ConsumeQueue) -> None:
    trim(queues, 450)


def emptied(queues: QueueSet, queue: ConsumeQueue) -> None:
    work = queues.take_trim(1 << 62)
    work.run()
    queues.finish_trim(work)


def found_damaged(queues: QueueSet, queue: ConsumeQueue) -> None:
    queue.damage = "found by a reader"
    assert queues.get(queue.topic, queue.queue_id) is queue


def counting_on_damaged(queues: QueueSet, queue: ConsumeQueue) -> None:
    found_damaged(queues, queue)
    grow(queues, queue, [1_000])


@pytest.mark.parametrize("change", [trimmed, emptied, found_damaged, counting_on_damaged])
def test_what_changes_while_a_checkpoint_is_under_way_is_listed_by_the_next_one(
    change: Callable[[QueueSet, ConsumeQueue], None], tmp_path: Path
) -> None:
    disk = RealDisk(tmp_path)
    queues = QueueSet(FileCache(disk, 4), ENTRIES_PER_FILE)
    queue = queues.get_or_create("Orders", 0)
    grow(queues, queue, [number * 100 for number in range(6)])
    write_out(queues)
    grow(queues, queue, [number * 100 for number in range(6, 10)])
    under_way = queues.take_write_out()
    under_way.run(Checkpoint())
    change(queues, queue)
    queues.finish_write_out(under_way)
    assert queues.has_unwritten
    write_out(queues)
    assert not queues.has_unwritten
    (listed,) = read_queue_ends(disk, Checkpoint()).queues.values()
    assert (listed.first_offset, listed.min_offset) == (queue.first_offset, queue.min_offset)
    assert (listed.written_end, listed.end) == (queue.written_end, queue.end)
    assert listed.is_damaged == bool(queue.damage)


def test_what_a_trim_takes_from_under_a_reader_is_no_damage(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    queues = QueueSet(FileCache(disk, 1), ENTRIES_PER_FILE)
    queue = queues.get_or_create("Orders", 0)
    grow(queues, queue, [number * 100 for number in range(10)])
    write_out(queues)
    before = queue.plan_read(disk, 0, 8)
    work = queues.take_trim(850)
    work.run()
    assert before.run() == b""
    assert queue.read_entries(FileCache(disk, 1), 0, 8) == b""
    queues.finish_trim(work)
    assert before.run() == b""
    assert queue.damage == ""
    assert len(queue.read_entries(FileCache(disk, 1), 9, 8)) == 20


def test_a_trim_that_was_interrupted_is_simply_done_again(tmp_path: Path) -> None:
    queues = QueueSet(FileCache(RealDisk(tmp_path), 1), ENTRIES_PER_FILE)
    queue = queues.get_or_create("Orders", 0)
    grow(queues, queue, [number * 100 for number in range(13)])
    write_out(queues)
    (tmp_path / queue.file_path(0)).unlink()
    assert trim(queues, 900) == 1
    assert (queue.first_offset, queue.min_offset) == (8, 9)
