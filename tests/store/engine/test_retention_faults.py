"""Files that must not be removed or cannot be read: the store goes on, keeps them, and says so."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.unread_search import QueueReaders
from aerobee.store.engine.statistics import StoreState
from tests.support.fault_disk import FaultDisk, broken
from tests.support.retention import COMMAND, COMMAND_UNREAD, RETAINED, clean_here, expire
from tests.support.stores import batch_of, check_agreement, flush, open_store

pytestmark = pytest.mark.many_files
INDEXED = replace(
    RETAINED, index_slots_max=50, index_entries_max=20, consume_queue_entries_per_file=10
)


class StubbornDisk(FaultDisk):
    """Does not remove what lies below `below`."""

    below = "-"
    code = errno.EPERM

    def remove(self, path: str) -> None:
        if path.startswith(self.below):
            raise OSError(self.code, os.strerror(self.code))
        super().remove(path)


def filled(root: Path, clock: ManualClock) -> tuple[StubbornDisk, MessageStore]:
    """120 messages with keys in one queue; their segments are expired."""
    disk = StubbornDisk(root)
    disk.free, disk.total = 50, 100
    store = open_store(disk, INDEXED, clock)
    for number in range(120):
        store.append(batch_of("T", b"x" * 300, properties={"KEYS": f"k{number}"}), queue_id=0)
        store.confirm(store.appended_end)
    clock.advance_ms(10_000)
    flush(store)
    expire(root, clock)
    return disk, store


def count(root: Path, folder: str) -> int:
    return len([path for path in (root / folder).rglob("*") if path.is_file()])


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.EBUSY, errno.EROFS])
@pytest.mark.parametrize("folder", ["index", "consumequeue"])
def test_a_derived_file_that_must_not_be_removed_stays_and_goes_later(
    tmp_path: Path, folder: str, code: int
) -> None:
    clock = ManualClock()
    disk, store = filled(tmp_path, clock)
    files = count(tmp_path, folder)
    disk.below, disk.code = f"{folder}/", code
    assert len(clean_here(store.retention, request=COMMAND, segments_max=6)) == 6
    troubles = store.retention.take_troubles()
    assert troubles
    assert {trouble.cause for trouble in troubles} == {("removed", code)}
    assert store.retention.take_troubles() == []
    assert os.strerror(code) in str(troubles[0])
    assert folder in str(troubles[0])
    assert count(tmp_path, folder) == files
    assert store.queues.bounds("T", 0).min_offset > 0
    check_agreement(store)
    disk.below = "-"
    assert clean_here(store.retention, request=COMMAND, segments_max=1)
    assert store.retention.take_troubles() == []
    assert count(tmp_path, folder) < files - 1
    check_agreement(store)
    store.close()
    store = open_store(disk, INDEXED, clock)
    check_agreement(store)
    store.close()


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSPC, errno.EDQUOT])
def test_a_segment_that_cannot_be_removed_stays_and_goes_later(tmp_path: Path, code: int) -> None:
    clock = ManualClock()
    disk, store = filled(tmp_path, clock)
    disk.below, disk.code = "commitlog/", code
    assert clean_here(store.retention, request=COMMAND) == []
    assert os.strerror(code) in store.retention.kept_because
    assert [trouble.cause for trouble in store.retention.take_troubles()] == [("removed", code)]
    assert store.min_offset == 0
    disk.below = "-"
    assert clean_here(store.retention, request=COMMAND)
    store.close()


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
def test_a_disk_that_fails_while_files_are_removed_is_no_small_matter(
    tmp_path: Path, folder: str
) -> None:
    clock = ManualClock()
    disk, store = filled(tmp_path, clock)
    disk.below, disk.code = f"{folder}/", errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        clean_here(store.retention, request=COMMAND)


def test_a_queue_that_cannot_be_read_counts_as_unread_and_the_reason_names_its_file(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    disk, store = filled(tmp_path, clock)
    # Read up to after the oldest segments: were the file readable, they could go.
    readers = (QueueReaders("T", 0, {"billing": 60}),)
    disk.read_error = (lambda path: path.startswith("consumequeue/"), broken())
    assert clean_here(store.retention, readers, COMMAND) == []
    reason = store.retention.kept_because
    assert "consumequeue/T/0/" in reason
    assert "cannot be read: Input/output error" in reason
    assert "billing" in reason
    assert [each.cause for each in store.retention.take_troubles()] == [("read", errno.EIO)]
    assert store.state is StoreState.WRITABLE
    disk.read_error = None
    assert clean_here(store.retention, readers, COMMAND)
    store.close()


def test_messages_whose_queue_file_is_gone_count_as_unread(tmp_path: Path) -> None:
    clock = ManualClock()
    _, store = filled(tmp_path, clock)
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    readers = (QueueReaders("T", 0, {"billing": 60}),)
    assert clean_here(store.retention, readers, COMMAND) == []
    assert "group billing has not read topic T" in store.retention.kept_because


def test_a_ceiling_counts_also_where_the_queue_cannot_be_read(tmp_path: Path) -> None:
    clock = ManualClock()
    disk, store = filled(tmp_path, clock)
    disk.read_error = (lambda path: path.startswith("consumequeue/"), broken())
    end = store.appended_end
    held = (QueueReaders("T", 0, {"billing": 0}, keep_bytes_max=end),)
    assert clean_here(store.retention, held, COMMAND) == []
    free = (QueueReaders("T", 0, {"billing": 0}, keep_bytes_max=0),)
    assert clean_here(store.retention, free, COMMAND, segments_max=1)


def test_a_queue_that_cannot_be_read_begins_where_it_did_once_its_messages_were_told_to_go(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    disk, store = filled(tmp_path, clock)
    readers = (QueueReaders("T", 0, {"billing": 0}),)
    disk.read_error = (lambda path: path.startswith("consumequeue/"), broken())
    assert clean_here(store.retention, readers, COMMAND_UNREAD, segments_max=2)
    assert ("read", errno.EIO) in {each.cause for each in store.retention.take_troubles()}
    assert store.queues.bounds("T", 0).min_offset == 0
    disk.read_error = None
    assert clean_here(store.retention, readers, COMMAND_UNREAD, segments_max=1)
    assert store.queues.bounds("T", 0).min_offset > 0
    check_agreement(store)
    store.close()
