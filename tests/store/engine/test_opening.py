"""Opening and closing: the lock, the abort marker, strays, and looking without touching."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee.runtime.errors import InvalidArgument, NotWritable
from aerobee.store.engine.config import StoreConfig, consume_queue_entries
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.errors import StoreLocked, StoreUnusable
from aerobee.store.engine.statistics import StoreState
from tests.support.fault_disk import FaultDisk, no_space
from tests.support.stores import append, check_agreement, flush, open_store, read_queue


def test_a_second_store_over_the_same_folder_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreLocked, match="in use by another process"):
        open_store(tmp_path)
    assert (tmp_path / "lock").read_bytes() == b"lock"
    store.close()
    open_store(tmp_path).close()


def test_another_process_and_a_jvm_see_the_lock(tmp_path: Path) -> None:
    """A JVM locks bytes [0, 1) with a process-wide record lock, which lockf takes too."""
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    store = open_store(tmp_path)
    assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    store.close()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_folder_that_a_jvm_has_locked_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(StoreLocked):
            open_store(tmp_path)
        open_store(tmp_path, read_only=True)


def test_the_abort_marker_names_the_process_and_goes_with_a_clean_stop(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    assert store.recovery.clean
    store.close()
    assert not (tmp_path / "abort").exists()
    (tmp_path / "abort").touch()
    assert not open_store(tmp_path).recovery.clean


def test_a_failed_start_frees_the_lock(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "stray").touch()
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="stray"):
            open_store(tmp_path)
    assert not (tmp_path / "abort").exists()


def test_a_folder_that_cannot_be_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnusable, match="cannot be written"):
        open_store(tmp_path / "file" / "store")


def test_a_disk_full_at_the_start_still_serves_reads(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, "Orders", 0, b"a")
    store.close()
    disk = FaultDisk(tmp_path)
    disk.write_error = (lambda path: "ends" in path, no_space())
    full = open_store(disk)
    assert full.state is StoreState.DISK_FULL
    assert read_queue(full, "Orders", 0) == [b"a"]
    with pytest.raises(NotWritable):
        append(full, "Orders", 0, b"b")
    disk.write_error = None
    full.close()


def test_strays_of_an_earlier_run_are_cleared(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    for name in ("preallocated-1", "preallocated-queue"):
        (tmp_path / name).write_bytes(bytes(4096))
    (tmp_path / "preallocated-folder").mkdir()
    (tmp_path / "other").touch()
    open_store(tmp_path).close()
    left = {path.name for path in tmp_path.iterdir()}
    assert "other" in left
    assert left.isdisjoint({"preallocated-1", "preallocated-queue"})


# ---------------------------------------------------------------------------------- read only


def test_a_read_only_store_writes_nothing_and_needs_no_lock(tmp_path: Path) -> None:
    running = open_store(tmp_path)
    append(running, "Orders", 0, b"a", b"b")
    flush(running)
    append(running, "Orders", 1, b"c")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    seen = open_store(tmp_path, read_only=True)
    check_agreement(seen)
    assert read_queue(seen, "Orders", 0) == [b"a", b"b"]
    assert seen.state is StoreState.READ_ONLY
    with pytest.raises(NotWritable, match="reading only"):
        append(seen, "Orders", 0, b"d")
    assert seen.ledger.take_flush() is None
    assert seen.supply.take_prepare() is None
    assert not seen.ledger.checkpoint_due
    seen.close()
    seen.close()
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    append(running, "Orders", 0, b"d")
    running.close()


def test_a_folder_without_a_store_looks_empty(tmp_path: Path) -> None:
    seen = open_store(tmp_path / "nothing", read_only=True)
    assert (seen.appended_end, seen.queues.names(), seen.log.segments()) == (0, [], [])
    assert not (tmp_path / "nothing").exists()


# ---------------------------------------------------------------------------------- settings


def test_queue_files_hold_whole_entries() -> None:
    assert consume_queue_entries(6_000_000) == 300_000
    assert consume_queue_entries(801) == 41
    assert StoreConfig(consume_queue_entries_per_file=41).consume_queue_file_bytes == 820


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 100},
        {"consume_queue_entries_per_file": 0},
        {"flush_interval_ms": 0},
        {"unflushed_bytes_max": -1},
        {"disk_free_bytes_min": -1},
    ],
)
def test_settings_that_cannot_work_are_refused_at_birth(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        StoreConfig(**wrong)  # type: ignore[arg-type]


def test_the_open_file_description_lock_is_what_the_platform_has() -> None:
    assert hasattr(fcntl, "F_OFD_SETLK")
    assert str(RealDisk("/somewhere")) == "/somewhere"
