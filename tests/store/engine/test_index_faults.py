"""A start goes on whatever the index files are like: with a disk that cannot read, or is full."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import NotWritable
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import StoreState
from tests.support.fault_disk import FaultDisk, broken, no_space
from tests.support.indexes import (
    INDEXED,
    append_keys,
    check_answers,
    check_files,
    index_folder,
)
from tests.support.stores import crashed_copy, find_by_key, flush, open_store

ROOMY = replace(INDEXED, segment_bytes=1 << 20)


def filled(root: Path, clock: ManualClock, *, clean: bool) -> Path:
    """A folder with 40 keys in several index files, closed or left by a crash."""
    store = open_store(root / "a", ROOMY, clock)
    for number in range(40):
        clock.advance_ms(300)
        append_keys(store, "A", f"u{number} k{number % 5}")
    clock.advance_ms(10_000)
    flush(store)
    if not clean:
        return crashed_copy(root / "a", root / "b")
    store.close()
    return root / "a"


def unreadable(disk: FaultDisk, is_meant: Callable[[str], bool]) -> None:
    disk.read_error = (is_meant, broken())


def check_whole(store: MessageStore, root: Path) -> None:
    check_answers(store)
    check_files(store, RealDisk(root), ROOMY)


@pytest.mark.parametrize("clean", [True, False])
def test_index_files_that_cannot_be_read_are_built_again(tmp_path: Path, clean: bool) -> None:
    clock = ManualClock()
    root = filled(tmp_path, clock, clean=clean)
    names = [path.name for path in index_folder(root)]
    assert len(names) > 2
    disk = FaultDisk(root)
    unreadable(disk, lambda path: path.removeprefix("index/") in names)
    clock.advance_ms(10_000)
    store = open_store(disk, ROOMY, clock)
    assert store.state is StoreState.WRITABLE
    assert any("Input/output error" in warning for warning in store.recovery.warnings)
    check_whole(store, root)
    store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_of_a_newest_file_that_cannot_be_read_only_its_own_keys_are_gathered_again(
    tmp_path: Path, clean: bool
) -> None:
    clock = ManualClock()
    root = filled(tmp_path, clock, clean=clean)
    *kept, newest = [path.name for path in index_folder(root)]
    disk = FaultDisk(root)
    unreadable(disk, lambda path: path == f"index/{newest}")
    clock.advance_ms(10_000)
    store = open_store(disk, ROOMY, clock)
    now = [path.name for path in index_folder(root)]
    assert set(kept) <= set(now)
    assert newest not in now
    check_whole(store, root)
    append_keys(store, "A", "later")
    check_answers(store)
    store.close()


class TornDisk(FaultDisk):
    """Of one index file nothing after the header can be read."""

    torn = ""

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False):  # type: ignore[no-untyped-def]
        file = super().open_file(path, create=create, read_only=read_only)
        if path == self.torn:
            read_at = file.read_at

            def read(offset: int, size: int) -> bytes:
                if offset:
                    raise broken()
                return read_at(offset, size)

            file.read_at = read  # type: ignore[method-assign]
        return file


def test_after_a_crash_a_file_of_which_only_the_header_can_be_read_is_built_again(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    root = filled(tmp_path, clock, clean=False)
    newest = index_folder(root)[-1].name
    disk = TornDisk(root)
    disk.torn = f"index/{newest}"
    clock.advance_ms(10_000)
    store = open_store(disk, ROOMY, clock)
    assert store.state is StoreState.WRITABLE
    assert newest not in [path.name for path in index_folder(root)]
    check_whole(store, root)
    store.close()


def test_an_older_file_that_cannot_be_read_is_left_and_told(tmp_path: Path) -> None:
    clock = ManualClock()
    root = filled(tmp_path, clock, clean=True)
    oldest = index_folder(root)[0].name
    disk = FaultDisk(root)
    unreadable(disk, lambda path: path == f"index/{oldest}")
    store = open_store(disk, ROOMY, clock)
    assert any(oldest in warning for warning in store.recovery.warnings)
    assert find_by_key(store, "A", "u39")
    assert not find_by_key(store, "A", "u0")
    store.close()
    disk.read_error = None
    store = open_store(disk, ROOMY, clock)
    check_answers(store)
    store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_rebuild_on_a_full_disk_starts_and_takes_messages_once_there_is_room(
    tmp_path: Path, clean: bool
) -> None:
    clock = ManualClock()
    root = filled(tmp_path, clock, clean=clean)
    shutil.rmtree(root / "index")
    small = replace(
        ROOMY,
        index_pending_bytes_max=400,
        recovery_tail_bytes_max=100,
        recovery_chunk_bytes=2048,
    )
    disk = FaultDisk(root)
    disk.write_error = (lambda path: path.startswith("index"), no_space())
    store = open_store(disk, small, clock)
    assert store.state is StoreState.DISK_FULL
    assert any("too full to build the key index" in each for each in store.recovery.warnings)
    check_answers(store)
    with pytest.raises(NotWritable, match="the index: free space"):
        append_keys(store, "A", "refused")
    disk.write_error = None
    clock.advance_ms(10_000)
    flush(store)
    append_keys(store, "A", "taken")
    check_answers(store)
    store.close()


def test_an_index_file_that_must_not_be_removed_stops_no_start(tmp_path: Path) -> None:
    clock = ManualClock()
    root = filled(tmp_path, clock, clean=True)
    newest = index_folder(root)[-1].name

    class Protected(FaultDisk):
        def remove(self, path: str) -> None:
            if path.startswith("index/"):
                raise PermissionError(1, "Operation not permitted")
            super().remove(path)

    disk = Protected(root)
    unreadable(disk, lambda path: path == f"index/{newest}")
    clock.advance_ms(10_000)
    store = open_store(disk, ROOMY, clock)
    assert any("cannot be removed" in warning for warning in store.recovery.warnings)
    check_answers(store)
    store.close()
