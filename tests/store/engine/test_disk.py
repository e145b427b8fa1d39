"""What every disk promises: the real one, and the one that fails in tests."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aerobee.store.engine.disk import DirectoryEntry, Disk, RealDisk, total_bytes
from tests.support.fault_disk import FaultDisk


@pytest.fixture(params=[RealDisk, FaultDisk])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    make: Callable[[Path], Disk] = request.param
    return make(tmp_path)


def test_buffers_are_written_one_after_the_other(disk: Disk) -> None:
    file = disk.open_file("f", create=True)
    file.write_at(3, (b"ab", bytearray(b"cd"), memoryview(b"xef")[1:]))
    assert file.read_at(0, 100) == b"\0\0\0abcdef"
    assert file.read_at(5, 2) == b"cd"
    assert file.read_at(50, 2) == b""
    assert file.size() == 9


def test_more_buffers_than_one_call_takes(disk: Disk) -> None:
    parts = [b"%04d" % number for number in range(2_000)]
    file = disk.open_file("f", create=True)
    file.write_at(0, parts)
    assert file.read_at(0, 10_000) == b"".join(parts)


def test_a_read_without_waiting_fills_the_target_or_says_no(disk: Disk) -> None:
    file = disk.open_file("f", create=True)
    file.write_at(0, (b"0123456789",))
    target = bytearray(4)
    if file.read_into_nowait(3, memoryview(target)):
        assert target == b"3456"
    assert not file.read_into_nowait(8, memoryview(bytearray(4)))  # the file ends before


def test_allocated_space_is_zero_and_has_its_length(disk: Disk) -> None:
    file = disk.open_file("f", create=True)
    file.allocate(10_000)
    assert file.size() == 10_000
    assert file.read_at(9_000, 5_000) == bytes(1_000)
    assert file.next_data(10_000) is None
    file.write_at(5_000, (b"x",))
    data_at = file.next_data(0)
    assert data_at is not None
    assert data_at <= 5_000
    file.truncate(20)
    assert file.size() == 20
    file.datasync()


def test_names_come_sorted_with_their_sizes(disk: Disk) -> None:
    disk.make_directory("a/b")
    disk.make_directory("a/b")
    disk.open_file("a/z", create=True).write_at(0, (b"123",))
    disk.open_file("a/c", create=True)
    assert disk.list("a") == [
        DirectoryEntry("b", 0, True),
        DirectoryEntry("c", 0, False),
        DirectoryEntry("z", 3, False),
    ]
    assert disk.list("missing") == []
    disk.rename("a/z", "a/c")
    assert disk.read_file("a/c") == b"123"
    disk.remove("a/c")
    disk.remove_directory("a/b")
    disk.fsync_directory("a")
    assert disk.list("a") == []
    assert disk.exists("a")
    assert not disk.exists("a/c")


def test_a_missing_file_is_not_made_by_reading_it(disk: Disk) -> None:
    for read_only in (False, True):
        with pytest.raises(FileNotFoundError):
            disk.open_file("missing", read_only=read_only)
    with pytest.raises(FileNotFoundError):
        disk.read_file("missing")
    assert not disk.exists("missing")


def test_a_lock_is_exclusive_also_within_a_process(disk: Disk) -> None:
    lock = disk.lock_file("lock", b"lock")
    with pytest.raises(BlockingIOError):
        disk.lock_file("lock", b"lock")
    assert disk.read_file("lock") == b"lock"
    lock.release()
    lock.release()
    disk.lock_file("lock", b"lock").release()


def test_space_is_known(disk: Disk) -> None:
    assert 0 < disk.free_bytes() <= disk.total_bytes()


def test_space_that_is_kept_for_the_superuser_is_neither_used_nor_free() -> None:
    """Block size, fragment size, blocks, free blocks, those free for this user, six others."""
    status = os.statvfs_result((4096, 4096, 1_000, 600, 400, 0, 0, 0, 0, 255))
    assert total_bytes(status) == 800 * 4096  # 400 used and 400 to be had: half full, as `df` says


def test_the_real_disks_figures_are_those_of_df(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    free, total = disk.free_bytes(), disk.total_bytes()
    shown = subprocess.run(
        ["df", "--output=pcent", str(tmp_path)], capture_output=True, text=True, check=True
    )
    percent = int(shown.stdout.split()[-1].rstrip("%"))
    assert abs(100 * (total - free) / total - percent) <= 1.5


def test_a_handle_lives_as_long_as_somebody_holds_it(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    held = disk.open_file("f", create=True)
    held.write_at(0, (b"x",))
    also_held = held
    del held
    assert also_held.read_at(0, 1) == b"x"
    also_held.close()
    also_held.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        also_held.read_at(0, 1)


# ---------------------------------------------------------------------------------- the model


def test_a_power_failure_keeps_what_was_synced(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path / "disk")
    disk.make_directory("")
    file = disk.open_file("kept", create=True)
    file.write_at(0, (b"synced",))
    file.datasync()
    disk.fsync_directory("")
    disk.open_file("nameless", create=True).write_at(0, (b"x",))
    file.write_at(0, (b"SYNCED",))
    outcomes = set()
    for seed in range(60):
        target = tmp_path / f"after-{seed}"
        disk.cut_power(target, random.Random(seed))
        outcomes.add((target / "kept").read_bytes())
        outcomes.add(b"name kept" if (target / "nameless").exists() else b"name lost")
    assert outcomes == {b"synced", b"SYNCED", b"name kept", b"name lost"}


def test_files_come_with_the_time_of_their_last_write(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.open_file("a", create=True).close()
    os.utime(tmp_path / "a", (1_700_000_000.25, 1_700_000_000.25))
    (entry,) = disk.list("")
    assert entry.modified_ms == 1_700_000_000_250


def test_a_folder_on_a_file_system_of_its_own_is_known(disk: Disk, tmp_path: Path) -> None:
    disk.make_directory("here")
    assert not disk.is_apart("here")
    assert not disk.is_apart("missing")
    away = Path("/dev/shm")
    if isinstance(disk, RealDisk) and away.is_dir():
        (tmp_path / "away").symlink_to(away)
        if away.stat().st_dev != tmp_path.stat().st_dev:
            assert disk.is_apart("away")
            assert not disk.sync_all()
