"""Consume queues can be lost, cut, shifted or garbled: the log brings them back, always."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import IllegalName
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.engine.queues.reading import QueueBounds
from aerobee.store.format.consume_queue_entry import PRE_BLANK_ENTRY, pack_entry
from aerobee.store.format.record import iterate_records
from tests.support.queue_damages import DAMAGES, VISIBLE_DAMAGES, queue_path
from tests.support.stores import (
    SMALL,
    append,
    batch_of,
    check_agreement,
    crashed_copy,
    flush,
    locate,
    log_records,
    open_store,
    read_queue,
)

pytestmark = pytest.mark.many_files


def expected_bodies(queue_id: int) -> list[bytes]:
    return [b"%d" % number * 100 for number in range(60) if number % 3 == queue_id]


def fill(store: MessageStore, clock: ManualClock) -> None:
    for number in range(60):
        append(store, "Orders", number % 3, b"%d" % number * 100)
        clock.advance_ms(200)
        if number == 40:
            flush(store)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty messages in each of three queues, over several segments and queue files: a folder
    `closed` and one `crashed`, only to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    clock = ManualClock()
    store = open_store(folder / "closed", clock=clock)
    fill(store, clock)
    crashed_copy(folder / "closed", folder / "crashed")
    store.close()
    return folder


@pytest.fixture(params=["closed", "crashed"])
def root(request: pytest.FixtureRequest, filled: Path, tmp_path: Path) -> Path:
    root: Path = tmp_path / request.param
    shutil.copytree(filled / request.param, root)
    return root


class SteppingDisk(RealDisk):
    """Keeps a copy of the folder before each change of a name, as a crash there would leave it."""

    __slots__ = ("_states", "count")

    def __init__(self, root: Path, states: Path) -> None:
        super().__init__(root)
        self._states = states
        self.count = 0

    def _keep(self) -> None:
        shutil.copytree(self.root, self._states / str(self.count))
        self.count += 1

    def rename(self, old: str, new: str) -> None:
        self._keep()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._keep()
        super().remove(path)

    def fsync_directory(self, path: str) -> None:
        super().fsync_directory(path)
        self._keep()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_queue_comes_back_from_the_log(
    root: Path, damage: Callable[[Path], None]
) -> None:
    damage(root)
    seen = open_store(root, read_only=True)
    check_agreement(seen)
    store = open_store(root)
    for queue_id in range(3):
        assert read_queue(store, "Orders", queue_id) == expected_bodies(queue_id)
    check_agreement(store)
    assert append(store, "Orders", 1, b"next").base_queue_offset == 20
    store.close()
    reopened = open_store(root)
    assert reopened.recovery.clean
    assert reopened.recovery.rebuilt_queues == ()
    assert read_queue(reopened, "Orders", 1) == [*expected_bodies(1), b"next"]
    check_agreement(reopened)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("damage", "ends_known"),
    [(damage, True) for damage in DAMAGES] + [(damage, False) for damage in VISIBLE_DAMAGES],
    ids=lambda value: getattr(value, "__name__", "with ends" if value is True else "without ends"),
)
def test_a_crash_at_any_moment_of_the_repair_loses_nothing(
    root: Path, damage: Callable[[Path], None], ends_known: bool, tmp_path: Path
) -> None:
    """Each state between two changes of the folder is a state from which recovery works."""
    damage(root)
    if not ends_known:
        (root / "consumequeue.ends").unlink()
    states = tmp_path / "states"
    states.mkdir()
    watched = SteppingDisk(root, states)
    open_store(watched)
    assert watched.count > 3
    for number in range(watched.count):
        if not ends_known:
            (states / str(number) / "consumequeue.ends").unlink(missing_ok=True)
        store = open_store(states / str(number))
        for queue_id in range(3):
            assert read_queue(store, "Orders", queue_id) == expected_bodies(queue_id)
        check_agreement(store)


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    """A queue of which only the first of several segments knows, closed cleanly."""
    clock = ManualClock()
    store = open_store(tmp_path / "quiet", clock=clock)
    for number in range(14):
        append(store, "Old", 0, b"%d" % number)
    for _ in range(4):
        clock.advance_ms(10_000)
        append(store, "Orders", 0, b"x" * 3000)
    store.close()
    return tmp_path / "quiet"


OLD_BODIES = [b"%d" % number for number in range(14)]


def old_queue_file(root: Path, first_entry: int) -> Path:
    return root / "consumequeue/Old/0" / f"{first_entry * 20:020d}"


def test_a_repair_is_taken_up_again_even_if_the_last_segment_knows_nothing_of_the_queue(
    quiet: Path, tmp_path: Path
) -> None:
    """Without a list of ends, only `abort` and the checkpoint can say that a queue is missing."""
    old_queue_file(quiet, 0).write_bytes(random.Random(1).randbytes(200))
    (quiet / "consumequeue.ends").unlink()
    states = tmp_path / "states"
    states.mkdir()
    watched = SteppingDisk(quiet, states)
    open_store(watched)
    for number in range(watched.count):
        state = states / str(number)
        (state / "consumequeue.ends").unlink(missing_ok=True)
        recovered = open_store(state)
        assert read_queue(recovered, "Old", 0) == OLD_BODIES, number
        check_agreement(recovered)


@pytest.mark.parametrize("lost_file", [0, 10])
def test_a_lost_queue_file_is_noticed_even_if_the_last_segment_knows_nothing_of_the_queue(
    quiet: Path, lost_file: int
) -> None:
    old_queue_file(quiet, lost_file).unlink()
    recovered = open_store(quiet)
    assert recovered.recovery.rebuilt_queues == (("Old", 0),)
    assert read_queue(recovered, "Old", 0) == OLD_BODIES
    check_agreement(recovered)


def test_a_lost_first_file_is_told_from_one_that_retention_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, "Orders", 1, b"x" * 3800)
    for number in range(14):
        append(store, "Old", 0, b"%d" % number)
    append(store, "Orders", 1, b"x" * 3800)
    store.close()
    remove_first_segments(tmp_path, 1)
    open_store(tmp_path).close()
    old_queue_file(tmp_path, 0).unlink()
    recovered = open_store(tmp_path)
    assert read_queue(recovered, "Old", 0)[-12:] == OLD_BODIES[-12:]
    assert recovered.recovery.rebuilt_queues == (("Old", 0),)
    check_agreement(recovered)


def write_log(root: Path, *records: tuple[bytes, int]) -> None:
    """A log as another broker may leave it: bodies with queue offsets of any choice."""
    data = b""
    for body, queue_offset in records:
        batch = batch_of("Orders", body)
        batch.stamp(
            queue_id=0,
            base_queue_offset=queue_offset,
            base_physical_offset=len(data),
            store_timestamp_ms=1_700_000_000_000,
            store_host=SMALL.store_host,
        )
        data += batch.buffer
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(data.ljust(4096, b"\0"))
    (root / "abort").touch()


@pytest.mark.parametrize(
    ("offsets", "kept"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3]),
        ([0, 1, 1, 2], [0, 1, 3]),  # given out twice: the first one counts
        ([0, 1, 0, 2], [0, 1, 2]),  # offset 0 is never compared: the third takes place 2
        ([0, 1, 5, 3], [0, 1, 2, 3]),  # lost ones between: goes on at the queue's end
        ([3, 4], [0, 1]),
    ],
)
def test_odd_queue_offsets_in_the_log_are_dispatched_as_apache_does(
    tmp_path: Path, offsets: list[int], kept: list[int]
) -> None:
    bodies = [b"%d" % number for number in range(len(offsets))]
    write_log(tmp_path, *zip(bodies, offsets, strict=True))
    store = open_store(tmp_path)
    bounds = store.queues.bounds("Orders", 0)
    assert bounds.min_offset == (offsets[0] if offsets[0] else 0)
    located = locate(store, "Orders", 0, bounds.min_offset, max_messages=32, max_bytes=4096)
    found = [record.body for record in iterate_records(store.log.read(located.runs))]
    assert found == [bodies[index] for index in kept]
    assert bool(store.recovery.warnings) == (offsets not in ([0, 1, 2, 3], [3, 4]))


def test_entries_behind_the_end_of_the_log_are_zeroed_in_their_files(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(25):
        append(store, "Orders", 1, b"%d" % number * 10)
    store.close()
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    cut_at = log_records(open_store(tmp_path, read_only=True))[13].physical_offset
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(cut_at)
        file.write(bytes(4096 - cut_at))
    recovered = open_store(tmp_path)
    assert recovered.queues.bounds("Orders", 1).max_offset == 13
    assert not queue_path(tmp_path, 1, 20).exists()
    entries = queue_path(tmp_path, 1, 10).read_bytes()
    assert any(entries[: 3 * 20])
    assert not any(entries[3 * 20 :])
    assert append(recovered, "Orders", 1, b"new").base_queue_offset == 13
    check_agreement(recovered)


def test_a_rebuild_larger_than_memory_is_written_out_on_the_way(tmp_path: Path) -> None:
    clock = ManualClock()
    config = replace(
        SMALL, queue_tail_bytes_max=100, recovery_tail_bytes_max=200, recovery_chunk_bytes=1000
    )
    store = open_store(tmp_path / "running", clock=clock)
    fill(store, clock)
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    shutil.rmtree(crashed / "consumequeue")
    recovered = open_store(crashed, config)
    assert recovered.recovery.dispatched_records >= 60
    assert recovered.statistics().queue_tail_bytes == 0
    for queue_id in range(3):
        assert read_queue(recovered, "Orders", queue_id) == expected_bodies(queue_id)
    check_agreement(recovered)


def test_queues_are_not_rebuilt_where_another_broker_used_the_folder_meanwhile(
    tmp_path: Path,
) -> None:
    """The list of queue ends counts only beside the checkpoint it was written with."""
    store = open_store(tmp_path)
    append(store, "Gone", 0, b"a")
    append(store, "Orders", 0, b"b" * 3000)
    append(store, "Orders", 0, b"c" * 3000)
    store.close()
    ends = (tmp_path / "consumequeue.ends").read_bytes()
    (tmp_path / "consumequeue.ends").write_bytes(ends.replace(b"Gone", b"Tone"))
    assert open_store(tmp_path, read_only=True).recovery.rebuilt_queues == ()
    (tmp_path / "consumequeue.ends").write_bytes(ends)
    shutil.rmtree(tmp_path / "consumequeue/Gone")
    assert open_store(tmp_path, read_only=True).recovery.rebuilt_queues == (("Gone", 0),)


# ---------------------------------------------------------------------------------- retention


def remove_first_segments(root: Path, count: int) -> None:
    for path in sorted((root / "commitlog").iterdir())[:count]:
        path.unlink()


def test_a_queue_begins_at_its_first_message_that_the_log_still_has(root: Path) -> None:
    remove_first_segments(root, 2)
    store = open_store(root)
    assert store.min_offset == 8192
    first = {record.queue_id: record.queue_offset for record in reversed(log_records(store))}
    for queue_id in range(3):
        assert store.queues.bounds("Orders", queue_id).min_offset == first[queue_id] > 0
        assert read_queue(store, "Orders", queue_id) == expected_bodies(queue_id)[first[queue_id] :]


def test_a_queue_rebuilt_behind_removed_segments_keeps_its_offsets(root: Path) -> None:
    remove_first_segments(root, 2)
    shutil.rmtree(root / "consumequeue")
    store = open_store(root)
    check_agreement(store)
    bounds = store.queues.bounds("Orders", 1)
    assert bounds.min_offset > 0
    assert bounds.max_offset == 20
    store.close()
    blank = bounds.min_offset % 10
    file = queue_path(root, 1, bounds.min_offset - blank).read_bytes()
    assert file[: blank * 20] == PRE_BLANK_ENTRY * blank
    reopened = open_store(root)
    assert reopened.queues.bounds("Orders", 1) == bounds
    check_agreement(reopened)


def test_a_queue_whose_messages_are_all_removed_goes_on_counting(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(3):
        append(store, "Old", 0, b"o")
    append(store, "Orders", 0, b"x" * 3500)
    append(store, "Orders", 0, b"y" * 3500)
    store.close()
    remove_first_segments(tmp_path, 1)
    store = open_store(tmp_path)
    bounds = store.queues.bounds("Old", 0)
    assert (bounds.min_offset, bounds.max_offset) == (3, 3)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue/Old")
    store = open_store(tmp_path)
    assert store.queues.bounds("Old", 0) == QueueBounds(3, 3)
    assert append(store, "Old", 0, b"n").base_queue_offset == 3
    assert read_queue(store, "Old", 0) == [b"n"]
    store.close()
    reopened = open_store(tmp_path)
    assert read_queue(reopened, "Old", 0) == [b"n"]
    assert reopened.queues.bounds("Old", 0).min_offset == 3


def test_prepared_records_do_not_confuse_a_rebuild(tmp_path: Path) -> None:
    store = open_store(tmp_path / "running")
    for number in range(9):
        sys_flag = (0x0, 0x4, 0x8, 0xC)[number % 4]
        store.append(batch_of("Orders", b"%d" % number, sys_flag=sys_flag), queue_id=0)
    store.confirm(store.appended_end)
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    recovered = open_store(crashed)
    assert read_queue(recovered, "Orders", 0) == [b"0", b"2", b"4", b"6", b"8"]
    check_agreement(recovered)


def test_schedule_topic_entries_are_rebuilt_with_the_time_of_delivery(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    batch = batch_of("SCHEDULE_TOPIC_XXXX", b"later", properties={"DELAY": "2"})
    store.append(batch, queue_id=1)
    store.close()
    before = open_store(tmp_path, read_only=True).queues.read_entries(
        "SCHEDULE_TOPIC_XXXX", 1, 0, 1
    )
    shutil.rmtree(tmp_path / "consumequeue")
    rebuilt = open_store(tmp_path).queues.read_entries("SCHEDULE_TOPIC_XXXX", 1, 0, 1)
    assert rebuilt == before
    assert int.from_bytes(rebuilt[12:], "big") == 1_700_000_000_000 + 5_000


@pytest.mark.parametrize("topic", ["../../escape", "..", "a/b", "n\0l", "x" * 256])
def test_a_topic_that_is_no_folder_name_is_refused(tmp_path: Path, topic: str) -> None:
    queues = QueueSet(FileCache(RealDisk(tmp_path), 10), 10)
    with pytest.raises(IllegalName, match="cannot be stored"):
        queues.get_or_create(topic, 0)
    with pytest.raises(IllegalName):
        queues.get_or_create("Orders", -1)
    assert len(queues) == 0


def test_blank_entries_are_never_a_queues_first_message(tmp_path: Path) -> None:
    queues = QueueSet(FileCache(RealDisk(tmp_path), 10), 10)
    queue = queues.get_or_create("Orders", 0)
    queues.begin_at(queue, 23)
    queues.append(queue, pack_entry(0, 100, 0), 1, 100)
    queues.correct_min_offsets(0)
    assert (queue.first_offset, queue.min_offset, queue.end) == (20, 23, 24)
    queues.correct_min_offsets(100)
    assert queue.min_offset == 24
