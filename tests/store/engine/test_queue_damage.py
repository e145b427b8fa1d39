"""Files of queues that go away, or are no queue's files any more, while the store is in use.

What retention takes is no damage. What is damage is met before anything is decided by it: no trim
and no search passes over a message that the log still has.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.errors import QueueDamaged
from aerobee.store.engine.folder_state import load_checkpoint
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.queue_trim import QueueTrim
from aerobee.store.format.consume_queue_entry import unpack_entries
from tests.support.property_runs import examples
from tests.support.stores import (
    SMALL,
    append,
    batch_of,
    check_agreement,
    flush,
    log_records,
    open_store,
    read_queue,
    search_by_time,
)

pytestmark = pytest.mark.many_files
LAZY = replace(SMALL, queue_checks_at_start_max=0)
# So large that a segment holds five: the log's minimum lies in the middle of a queue's first file.
LARGE = bytes(700)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sixty messages in six files of one queue, closed cleanly."""
    store = open_store(tmp_path / "store")
    for number in range(60):
        append(store, "Orders", 0, b"%d" % number + LARGE)
    store.close()
    return tmp_path / "store"


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "consumequeue/Orders/0").iterdir())


def drop_segments(root: Path, store: MessageStore, count: int) -> None:
    for _ in range(count):
        RealDisk(root).remove(store.log.drop_oldest().path)


def take_trim(store: MessageStore) -> QueueTrim:
    return store.queues.take_trim(store.log.min_offset)


def trim(store: MessageStore) -> None:
    work = take_trim(store)
    work.run()
    store.queues.finish_trim(work)


def in_log(store: MessageStore) -> list[int]:
    return [record.queue_offset for record in log_records(store) if record.topic == "Orders"]


def checkpoint(store: MessageStore) -> None:
    work = store.ledger.take_checkpoint(store.flushed_end)
    work.run()
    store.ledger.finish_checkpoint(work)


# ---------------------------------------------------------------------------------- the race


@pytest.mark.parametrize("planned", ["before the trim", "during the trim"])
@pytest.mark.parametrize("looked", ["during the trim", "after the trim"])
def test_a_reader_takes_what_retention_removes_for_no_damage(
    root: Path, planned: str, looked: str
) -> None:
    store = open_store(root, LAZY)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    drop_segments(root, store, 5)
    read = queue.plan_read(RealDisk(root), 50, 5)
    work = take_trim(store)
    if planned == "during the trim":
        read = queue.plan_read(RealDisk(root), 50, 5)
    claimed_end = queue.claimed_end
    work.run()
    assert work.removed_files == 2
    queue.claimed_end = claimed_end  # as if the trim had not looked itself
    if looked == "after the trim":
        store.queues.finish_trim(work)
    assert len(unpack_entries(read.run())[0]) == 5
    if looked == "during the trim":
        store.queues.finish_trim(work)
    assert queue.damage == ""
    assert read_queue(store, "Orders", 0) == [b"%d" % n + LARGE for n in range(25, 60)]
    store.close()


@pytest.mark.parametrize("taken", ["before the trim", "during the trim"])
def test_a_checkpoint_takes_what_retention_removes_for_no_damage(root: Path, taken: str) -> None:
    store = open_store(root, LAZY)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    drop_segments(root, store, 5)
    append(store, "Orders", 0, b"new")
    write_out = store.queues.take_write_out() if taken == "before the trim" else None
    work = take_trim(store)
    claimed_end = queue.claimed_end
    work.run()
    queue.claimed_end = claimed_end
    if write_out is None:
        write_out = store.queues.take_write_out()
    write_out.run(load_checkpoint(RealDisk(root)))
    store.queues.finish_write_out(write_out)
    store.queues.finish_trim(work)
    # What the files hold has grown, and whoever looks next compares them with that.
    assert len(read_queue(store, "Orders", 0)) == 36
    append(store, "Orders", 0, *[b"more"] * 15)
    store.close()
    store = open_store(root, LAZY)
    assert store.recovery.rebuilt_queues == ()
    assert len(read_queue(store, "Orders", 0)) == 51
    check_agreement(store)


def test_a_reader_still_finds_a_last_file_that_was_lost_while_retention_removes(
    root: Path,
) -> None:
    store = open_store(root, LAZY)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    drop_segments(root, store, 5)
    read = queue.plan_read(RealDisk(root), 40, 5)
    queue_files(root)[-1].unlink()
    queue.is_trimmed = True
    with pytest.raises(QueueDamaged):
        read.run()


def test_two_readers_that_look_at_once_do_not_take_each_others_claim(root: Path) -> None:
    """The second had its claim when the first found all well."""
    store = open_store(root, LAZY, read_only=True)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    disk = RealDisk(root)
    first, second = queue.take_claim(), queue.take_claim()
    assert first is not None
    assert second == first
    queue.check_files(disk, first)
    assert queue.take_claim() is None
    queue.check_files(disk, second)
    queue.check_files(disk, None)
    assert queue.damage == ""


# ---------------------------------------------------------------------------------- the trim


def zero_an_entry(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    entry = rng.randrange(10)
    data[entry * 20 : entry * 20 + 20] = bytes(20)
    path.write_bytes(data)


def zero_all(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(200))


def flip_a_bit(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    bit = rng.randrange(len(data) * 8)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def cut_short(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(200)])


def lose(path: Path, rng: random.Random) -> None:
    path.unlink()


@settings(max_examples=examples(30))
@given(
    damage=st.sampled_from([zero_an_entry, zero_all, flip_a_bit, cut_short, lose]),
    which=st.integers(0, 5),
    removals=st.lists(st.integers(1, 2), max_size=3),
    while_running=st.booleans(),
    rng=st.randoms(use_true_random=False),
)
def test_no_trim_passes_over_a_message_that_the_log_has(
    damage: Callable[[Path, random.Random], None],
    which: int,
    removals: list[int],
    while_running: bool,
    rng: random.Random,
    sixty: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever happens to one file of a queue that nobody has used, before a start or after."""
    root = tmp_path_factory.mktemp("damaged") / "store"
    shutil.copytree(sixty, root)
    if not while_running:
        damage(queue_files(root)[which], rng)
        for path in sorted((root / "commitlog").iterdir())[: sum(removals)]:
            path.unlink()  # retention was killed before it came to the queues
    store = open_store(root, LAZY)
    if while_running:
        damage(queue_files(root)[which], rng)
        for count in removals:
            drop_segments(root, store, count)
            trim(store)
    kept = in_log(store)
    assert store.queues.bounds("Orders", 0).min_offset <= kept[0]
    assert append(store, "Orders", 0, b"new").base_queue_offset == 60
    store.close()
    store = open_store(root, LAZY)
    assert store.queues.bounds("Orders", 0).min_offset <= kept[0]
    if damage is not flip_a_bit:  # of that only readers of the message itself may know
        with contextlib.suppress(QueueDamaged):  # met only now, in the middle
            assert len(read_queue(store, "Orders", 0)) >= len(kept) + 1
    store.close()
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def sixty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sixty") / "store"
    store = open_store(root)
    for number in range(60):
        append(store, "Orders", 0, b"%d" % number + LARGE)
    store.close()
    return root


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_file_makes_a_queue_damaged_and_the_next_start_has_all_messages(
    root: Path, lost: int
) -> None:
    store = open_store(root, LAZY)
    queue_files(root)[lost].unlink()
    drop_segments(root, store, 1)
    trim(store)
    assert store.queues.bounds("Orders", 0).min_offset == 0
    assert store.statistics().damaged_queue_count == 1
    with pytest.raises(QueueDamaged):
        read_queue(store, "Orders", 0)
    store.close()
    store = open_store(root, LAZY)
    assert store.recovery.rebuilt_queues == (("Orders", 0),)
    assert store.queues.bounds("Orders", 0).min_offset == 5
    assert len(read_queue(store, "Orders", 0)) == 55


def test_files_that_a_killed_trim_had_removed_are_no_damage(root: Path) -> None:
    store = open_store(root, LAZY)
    drop_segments(root, store, 5)  # the queue is to begin with message 25
    store.close()
    for path in queue_files(root)[:2]:
        path.unlink()
    store = open_store(root, LAZY)
    assert store.recovery.rebuilt_queues == ()
    assert store.queues.bounds("Orders", 0).min_offset == 25
    assert len(read_queue(store, "Orders", 0)) == 35
    drop_segments(root, store, 2)
    trim(store)
    assert [path.name for path in queue_files(root)] == [f"{n * 200:020d}" for n in (3, 4, 5)]
    check_agreement(store)


def test_a_queue_that_got_messages_while_it_was_emptied_knows_where_they_lie_or_nothing(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    append(store, "Gone", 0, *[b"old"] * 25)
    store.append(batch_of("Gone", b"late", b"late too"), queue_id=0)
    work = store.queues.take_trim(1 << 62)
    work.run()
    store.confirm(store.appended_end)
    store.queues.finish_trim(work)
    assert read_queue(store, "Gone", 0) == [b"late", b"late too"]
    store.close()
    store = open_store(tmp_path, LAZY)
    assert read_queue(store, "Gone", 0) == [b"late", b"late too"]
    assert store.recovery.rebuilt_queues == ()


# ---------------------------------------------------------------------------------- by time


@pytest.fixture
def timed(tmp_path: Path) -> tuple[Path, list[int]]:
    """A queue of 25 messages, and when each was stored."""
    clock = ManualClock()
    store = open_store(tmp_path / "timed", clock=clock)
    times = []
    for number in range(25):
        clock.advance_ms(1)
        times.append(append(store, "Orders", 0, b"%d" % number).store_timestamp_ms)
    store.close()
    return tmp_path / "timed", times


def lose_the_middle(root: Path) -> None:
    queue_files(root)[1].unlink()


def zero_the_middle(root: Path) -> None:
    queue_files(root)[1].write_bytes(bytes(200))


@pytest.mark.parametrize("damage", [lose_the_middle, zero_the_middle])
@pytest.mark.parametrize("used_before", [False, True])
def test_a_search_by_time_in_a_damaged_queue_says_so(
    timed: tuple[Path, list[int]], damage: Callable[[Path], None], used_before: bool
) -> None:
    root, times = timed
    store = open_store(root, LAZY)
    for number, time_ms in enumerate(times if used_before else []):
        assert search_by_time(store, "Orders", 0, time_ms) == number
    damage(root)
    for _ in range(2):
        with pytest.raises(QueueDamaged, match="queue 0 of topic Orders"):
            search_by_time(store, "Orders", 0, times[3])
    append(store, "Orders", 0, b"new")
    with pytest.raises(QueueDamaged):
        search_by_time(store, "Orders", 0, times[3])
    store.close()
    store = open_store(root, LAZY)
    assert store.recovery.rebuilt_queues == (("Orders", 0),)
    assert search_by_time(store, "Orders", 0, times[3]) == 3


# ---------------------------------------------------------------------------------- counting


@pytest.mark.parametrize("has_list", [True, False])
def test_an_idle_queue_uses_no_offset_twice_though_its_last_file_is_damaged(
    tmp_path: Path, has_list: bool
) -> None:
    """Its messages are gone from the log, so nothing but the list and the file tells how many."""
    store = open_store(tmp_path)
    append(store, "Orders", 0, *[b"old"] * 25)
    for _ in range(20):
        append(store, "Other", 0, LARGE)
    flush(store)
    drop_segments(tmp_path, store, 3)
    trim(store)
    store.close()
    path = queue_files(tmp_path)[-1]
    data = bytearray(path.read_bytes())
    data[2 * 20 + 8] ^= 0x80  # the third entry of five has a negative size
    path.write_bytes(data)
    if not has_list:
        (tmp_path / "consumequeue.ends").unlink()
    store = open_store(tmp_path)
    assert store.recovery.rebuilt_queues == (("Orders", 0),)
    assert append(store, "Orders", 0, b"new").base_queue_offset == 25
    store.close()
    assert read_queue(open_store(tmp_path), "Orders", 0) == [b"new"]


# ---------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("queues", [2, 40])
def test_a_queue_file_that_vanishes_stops_its_queue_and_nothing_else(
    tmp_path: Path, queues: int
) -> None:
    clock = ManualClock()
    config = replace(SMALL, segment_bytes=1 << 18)
    store = open_store(tmp_path, config, clock)
    for number in range(queues):
        append(store, f"Topic-{number}", 0, *[b"first"] * 15)
    store.close()
    store = open_store(tmp_path, config, clock)
    shutil.rmtree(tmp_path / "consumequeue/Topic-1")
    for number in range(queues):
        append(store, f"Topic-{number}", 0, *[b"second"] * 15)
    clock.advance_ms(6_000)
    flush(store)
    assert store.statistics().queue_tail_bytes == 0
    assert not (tmp_path / "consumequeue/Topic-1").exists()
    with pytest.raises(QueueDamaged, match="Topic-1"):
        read_queue(store, "Topic-1", 0)
    assert append(store, "Topic-1", 0, b"third").base_queue_offset == 30
    checkpoint(store)
    assert len(read_queue(store, "Topic-0", 0)) == 30
    store.close()
    store = open_store(tmp_path, config, clock)
    assert store.recovery.rebuilt_queues == (("Topic-1", 0),)
    assert len(read_queue(store, "Topic-1", 0)) == 31
    check_agreement(store)
