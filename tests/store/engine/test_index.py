"""The key index of a running store: what is filed is found, wherever its keys are at the moment."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.index.index_files import (
    is_index_name,
    next_index_name,
    remove_index_files,
)
from aerobee.store.engine.index.key_index import KeyIndex
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.java_hash import index_key_hash
from tests.support.indexes import (
    INDEXED,
    append_keys,
    check_answers,
    check_files,
    index_folder,
)
from tests.support.plain_index import PlainIndex
from tests.support.property_runs import examples
from tests.support.stores import find_by_key, flush, log_records, open_store

KEYS = st.sampled_from(["a", "b", "c", "u1", "u2", "u3", "k k", " x", "d a b", "订单", "e  f"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["A", "B"]), st.lists(KEYS, min_size=1, max_size=5)),
        st.tuples(st.just("A"), st.lists(KEYS, min_size=24, max_size=30)),
        st.sampled_from(["flush", "pause", "rollback", "prepared"]),
    ),
    max_size=14,
)


@pytest.mark.thorough
@given(STEPS)
@settings(max_examples=examples(30), deadline=None)
def test_files_and_answers_are_those_of_one_key_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | tuple[str, list[str]]]
) -> None:
    """However keys are divided into batches and writes, over rolls, pauses and transactions."""
    root = tmp_path_factory.mktemp("store") / "s"
    clock = ManualClock()
    config = replace(INDEXED, segment_bytes=64 * 1024)
    store = open_store(root, config, clock)
    for step in steps:
        if isinstance(step, tuple):
            append_keys(store, step[0], *step[1])
        elif step == "flush":
            clock.advance_ms(10_000)
            flush(store)
            assert store.index.pending_keys == 0
            check_files(store, RealDisk(root))
        elif step == "pause":
            clock.advance_ms(700)
        elif step == "rollback":
            append_keys(store, "A", "a", sys_flag=0xC)
        else:
            append_keys(store, "A", "a", sys_flag=0x4)
    check_answers(store)
    store.close()
    reopened = open_store(root, config, clock)
    check_files(reopened, RealDisk(root))
    check_answers(reopened)
    reopened.close()


def test_keys_are_found_before_during_and_after_their_write(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, INDEXED, clock)
    append_keys(store, "A", "u1 k", "u2 k")
    check_answers(store)
    clock.advance_ms(10_000)
    work = store.ledger.take_flush()
    assert work is not None
    work.run()
    store.ledger.finish_flush(work)
    append_keys(store, "A", "u3 k")
    before = store.index.plan_search("A", "k")
    check_answers(store)
    assert work.checkpoint is not None
    work.checkpoint.run()
    # Planned before the write, run when the file has more than the plan knows.
    offsets = [record.physical_offset for record in log_records(store)]
    assert before.run() == offsets[::-1]
    check_answers(store)
    store.ledger.finish_checkpoint(work.checkpoint)
    assert before.run() == offsets[::-1]
    check_answers(store)
    assert store.index.pending_keys == 2
    store.close()


def test_a_search_sees_one_moment_while_the_index_goes_on(tmp_path: Path) -> None:
    clock = ManualClock()
    config = replace(INDEXED, segment_bytes=1 << 20, index_entries_max=400)
    store = open_store(tmp_path, config, clock)
    wrong: list[str] = []
    stop = threading.Event()
    plans = [(store.index.plan_search("A", "hot", max_results=10_000), [0] * 0)]

    def search() -> None:
        while not stop.is_set():
            plan, expected = plans[-1]
            if plan.run() != expected:
                wrong.append(f"{plan.run()} is not {expected}")
                return

    thread = threading.Thread(target=search)
    thread.start()
    expected: list[int] = []
    for turn in range(60):
        appended = append_keys(store, "A", *(f"u{turn}-{index} hot" for index in range(3)))
        start = appended.base_physical_offset
        size = (appended.end - start) // 3
        expected = [start + 2 * size, start + size, start, *expected]
        plans.append((store.index.plan_search("A", "hot", max_results=10_000), expected))
        if turn % 4 == 0:
            clock.advance_ms(10_000)
            flush(store)
    stop.set()
    thread.join()
    assert not wrong
    store.close()


@given(
    st.integers(1, 5), st.integers(0, 4), st.integers(0, 5_000), st.integers(0, 5_000), st.data()
)
@settings(max_examples=examples(30), deadline=None)
def test_a_long_chain_is_entered_where_the_time_wanted_lies(
    tmp_path_factory: pytest.TempPathFactory,
    slots: int,
    hot_share: int,
    begin_s: int,
    length_s: int,
    data: st.DataObject,
) -> None:
    """With the same answer as when every entry is looked at."""
    config = replace(INDEXED, index_slots_max=slots, index_entries_max=6_000)
    index = KeyIndex(RealDisk(tmp_path_factory.mktemp("index")), ManualClock(), config)
    numbers = np.arange(5_500)
    is_hot = numbers % 7 < hot_share
    if data.draw(st.booleans()):
        is_hot &= numbers > 4_000
    hashes = np.where(is_hot, index_key_hash("A#hot"), numbers).astype(np.int32)
    index.add(IndexKeys(hashes, numbers * 100, 1_700_000_000_000 + numbers * 1_000), 550_000)
    write = index.take_write()
    assert write is not None
    write.run()
    index.finish_write(write)
    begin_ms = 1_700_000_000_000 + begin_s * 1_000
    search = index.plan_search(
        "A", "hot", begin_ms=begin_ms, end_ms=begin_ms + length_s * 1_000, max_results=50
    )
    assert search.run() == search.run_raw()
    inside = is_hot & (numbers >= begin_s) & (numbers <= begin_s + length_s)
    assert search.run() == (np.flatnonzero(inside)[::-1][:50] * 100).tolist()


def test_a_write_of_very_many_keys_gives_the_same_bytes(tmp_path: Path) -> None:
    """More than are taken in one go, and over a roll."""
    config = replace(INDEXED, index_slots_max=997, index_entries_max=40_000)
    index = KeyIndex(RealDisk(tmp_path), ManualClock(), config)
    plain = PlainIndex(997, 40_000)
    numbers = np.arange(50_000)
    hashes = (numbers * 2_654_435_761 % 100_003).astype(np.int32)
    times = 1_700_000_000_000 + numbers * 37
    for part in (slice(0, 100), slice(100, 50_000)):
        columns = hashes[part], numbers[part] * 100, times[part]
        for row in zip(*(column.tolist() for column in columns), strict=True):
            plain.put_hash(*row)
        index.add(IndexKeys(*columns), 5_000_000)
        write = index.take_write()
        assert write is not None
        write.run()
        index.finish_write(write)
    contents = [path.read_bytes() for path in index_folder(tmp_path)]
    assert contents == [file.encode() for file in plain.files]


def test_records_that_are_not_confirmed_are_not_found(tmp_path: Path) -> None:
    store = open_store(tmp_path, INDEXED)
    append_keys(store, "A", "u1 k", confirm=False)
    assert store.index.plan_search("A", "k").run() == []
    store.confirm(store.appended_end)
    assert store.index.plan_search("A", "k").run() == [0]
    store.close()


def test_a_query_compares_the_records_own_topic_and_key(tmp_path: Path) -> None:
    store = open_store(tmp_path, INDEXED)
    # These hash alike, with any topic in front.
    first = append_keys(store, "A", "u1 Aa")
    second = append_keys(store, "A", "u2 BB")
    both = [second.base_physical_offset, first.base_physical_offset]
    assert store.index.plan_search("A", "Aa").run() == both
    (record,) = find_by_key(store, "A", "Aa")
    assert record == store.log.record_at(first.base_physical_offset, len(record))
    assert find_by_key(store, "A", "absent") == []
    store.close()


def test_too_many_pending_keys_bring_a_checkpoint_at_once(tmp_path: Path) -> None:
    config = replace(INDEXED, segment_bytes=1 << 20, index_pending_bytes_max=1_000)
    store = open_store(tmp_path, config)
    assert not store.ledger.checkpoint_due
    append_keys(store, "A", *(f"u{index} k" for index in range(60)))
    assert store.index.pending_bytes >= 1_000
    assert store.ledger.checkpoint_due
    flush(store)
    assert store.index.pending_bytes == 0
    check_answers(store)
    store.close()


def test_the_checkpoint_knows_the_last_key_that_is_in_the_files(tmp_path: Path) -> None:
    clock = ManualClock(now_ms=1_700_000_000_000)
    store = open_store(tmp_path, INDEXED, clock)
    append_keys(store, "A", "u1", "u2")
    clock.advance_ms(10_000)
    flush(store)
    checkpoint = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert checkpoint.index_msg_timestamp == 1_700_000_000_000
    (info,) = store.index.files()
    assert info.header.end_timestamp_ms == 1_700_000_000_000
    store.close()


def test_without_the_index_nothing_is_filed_and_a_later_start_fills_the_gap(
    tmp_path: Path,
) -> None:
    off = replace(INDEXED, index_enabled=False)
    store = open_store(tmp_path, INDEXED)
    append_keys(store, "A", "u1 k")
    store.close()
    store = open_store(tmp_path, off)
    append_keys(store, "A", "u2 k")
    assert store.index.plan_search("A", "k").run() == [0]
    store.close()
    store = open_store(tmp_path, INDEXED)
    check_answers(store)
    check_files(store, RealDisk(tmp_path))
    store.close()


def test_names_are_the_local_time_and_rise_whatever_the_clock_does() -> None:
    name = next_index_name(1_700_000_000_123, None)
    assert is_index_name(name)
    assert name.endswith("123")
    assert next_index_name(1_700_000_000_123, name) > name
    assert next_index_name(0, "20261121091659999") == "20261121091700000"
    assert next_index_name(0, "99999999999999998") == "99999999999999999"
    following = next_index_name(1_700_000_000_124, name)
    assert following[:-3] == name[:-3]


def test_expired_files_go_oldest_first_and_never_the_newest(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, replace(INDEXED, segment_bytes=1 << 20), clock)
    for index in range(40):
        append_keys(store, "A", f"u{index}")
    clock.advance_ms(10_000)
    flush(store)
    files = store.index.files()
    assert len(files) == 4
    search = store.index.plan_search("A", "u0")
    assert store.index.take_expired(files[0].header.end_physical_offset) == []
    expired = store.index.take_expired(files[1].header.end_physical_offset + 1)
    assert expired == files[:2]
    assert store.index.files() == files[2:]
    remove_index_files(RealDisk(tmp_path), [info.name for info in expired])
    assert [path.name for path in index_folder(tmp_path)] == [info.name for info in files[2:]]
    # Planned before, run after: the file is gone, so are its records.
    assert search.run() == []
    everything = store.index.take_expired(1 << 40)
    remove_index_files(RealDisk(tmp_path), [info.name for info in everything])
    assert store.index.files() == files[3:]
    store.close()
    reopened = open_store(tmp_path, replace(INDEXED, segment_bytes=1 << 20), clock)
    assert reopened.index.files() == files[3:]
    reopened.close()


def test_default_sizes_are_those_of_apache() -> None:
    config = StoreConfig()
    assert (config.index_slots_max, config.index_entries_max) == (5_000_000, 20_000_000)
