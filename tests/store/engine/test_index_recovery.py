"""The key index after a crash: complete, exact, and nothing in it that leads past the log."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.message_store import MessageStore
from tests.support.fault_disk import FaultDisk, broken, no_space
from tests.support.indexes import (
    INDEXED,
    append_keys,
    check_answers,
    check_files,
    index_folder,
)
from tests.support.property_runs import examples
from tests.support.stores import crashed_copy, flush, log_records, open_store

pytestmark = pytest.mark.many_files
ROOMY = replace(INDEXED, segment_bytes=1 << 20)


def filled(root: Path, clock: ManualClock, config: StoreConfig = ROOMY) -> MessageStore:
    """40 keys in four files, then 3 keys that are in memory only."""
    store = open_store(root, config, clock)
    for index in range(40):
        clock.advance_ms(300)
        append_keys(store, "A", f"u{index} k{index % 5}")
    clock.advance_ms(10_000)
    flush(store)
    append_keys(store, "B", "last k1", "more k2")
    return store


def check_all(root: Path, config: StoreConfig, clock: ManualClock) -> MessageStore:
    """Also read-only, before anything is repaired."""
    reader = open_store(root, config, clock, read_only=True)
    check_answers(reader)
    reader.close()
    store = open_store(root, config, clock)
    check_answers(store)
    check_files(store, RealDisk(root), config)
    return store


def test_after_a_kill_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path / "a", clock)
    crashed = crashed_copy(tmp_path / "a", tmp_path / "b")
    check_all(crashed, ROOMY, clock).close()
    check_all(crashed, ROOMY, clock).close()
    store.close()


@pytest.mark.parametrize("stage", ["entries", "header", "mark"])
def test_a_kill_in_the_middle_of_a_write_is_repaired_in_place(tmp_path: Path, stage: str) -> None:
    """Slots lead after the header's last entry, or the header is ahead of the mark."""
    clock = ManualClock()
    store = filled(tmp_path / "a", clock)
    names = [path.name for path in index_folder(tmp_path / "a")]
    headers = {path: path.read_bytes()[:40] for path in index_folder(tmp_path / "a")}
    checkpoint = (tmp_path / "a" / "checkpoint").read_bytes()
    mark = (tmp_path / "a" / "index.end").read_bytes()
    clock.advance_ms(10_000)
    flush(store)
    crashed = crashed_copy(tmp_path / "a", tmp_path / "b")
    (crashed / "checkpoint").write_bytes(checkpoint)
    if stage != "mark":
        (crashed / "index.end").write_bytes(mark)
    if stage == "entries":
        for path, header in headers.items():
            copy = crashed / "index" / path.name
            copy.write_bytes(header + copy.read_bytes()[40:])
    repaired = check_all(crashed, ROOMY, clock)
    assert [path.name for path in index_folder(crashed)][: len(names) - 1] == names[:-1]
    repaired.close()
    store.close()


def test_slots_that_lead_to_entries_which_never_reached_the_disk_are_repaired(
    tmp_path: Path,
) -> None:
    """Of one write the slots were kept by a power failure, the entries were not."""
    clock = ManualClock()
    store = filled(tmp_path / "a", clock)
    before = {path.name: path.read_bytes() for path in index_folder(tmp_path / "a")}
    crashed = crashed_copy(tmp_path / "a", tmp_path / "b")
    clock.advance_ms(10_000)
    flush(store)
    store.close()
    after = (tmp_path / "a" / "index" / max(before)).read_bytes()
    slots = slice(40, 40 + 4 * 7)
    old = before[max(before)]
    assert old[slots] != after[slots]
    (crashed / "index" / max(before)).write_bytes(old[:40] + after[slots] + old[slots.stop :])
    check_all(crashed, ROOMY, clock).close()


@pytest.mark.parametrize("lost", ["index.end", "index", "newest", "oldest mark", "all marks"])
def test_what_is_lost_of_the_index_comes_back_from_the_log(tmp_path: Path, lost: str) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    old_mark = (tmp_path / "index.end").read_bytes()
    store.close()
    if lost == "index.end":
        (tmp_path / "index.end").unlink()
    elif lost == "index":
        shutil.rmtree(tmp_path / "index")
    elif lost == "newest":
        index_folder(tmp_path)[-1].unlink()
    elif lost == "all marks":
        shutil.rmtree(tmp_path / "index")
        (tmp_path / "index.end").unlink()
    else:
        (tmp_path / "index.end").write_bytes(old_mark)
    for crashed in (True, False):
        root = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-{crashed}")
        if crashed:
            (root / "abort").touch()
        check_all(root, ROOMY, clock).close()


def test_files_that_were_made_with_other_options_stop_the_start_and_stay(tmp_path: Path) -> None:
    clock = ManualClock()
    filled(tmp_path, clock).close()
    before = {path: path.read_bytes() for path in index_folder(tmp_path)}
    assert len(before) > 1
    other = replace(ROOMY, index_entries_max=20)
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="index_entries_max 20 ask for 468: set them to"):
            open_store(tmp_path, other, clock)
    assert {path: path.read_bytes() for path in index_folder(tmp_path)} == before
    check_all(tmp_path, ROOMY, clock).close()
    shutil.rmtree(tmp_path / "index")
    store = open_store(tmp_path, other, clock)
    check_answers_by_keys(store)
    assert all(path.stat().st_size == 40 + 7 * 4 + 20 * 20 for path in index_folder(tmp_path))
    store.close()


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("odd", [0, 2, -1])
@pytest.mark.parametrize("length", [0, 100])
def test_a_file_of_an_odd_length_goes_alone_with_newer_ones(
    tmp_path: Path, odd: int, length: int, crashed: bool
) -> None:
    clock = ManualClock()
    filled(tmp_path, clock).close()
    files = index_folder(tmp_path)
    assert len(files) > 3
    os.truncate(files[odd], length)
    if crashed:
        (tmp_path / "abort").touch()
    kept = files[: files.index(files[odd])]
    before = [path.stat().st_ino for path in kept]
    store = check_all(tmp_path, ROOMY, clock)
    assert any("read from the log again" in line for line in store.recovery.warnings)
    assert [path.stat().st_ino for path in kept] == before
    store.close()


def check_answers_by_keys(store: MessageStore) -> None:
    records = log_records(store)
    for record in records:
        assert record.unique_key is not None
        found = store.index.plan_search(record.topic, record.unique_key).run()
        assert record.physical_offset in found


def test_a_stray_file_is_left_alone_with_a_warning(tmp_path: Path) -> None:
    clock = ManualClock()
    filled(tmp_path, clock).close()
    (tmp_path / "index" / "notes.txt").write_text("mine")
    store = open_store(tmp_path, ROOMY, clock)
    assert store.recovery.warnings == ("index/notes.txt is not an index file: left as it is",)
    check_answers(store)
    store.close()
    assert (tmp_path / "index" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("first_lost", [17, -1], ids=["many", "the last one"])
def test_entries_that_lead_behind_a_cut_log_do_not_survive(tmp_path: Path, first_lost: int) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    records = log_records(store)
    store.close()
    cut = records[first_lost].physical_offset
    segment = tmp_path / "commitlog" / ("0" * 20)
    content = segment.read_bytes()
    segment.write_bytes(content[: cut + 40] + bytes(len(content) - cut - 40))
    for crashed in (False, True):
        root = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-{crashed}")
        if crashed:
            (root / "abort").touch()
        store = check_all(root, replace(ROOMY, cut_damaged=True), clock)
        assert store.appended_end == cut
        # Their places are taken by others, which the old keys must not find.
        append_keys(store, "A", *(f"new{index}" for index in range(30)))
        check_answers(store)
        store.close()


def test_a_log_cut_to_nothing_leaves_no_index(tmp_path: Path) -> None:
    clock = ManualClock()
    filled(tmp_path, clock).close()
    shutil.rmtree(tmp_path / "commitlog")
    store = open_store(tmp_path, replace(ROOMY, cut_damaged=True), clock)
    assert store.index.files() == []
    assert index_folder(tmp_path) == []
    append_keys(store, "A", "u1")
    check_answers(store)
    store.close()


def test_a_rebuild_is_written_out_as_it_goes(tmp_path: Path) -> None:
    clock = ManualClock()
    filled(tmp_path, clock).close()
    shutil.rmtree(tmp_path / "index")
    small = replace(
        ROOMY,
        index_pending_bytes_max=600,
        recovery_tail_bytes_max=600,
        recovery_chunk_bytes=2048,
    )
    check_all(tmp_path, small, clock).close()


def test_a_full_disk_keeps_keys_in_memory_and_refuses_appends(tmp_path: Path) -> None:
    from aerobee.runtime.errors import NotWritable

    clock = ManualClock()
    disk = FaultDisk(tmp_path / "a")
    store = open_store(disk, ROOMY, clock)
    append_keys(store, "A", *(f"u{index} k" for index in range(30)))
    clock.advance_ms(10_000)
    disk.write_error = (lambda path: path.startswith("index"), no_space())
    flush(store)
    assert store.index.pending_keys > 0
    check_answers(store)
    with pytest.raises(NotWritable):
        append_keys(store, "A", "refused")
    disk.write_error = None
    clock.advance_ms(10_000)
    flush(store)
    assert store.index.pending_keys == 0
    append_keys(store, "A", "taken")
    check_answers(store)
    store.close()
    check_all(tmp_path / "a", ROOMY, clock).close()


def test_keys_that_a_close_could_not_write_are_found_after_the_next_start(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FaultDisk(tmp_path / "a")
    store = open_store(disk, ROOMY, clock)
    append_keys(store, "A", *(f"u{index} k" for index in range(30)))
    clock.advance_ms(10_000)
    disk.write_error = (failing_from(7), no_space())
    flush(store)
    store.close()
    assert (tmp_path / "a" / "abort").exists()
    check_all(tmp_path / "a", ROOMY, clock).close()


@pytest.mark.parametrize("fails_at", range(14))
def test_a_write_that_fails_anywhere_is_done_by_the_next_one(tmp_path: Path, fails_at: int) -> None:
    clock = ManualClock()
    disk = FaultDisk(tmp_path / "a")
    store = open_store(disk, ROOMY, clock)
    append_keys(store, "A", *(f"u{index} k" for index in range(12)))
    clock.advance_ms(10_000)
    flush(store)
    append_keys(store, "A", *(f"v{index} k" for index in range(12)))
    clock.advance_ms(10_000)
    disk.write_error = (failing_from(fails_at), no_space())
    flush(store)
    check_answers(store)
    disk.write_error = None
    append_some = store.state.value == "writable"
    if append_some:
        append_keys(store, "A", "w")
    clock.advance_ms(10_000)
    flush(store)
    check_answers(store)
    check_files(store, disk)
    store.close()


def failing_from(count: int) -> Callable[[str], bool]:
    """Whether a write is to fail: all that follow `count` others to the index."""
    seen = 0

    def fails(path: str) -> bool:
        nonlocal seen
        if "index" not in path:
            return False
        seen += 1
        return seen > count

    return fails


@pytest.mark.thorough
@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=examples(20), deadline=None)
def test_after_a_power_failure_the_index_is_that_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("cut")
    clock = ManualClock()
    disk = FaultDisk(folder / "0")
    store = open_store(disk, ROOMY, clock)
    for turn in range(2):
        for _ in range(chance.randint(1, 6)):
            clock.advance_ms(chance.choice([0, 300, 2_000]))
            count = chance.choice([1, 1, 2, 3, 25])
            keys = [f"u{chance.randint(0, 20)} k{number % 3}" for number in range(count)]
            append_keys(store, chance.choice("AB"), *keys)
            if chance.random() < 0.3:
                clock.advance_ms(10_000)
                flush(store)
        acknowledged = store.flushed_end
        clock.advance_ms(10_000)
        work = store.ledger.take_flush()
        if work is not None and work.checkpoint is not None and chance.random() < 0.8:
            work.run()
            store.ledger.finish_flush(work)
            # The power fails in the middle of the write: no later one takes place.
            disk.write_error = failing_from(chance.randint(0, 9)), broken()
            with contextlib.suppress(OSError):
                work.checkpoint.run()
            disk.write_error = None
        disk.cut_power(folder / str(turn + 1), chance)
        store.fail(broken())
        store.close()
        disk = FaultDisk(folder / str(turn + 1))
        reader = open_store(disk, ROOMY, clock, read_only=True)
        check_answers(reader)
        reader.close()
        store = open_store(disk, ROOMY, clock)
        assert store.appended_end >= acknowledged
        check_answers(store)
        check_files(store, disk)
    store.close()
