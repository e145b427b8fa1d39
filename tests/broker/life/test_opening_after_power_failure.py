"""What a group may believe after the machine lost what was not flushed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.queue_leases import COUNTER_BITS, GroupQueue
from aerobee.broker.groups.run_record import (
    LEASES_PATH,
    RunRecord,
    is_log_whole,
    newest_record,
    next_run,
)
from aerobee.broker.journal.records import UNKNOWN_IMAGE
from aerobee.broker.opening import open_folder
from aerobee.broker.wiring import FEATURES
from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import FlushMode
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    TOPICS_PATH,
    ConsumerOffsetTable,
    TopicConfig,
    TopicTable,
)
from aerobee.store.engine.tables.consumer_offset_table import JournalMark
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.transaction_records import TRANSACTIONS_GROUP
from tests.support.fault_disk import FaultDisk
from tests.support.stores import SMALL, append, flush

CONFIG = replace(SMALL, flush_mode=FlushMode.ASYNC)
KEY = GroupQueue("g", "t", 0)


@pytest.mark.parametrize("seed", range(6))
def test_a_group_is_never_ahead_of_its_queue(tmp_path: Path, seed: int) -> None:
    """Messages seen from the page cache are gone, the commit after them is not: the next messages
    get their offsets and must be seen."""
    (tmp_path / "before").mkdir()
    disk = FaultDisk(tmp_path / "before")
    folder = open_folder(disk, ManualClock(), CONFIG, FEATURES)
    append(folder.store, "t", 0, *[b"kept"] * 5)
    flush(folder.store)
    append(folder.store, "t", 0, *[b"only in the page cache"] * 5)
    folder.offsets.commit("g", "t", 0, 10)
    replace_atomically(disk, CONSUMER_OFFSETS_PATH, folder.offsets.snapshot_bytes(1))
    disk.cut_power(tmp_path / "after", random.Random(seed))

    after = RealDisk(tmp_path / "after")
    reopened = open_folder(after, ManualClock(), CONFIG, FEATURES)
    end = reopened.store.queues.bounds("t", 0).max_offset
    assert 5 <= end <= 10
    assert reopened.offsets.query("g", "t", 0) == end
    on_disk = ConsumerOffsetTable.load(after.read_file(CONSUMER_OFFSETS_PATH))
    assert on_disk.query("g", "t", 0) == end, "a second crash must not bring the old one back"
    reopened.store.close()
    folder.store.fail(RuntimeError("the power is gone"))
    folder.store.close()


def test_offsets_in_queues_that_we_do_not_serve_are_left_alone(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    topics = TopicTable()
    topics.put(TopicConfig(name="batches", attributes={"queue.type": "BatchCQ"}))
    replace_atomically(disk, TOPICS_PATH, topics.snapshot_bytes(1))
    offsets = ConsumerOffsetTable()
    offsets.commit("g", "batches", 0, 10)
    offsets.commit("g", "gone", 0, 10)
    replace_atomically(disk, CONSUMER_OFFSETS_PATH, offsets.snapshot_bytes(1))
    folder = open_folder(disk, ManualClock(), CONFIG, FEATURES)
    assert folder.offsets.query("g", "batches", 0) == 10
    assert folder.offsets.query("g", "gone", 0) == 0
    folder.store.close()


@pytest.mark.parametrize(("boot_id", "confirmed"), [("one", 1), ("another", 0), ("", 0)])
def test_held_leases_are_believed_only_within_one_start_of_the_machine(
    boot_id: str, confirmed: int
) -> None:
    """After another boot a member may have fetched what is no longer there: it starts again at its
    committed offset instead of going on where it was."""

    async def write(_record: RunRecord | bytes) -> None:
        raise AssertionError("nothing to write")

    previous = RunRecord(7, 10_000, False, "one")
    this_run = next_run(previous, boot_id)
    state = CurrentRun(write)
    state.begin(previous, this_run, 0.0, write, believes_members=is_log_whole(previous, this_run))
    held = [(KEY, (7 << COUNTER_BITS) + 3)]
    assert len(state.leases.resume("g", "a", held)[0]) == confirmed


def test_offsets_that_are_ahead_of_their_journal_are_so_for_no_later_start(tmp_path: Path) -> None:
    """Records that come in the place of lost ones were taken for applied by the start after the
    next, if that one was killed before it wrote the table."""
    disk = RealDisk(tmp_path)
    open_folder(disk, ManualClock(), CONFIG, FEATURES).store.close()
    offsets = ConsumerOffsetTable()
    offsets.mark = JournalMark(7, 100, is_whole=True)
    replace_atomically(disk, CONSUMER_OFFSETS_PATH, offsets.snapshot_bytes(1))
    open_folder(disk, ManualClock(), CONFIG, FEATURES).store.close()
    for path in (CONSUMER_OFFSETS_PATH, f"{CONSUMER_OFFSETS_PATH}.bak"):
        mark = ConsumerOffsetTable.load(disk.read_file(path)).mark
        assert mark is not None
        assert (mark.next_offset, mark.image_position) == (0, UNKNOWN_IMAGE)


def test_transactions_that_were_done_in_a_lost_log_are_looked_at_again(tmp_path: Path) -> None:
    """Their half messages are left and what ended them is not: nobody would ask about them."""
    disk = RealDisk(tmp_path)
    folder = open_folder(disk, ManualClock(), CONFIG, FEATURES)
    append(folder.store, HALF_TOPIC, 0, *[b"half"] * 5)
    flush(folder.store)
    folder.store.close()
    offsets = ConsumerOffsetTable()
    for group in (TRANSACTIONS_GROUP, "g"):
        offsets.commit(group, HALF_TOPIC, 0, 3)
    offsets.mark = JournalMark(7, 100, is_whole=True)
    replace_atomically(disk, CONSUMER_OFFSETS_PATH, offsets.snapshot_bytes(1))
    for _ in range(2):
        folder = open_folder(disk, ManualClock(), CONFIG, FEATURES)
        assert folder.offsets.query(TRANSACTIONS_GROUP, HALF_TOPIC, 0) is None
        assert folder.offsets.query("g", HALF_TOPIC, 0) == 3
        folder.store.close()


def test_a_run_whose_record_the_journal_has_lost_is_known_from_the_file(tmp_path: Path) -> None:
    """Members of that run may believe in their queues yet, so nobody else gets them at once."""
    earlier = RunRecord(3, 5_000, True, "one", epoch=1, broker_id=0)
    lost = RunRecord(4, 10_000, False, "one", epoch=2, broker_id=0)
    assert newest_record(earlier, lost) == lost
    assert newest_record(lost, earlier) == lost
    assert newest_record(earlier, earlier) is earlier
    assert newest_record(None, lost) == lost
    # Starts that end before a run begins change nothing of that.
    disk = RealDisk(tmp_path)
    replace_atomically(disk, LEASES_PATH, lost.encode())
    for _ in range(2):
        folder = open_folder(disk, ManualClock(), CONFIG, FEATURES, "two")
        folder.store.close()
    previous = newest_record(earlier, folder.previous_run)
    assert (previous.epoch, previous.session_timeout_max_ms) == (2, 10_000)
    assert not previous.is_clean
    assert not is_log_whole(previous, folder.this_run)
