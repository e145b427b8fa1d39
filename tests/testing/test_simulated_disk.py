"""The simulated disk keeps what was synced, may lose the rest, and otherwise acts like a real
one."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.engine.disk import Disk, RealDisk
from aerobee.testing.power_failure import (
    KEEP_ALL,
    KEEP_BYTES,
    KEEP_LENGTHS,
    KEEP_NAMES,
    LOSE_ALL,
    draw_fate,
)
from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.simulated_power import PowerCut
from tests.support.property_runs import examples

SECTOR = 512


def _write(disk: Disk, path: str, data: bytes, offset: int = 0) -> None:
    file = disk.open_file(path, create=True)
    file.write_at(offset, (data,))
    file.close()


def _sync(disk: Disk, path: str) -> None:
    file = disk.open_file(path)
    file.datasync()
    file.close()


def _settled(data: bytes = b"old") -> SimulatedDisk:
    """A disk with the durable file `folder/file`."""
    disk = SimulatedDisk()
    disk.make_directory("folder")
    _write(disk, "folder/file", data)
    _sync(disk, "folder/file")
    disk.fsync_directory("folder")
    disk.fsync_directory("")
    return disk


def test_synced_bytes_under_a_synced_name_survive() -> None:
    left = _settled(b"promised").after_power_failure(LOSE_ALL)
    assert left.read_file("folder/file") == b"promised"


def test_unsynced_bytes_may_be_lost_or_kept() -> None:
    for fate, found in ((LOSE_ALL, b"old"), (KEEP_ALL, b"new")):
        disk = _settled()
        _write(disk, "folder/file", b"new")
        assert disk.after_power_failure(fate).read_file("folder/file") == found


def test_a_synced_file_vanishes_if_its_folder_was_not_synced() -> None:
    disk = _settled()
    _write(disk, "folder/other", b"bytes")
    _sync(disk, "folder/other")
    assert not disk.after_power_failure(LOSE_ALL).exists("folder/other")


def test_a_folder_vanishes_with_its_files_if_its_own_name_was_not_synced() -> None:
    disk = _settled()
    disk.make_directory("other")
    _write(disk, "other/file", b"bytes")
    _sync(disk, "other/file")
    disk.fsync_directory("other")
    assert not disk.after_power_failure(LOSE_ALL).exists("other")


def test_an_unsynced_file_may_be_empty_or_a_hole_under_its_name() -> None:
    for fate, found in ((KEEP_NAMES, b""), (KEEP_LENGTHS, bytes(5))):
        disk = _settled()
        _write(disk, "folder/other", b"bytes")
        assert disk.after_power_failure(fate).read_file("folder/other") == found


def test_a_rename_of_unsynced_bytes_may_leave_an_empty_file() -> None:
    disk = _settled()
    _write(disk, "folder/file.tmp", b"new")
    disk.rename("folder/file.tmp", "folder/file")
    left = disk.after_power_failure(KEEP_NAMES)
    assert left.read_file("folder/file") == b""
    assert not left.exists("folder/file.tmp")


def test_a_rename_is_whole_within_a_folder_and_in_two_halves_between_folders() -> None:
    for seed in range(200):
        disk = _settled()
        disk.make_directory("target")
        disk.fsync_directory("")
        disk.rename("folder/file", "folder/moved")
        disk.rename("folder/moved", "target/moved")
        promised, end = disk.sequence_range
        fate = draw_fate(random.Random(seed), promised=promised, end=end, has_journal=False)
        left = disk.after_power_failure(fate)
        names = {
            name for name in ("folder/file", "folder/moved", "target/moved") if left.exists(name)
        }
        assert names != {"folder/file", "folder/moved"}


def test_with_a_journal_name_changes_reach_the_disk_in_their_order() -> None:
    seen = set()
    for seed in range(200):
        disk = _settled()
        for name in "abcd":
            _write(disk, f"folder/{name}", b"")
        promised, end = disk.sequence_range
        fate = draw_fate(random.Random(seed), promised=promised, end=end, has_journal=True)
        left = disk.after_power_failure(fate)
        seen.add("".join(name for name in "abcd" if left.exists(f"folder/{name}")))
    assert seen == {"", "a", "ab", "abc", "abcd"}


def test_a_torn_write_is_whole_sectors_of_the_old_and_the_new() -> None:
    seen = set()
    for seed in range(300):
        disk = _settled(b"o" * 2_000)
        _write(disk, "folder/file", b"n" * 1_500, offset=100)
        promised, end = disk.sequence_range
        fate = draw_fate(random.Random(seed), promised=promised, end=end, has_journal=True)
        data = disk.after_power_failure(fate).read_file("folder/file")
        assert len(data) == 2_000
        whole = b"o" * 100 + b"n" * 1_500 + b"o" * 400
        sectors = [data[at : at + SECTOR] for at in range(0, 2_000, SECTOR)]
        for at, sector in zip(range(0, 2_000, SECTOR), sectors, strict=True):
            assert sector in {whole[at : at + SECTOR], b"o" * len(sector)}
        seen.add(tuple(b"n" in sector for sector in sectors))
    assert len(seen) > 8


def test_a_failed_sync_leaves_pages_that_a_later_one_does_not_write() -> None:
    disk = _settled()
    _write(disk, "folder/file", b"new")
    disk.fault = lambda operation, path: OSError(errno.EIO, "broken")
    with pytest.raises(OSError, match="broken"):
        _sync(disk, "folder/file")
    disk.fault = None
    _sync(disk, "folder/file")
    assert disk.read_file("folder/file") == b"new"
    assert disk.after_power_failure(LOSE_ALL).read_file("folder/file") == b"old"


def test_sync_all_promises_bytes_lengths_and_names() -> None:
    disk = _settled()
    _write(disk, "folder/other", b"bytes")
    assert disk.sync_all()
    assert disk.after_power_failure(LOSE_ALL).read_file("folder/other") == b"bytes"


def test_after_its_last_step_a_disk_does_nothing_more() -> None:
    disk = _settled()
    disk.power_ends_at = disk.steps + 1
    _write(disk, "folder/file", b"one")
    for _ in range(2):
        with pytest.raises(PowerCut):
            _write(disk, "folder/file", b"two")
    with pytest.raises(PowerCut):
        disk.read_file("folder/file")
    assert disk.after_power_failure(KEEP_BYTES).read_file("folder/file") == b"one"


def test_a_lock_ends_with_its_process() -> None:
    disk = SimulatedDisk()
    disk.lock_file("lock", b"lock")
    with pytest.raises(BlockingIOError):
        disk.lock_file("lock", b"lock")
    disk.end_power()
    disk.revive()
    disk.lock_file("lock", b"lock")


def test_a_large_file_costs_what_was_written_into_it() -> None:
    disk = SimulatedDisk()
    file = disk.open_file("large", create=True)
    file.allocate(1 << 40)
    file.write_at(1 << 39, (b"far out",))
    assert file.next_data(0) == 1 << 39
    assert file.read_at(1 << 39, 7) == b"far out"
    assert file.read_at((1 << 40) - 4, 100) == bytes(4)


_NAMES = ("a", "b", "folder/a", "folder/b")
_OPERATIONS = st.one_of(
    st.tuples(
        st.just("write"), st.sampled_from(_NAMES), st.integers(0, 9_000), st.integers(1, 9_000)
    ),
    st.tuples(st.just("truncate"), st.sampled_from(_NAMES), st.integers(0, 20_000), st.just(0)),
    st.tuples(st.just("allocate"), st.sampled_from(_NAMES), st.integers(1, 20_000), st.just(0)),
    st.tuples(st.just("rename"), st.sampled_from(_NAMES), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("remove"), st.sampled_from(_NAMES), st.just(0), st.just(0)),
    st.tuples(st.just("sync"), st.sampled_from(_NAMES), st.just(0), st.just(0)),
)


def _apply(disk: Disk, operation: str, name: str, first: int, second: int) -> str:
    """Its result, as far as a program can see."""
    try:
        if operation == "rename":
            disk.rename(name, _NAMES[first])
        elif operation == "remove":
            disk.remove(name)
        else:
            file = disk.open_file(name, create=operation == "write")
            if operation == "write":
                file.write_at(first, (bytes([first % 251 + 1]) * second,))
            elif operation == "truncate":
                file.truncate(first)
            elif operation == "allocate":
                file.allocate(first)
            else:
                file.datasync()
            file.close()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


@given(st.lists(_OPERATIONS, max_size=30))
@settings(max_examples=examples(60))
def test_it_acts_like_a_real_disk_while_it_has_power(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, str, int, int]]
) -> None:
    root: Path = tmp_path_factory.mktemp("real")
    disks: tuple[Disk, Disk] = (SimulatedDisk(), RealDisk(root))
    for disk in disks:
        disk.make_directory("folder")
    for operation in operations:
        assert _apply(disks[0], *operation) == _apply(disks[1], *operation)
    seen = []
    for disk in disks:
        files = [name for name in _NAMES if disk.exists(name)]
        listed = [(entry.name, entry.size_bytes) for entry in disk.list("folder")]
        seen.append((listed, [(name, disk.read_file(name)) for name in files]))
    assert seen[0] == seen[1]
