"""A slave that must begin its log anew: what it believes of the groups' offsets from then on."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.log import JOURNAL_QUEUE
from aerobee.broker.journal.records import ImageEnd, body_of
from aerobee.broker.offsets.entries import (
    JOURNAL_TOPIC,
    Entry,
    OffsetEntry,
    decode_body,
)
from aerobee.broker.offsets.merge import Change, ChangeKind
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.opened import OpenedFolder
from aerobee.broker.opening import change_log, open_folder
from aerobee.broker.replication.joining import BeginAnew
from aerobee.broker.wiring import FEATURES
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import CONSUMER_OFFSETS_PATH
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from tests.support.journal_replica import any_text
from tests.support.replicas import log_bytes
from tests.support.stores import SMALL, append, flush, open_store, read_queue

BUSY = GroupQueue("g", "busy", 0)
IDLE = GroupQueue("g", "idle", 0)
SEGMENT_BYTES = 16_384
CONFIG = replace(SMALL, segment_bytes=SEGMENT_BYTES)


class Master:
    """Its log, and the state of its journal."""

    def __init__(self, root: Path) -> None:
        self.store = open_store(root, CONFIG, ManualClock())
        self.table = ConsumerOffsetTable()
        self.state = OffsetJournalState(self.table, journal_end=0)

    def journal(self, *entries: Entry | ImageEnd) -> None:
        append(self.store, JOURNAL_TOPIC, JOURNAL_QUEUE, body_of([any_text(e) for e in entries]))
        self.state.apply(entries, self.state.next_offset)

    def commit(self, key: GroupQueue, offset: int) -> None:
        self.journal(OffsetEntry(key, Change(ChangeKind.COMMIT, offset), 1))

    def write_image(self) -> None:
        position, first = self.store.appended_end, self.state.next_offset
        for key in (IDLE, BUSY):
            standing = self.state.standing(key)
            assert standing is not None
            self.journal(OffsetEntry(key, Change(ChangeKind.IMAGE, *standing), 1))
        self.journal(ImageEnd(position, first, 1))


def busy_master(root: Path) -> Master:
    """One queue is not written any more since its first segment."""
    master = Master(root)
    for offset in range(5):
        append(master.store, "idle", 0, b"x")
        master.commit(IDLE, offset + 1)
    for offset in range(80):
        append(master.store, "busy", 0, b"x" * 300)
        master.commit(BUSY, offset + 1)
    return master


def slave_with_a_snapshot(root: Path, master: Master) -> RealDisk:
    disk = RealDisk(root)
    slave = open_store(root, CONFIG, ManualClock())
    slave.replicated.append(slave.replicated.begin(), log_bytes(master.store, 0))
    slave.confirm(slave.appended_end)
    flush(slave)
    slave.close()
    replace_atomically(disk, CONSUMER_OFFSETS_PATH, master.table.snapshot_bytes(1))
    return disk


def state_of(folder: OpenedFolder) -> OffsetJournalState:
    journal = folder.store.queues.bounds(JOURNAL_TOPIC, JOURNAL_QUEUE)
    return OffsetJournalState(folder.offsets, journal_end=journal.max_offset)


def follow(folder: OpenedFolder, state: OffsetJournalState) -> None:
    """Read the journal as the follower does."""
    bounds = folder.store.queues.bounds(JOURNAL_TOPIC, JOURNAL_QUEUE)
    if state.next_offset < bounds.min_offset:
        state.skip_to(bounds.min_offset)
    bodies = read_queue(folder.store, JOURNAL_TOPIC, JOURNAL_QUEUE)
    for number in range(state.next_offset, bounds.max_offset):
        state.apply(decode_body(bodies[number - bounds.min_offset]), number)


def copy(folder: OpenedFolder, master: Master, position: int) -> None:
    store = folder.store
    store.replicated.append(store.replicated.begin(), log_bytes(master.store, position))
    store.confirm(store.appended_end)
    flush(store)


def test_it_forgets_its_snapshot_and_takes_what_the_copied_journal_says(tmp_path: Path) -> None:
    """Killed at any moment, it never tells that a group is at 0, nor keeps what the log lacks."""
    clock = ManualClock()
    master = busy_master(tmp_path / "m")
    disk = slave_with_a_snapshot(tmp_path / "s", master)
    begin = master.store.appended_end // SEGMENT_BYTES * SEGMENT_BYTES
    master.write_image()

    change_log(disk, CONFIG, BeginAnew(begin), random.Random(1), FEATURES)
    folder = open_folder(disk, clock, CONFIG, FEATURES)
    assert folder.offsets.groups() == []
    assert not state_of(folder).is_whole, "operators are told to ask the master"
    copy(folder, master, begin)
    folder.store.close()  # before the table was saved

    folder = open_folder(disk, clock, CONFIG, FEATURES)
    state = state_of(folder)
    assert not state.is_whole
    follow(folder, state)
    assert state.is_whole
    assert folder.offsets.as_json() == master.table.as_json()
    replace_atomically(disk, CONSUMER_OFFSETS_PATH, folder.offsets.snapshot_bytes(2))
    folder.store.close()

    folder = open_folder(disk, clock, CONFIG, FEATURES)
    assert folder.offsets.query(*IDLE) == 5, "its messages lie before this log, they are not lost"
    assert folder.offsets.as_json() == master.table.as_json()
    assert state_of(folder).is_whole
    folder.store.close()
    master.store.close()


def test_a_backup_of_the_snapshot_is_forgotten_too(tmp_path: Path) -> None:
    master = busy_master(tmp_path / "m")
    disk = slave_with_a_snapshot(tmp_path / "s", master)
    change_log(disk, CONFIG, BeginAnew(SEGMENT_BYTES), random.Random(1), FEATURES)
    disk.open_file(CONSUMER_OFFSETS_PATH, create=True).truncate(0)
    folder = open_folder(disk, ManualClock(), CONFIG, FEATURES)
    assert folder.offsets.groups() == []
    assert not state_of(folder).is_whole
    folder.store.close()
    master.store.close()


def test_a_log_that_begins_anew_at_its_very_beginning_needs_no_image(tmp_path: Path) -> None:
    master = busy_master(tmp_path / "m")
    disk = slave_with_a_snapshot(tmp_path / "s", master)
    change_log(disk, CONFIG, BeginAnew(0), random.Random(1), FEATURES)
    folder = open_folder(disk, ManualClock(), CONFIG, FEATURES)
    copy(folder, master, 0)
    state = state_of(folder)
    follow(folder, state)
    assert state.is_whole
    assert folder.offsets.as_json() == master.table.as_json()
    folder.store.close()
    master.store.close()


@pytest.mark.parametrize("content", [b"", bytes(300)])
def test_a_snapshot_without_content_is_read_again_from_the_journal(
    tmp_path: Path, content: bytes
) -> None:
    """A power failure may leave the file and its backup so."""
    master = busy_master(tmp_path / "m")
    disk = slave_with_a_snapshot(tmp_path / "s", master)
    for path in (CONSUMER_OFFSETS_PATH, CONSUMER_OFFSETS_PATH + ".bak"):
        (tmp_path / "s" / path).write_bytes(content)
    folder = open_folder(disk, ManualClock(), CONFIG, FEATURES)
    follow(folder, state := state_of(folder))
    assert state.standing(BUSY) == master.state.standing(BUSY)
    assert state.standing(IDLE) == master.state.standing(IDLE)


def test_a_snapshot_without_content_and_without_a_journal_stops_the_start(tmp_path: Path) -> None:
    """As in a folder of Apache's broker: nothing else says where the groups were."""
    store = open_store(tmp_path, CONFIG, ManualClock())
    append(store, "busy", 0, b"x")
    store.close()
    (tmp_path / "config").mkdir(exist_ok=True)
    for path in (CONSUMER_OFFSETS_PATH, CONSUMER_OFFSETS_PATH + ".bak"):
        (tmp_path / path).write_bytes(b"")
    with pytest.raises(InvalidArgument, match=r"consumerOffset\.json is empty; .*repair the file"):
        open_folder(RealDisk(tmp_path), ManualClock(), CONFIG, FEATURES)
