"""What clients can do to the key index: huge batches, hot keys, slow checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Busy
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.index.message_query import MessageQuery, QueryWanted
from aerobee.store.engine.index.pending_keys import PendingKeys
from aerobee.store.engine.index.search_budget import RECORD_ENTRIES, SearchBudget
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import StoreState
from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.index_unhashed import LooseRecord, UnhashedKeys, hash_loose_records
from aerobee.store.format.java_hash import index_key_hash
from tests.support.indexes import append_keys, check_files
from tests.support.property_runs import examples
from tests.support.stores import SMALL, append, batch_of, batch_with, find_by_key, flush, open_store

BIG = replace(SMALL, segment_bytes=64 << 20, index_slots_max=5_000, index_entries_max=4_000_000)
TWO_BYTE_KEYS = b"KEYS\x01" + "é ".encode() * 10_500 + b"\x02"
MANY_KEYS = b"KEYS\x01" + b"a " * 16_000 + b"\x02"


def offsets_of(store: MessageStore, topic: str, key: str) -> list[int]:
    return store.index.plan_search(topic, key, max_results=10_000).run()


@pytest.mark.parametrize(
    "properties", [TWO_BYTE_KEYS, MANY_KEYS, b"KEYS\x01" + "é".encode() * 16_000]
)
def test_the_keys_of_a_batch_full_of_them_are_not_hashed_on_the_loop(
    tmp_path: Path, properties: bytes
) -> None:
    """It would take some tenths of a second or more; the bytes wait for the index's thread."""
    store = open_store(tmp_path, BIG)
    batch = batch_with("T", [properties] * 120)
    append_keys(store, "T", "first")
    keys = batch.index_keys(0, 1)
    assert isinstance(keys, UnhashedKeys)
    store.index.add(keys, store.index.indexed_end)
    store.index.plan_search("T", "a")
    assert store.index.pending_bytes < 2 * len(batch.buffer)


def test_the_keys_of_a_few_long_messages_are_found_by_the_next_search(tmp_path: Path) -> None:
    store = open_store(tmp_path, BIG)
    for _ in range(12):
        store.append(batch_with("T", [TWO_BYTE_KEYS]), queue_id=0)
    store.confirm(store.appended_end)
    search = store.index.plan_search("T", "é")
    assert len(search.run()) == 12


def test_keys_that_are_not_hashed_yet_are_found_and_filed_like_all_others(tmp_path: Path) -> None:
    clock = ManualClock()
    config = replace(BIG, index_entries_max=1_000)
    store = open_store(tmp_path, config, clock)
    expected: dict[str, list[int]] = {"before": [], "mine": [], "订单": [], "after": []}

    def note(base: int, *keys: str) -> None:
        for key in keys:
            expected[key].insert(0, base)

    for turn in range(3):
        note(append_keys(store, "T", "before").base_physical_offset, "before")
        for count in (3, 30):
            filler = b"x" * (30_000 if count == 3 else 3_000)
            properties = [
                b"UNIQ_KEY\x01%b%d\x02KEYS\x01" % (filler, index)
                + (f"mine 订单 k{turn}" if index == 1 else "other" * (index % 3)).encode()
                for index in range(count)
            ]
            batch = batch_with("T", properties)
            base = store.append(batch, queue_id=0).base_physical_offset
            store.confirm(store.appended_end)
            note(base + int(batch.starts[1]), "mine", "订单")
        note(append_keys(store, "T", "after").base_physical_offset, "after")
        for key, offsets in expected.items():
            assert offsets_of(store, "T", key) == offsets
            assert store.index.plan_search("T", key).run_raw() == offsets
            assert len(find_by_key(store, "T", key)) == len(offsets)
        if turn == 1:
            clock.advance_ms(10_000)
            flush(store)
            assert store.index.pending_keys == store.index.pending_bytes == 0
            check_files(store, RealDisk(tmp_path), config)
    store.close()
    reopened = open_store(tmp_path, config, clock)
    check_files(reopened, RealDisk(tmp_path), config)
    for key, offsets in expected.items():
        assert offsets_of(reopened, "T", key) == offsets
    reopened.close()


LOOSE = st.builds(
    LooseRecord,
    st.sampled_from(["A", "B"]),
    st.sampled_from(
        [b"", b"KEYS\x01", b"KEYS\x01a b c", b"UNIQ_KEY\x01u", b"KEYS\x01" + b"k " * 20_000]
    ),
    st.just(0),
    st.just(1),
)
PENDING_STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "unhashed", "loose", "write"]), st.lists(LOOSE, min_size=1)),
    max_size=12,
)


@pytest.mark.thorough
@given(PENDING_STEPS, st.data())
@settings(max_examples=examples(20), deadline=None)
def test_what_was_not_written_stays_pending_in_order(
    steps: list[tuple[str, list[LooseRecord]]], data: st.DataObject
) -> None:
    """Also where a full disk ended a write in the middle of a batch."""
    pending = PendingKeys()
    expected: list[int] = []
    for kind, records in steps:
        hashed = hash_loose_records(records)
        if kind == "write":
            view = pending.view()
            pending.add(hashed)
            count = data.draw(st.integers(0, len(expected)))
            # A write hashes as far as it comes.
            left = count
            for part in view.parts:
                for keys in part.hashed() if isinstance(part, UnhashedKeys) else (part,):
                    if left < 0:
                        break
                    left -= len(keys)
            pending.drop(count)
            assert view.hashed().hashes.tolist() == expected
            expected = expected[count:]
        elif kind == "add":
            pending.add(hashed)
        elif kind == "unhashed":
            pending.add_unhashed(UnhashedKeys.of_loose(records))
        else:
            pending.add_loose(records)
        expected += hashed.hashes.tolist()
        assert pending.view().hashed().hashes.tolist() == expected
        assert len(pending) > 0 or not expected
        assert pending.bytes >= 0
    pending.drop(len(expected))
    assert (len(pending), pending.bytes) == (0, 0)


def test_appends_wait_while_a_checkpoint_cannot_keep_up_with_the_keys(tmp_path: Path) -> None:
    clock = ManualClock()
    config = replace(BIG, index_pending_bytes_max=1 << 20)
    store = open_store(tmp_path, config, clock)
    held = None
    for _ in range(60):
        batch = batch_with("T", [MANY_KEYS] * 20)
        if store.index.pending_bytes > 4 << 20:
            with pytest.raises(Busy, match=r"keys of the index wait in memory .* send more slowly"):
                store.append(batch, queue_id=0)
            continue
        store.append(batch, queue_id=0)
        store.confirm(store.appended_end)
        work = store.ledger.take_flush()
        if work is not None:
            work.run()
            store.ledger.finish_flush(work)
            held = held or work.checkpoint
    assert store.index.pending_bytes > 4 << 20
    assert store.index.pending_bytes < 6 << 20
    assert store.state is StoreState.WRITABLE
    assert held is not None
    held.run()
    store.ledger.finish_checkpoint(held)
    clock.advance_ms(10_000)
    flush(store)
    append(store, "T", 0, b"again")
    store.close()


def test_appends_wait_while_a_checkpoint_cannot_keep_up_with_the_queues(tmp_path: Path) -> None:
    store = open_store(tmp_path, replace(SMALL, queue_tail_bytes_max=100))
    for _ in range(21):
        append(store, "T", 0, b"x")
    with pytest.raises(Busy, match="consume queue entries wait in memory"):
        append(store, "T", 0, b"x")
    flush(store)
    append(store, "T", 0, b"again")


# ------------------------------------------------------------------------------ long chains


def with_hot_key(root: Path, offsets: Sequence[int], clock: ManualClock) -> MessageStore:
    """A store whose log begins after its first segments, and whose index files `offsets`."""
    store = open_store(root, BIG, clock)
    append(store, "T", 0, b"x")
    keys = IndexKeys(
        np.full(len(offsets), index_key_hash("T#hot"), np.int32),
        np.array(offsets, np.int64),
        np.full(len(offsets), 1_000, np.int64),
    )
    store.index.add(keys, store.index.indexed_end)
    write = store.index.take_write()
    assert write is not None
    write.run()
    store.index.finish_write(write)
    return store


def test_a_search_ends_where_the_log_begins(tmp_path: Path) -> None:
    store = with_hot_key(tmp_path, range(1, 200_000), ManualClock())
    budget = SearchBudget(None)
    search = store.index.plan_search("T", "hot")
    assert list(search.unique_matches(199_990, budget)) == list(range(199_999, 199_989, -1))
    assert budget.entries < 100
    assert not budget.is_spent


def test_records_that_were_filed_again_are_found_once(tmp_path: Path) -> None:
    store = with_hot_key(tmp_path, [10, 20, 30, 30, 20, 30, 40, 40], ManualClock())
    assert offsets_of(store, "T", "hot") == [40, 30, 20, 10]
    search = store.index.plan_search("T", "hot")
    assert search.run_raw() == [40, 40, 30, 20, 30, 30, 20, 10]
    assert list(search.unique_matches(25, SearchBudget(None))) == [40, 30]


def test_a_search_ends_when_its_budget_is_spent_and_says_so(tmp_path: Path) -> None:
    clock = ManualClock()
    store = with_hot_key(tmp_path, range(1, 20_000), clock)
    search = store.index.plan_search("T", "hot")
    budget = SearchBudget(clock, entries_max=1_000)
    assert 900 < len(list(search.unique_matches(0, budget))) < 1_300
    assert budget.is_spent

    by_time = SearchBudget(clock)
    found = 0
    for _ in search.unique_matches(0, by_time):
        found += 1
        clock.advance_ms(10)
    assert 500 < found < 1_100
    assert by_time.is_spent

    cancelled = SearchBudget(clock)
    matches = search.unique_matches(0, cancelled)
    next(matches)
    cancelled.cancel()
    assert list(matches) == []


def test_a_query_whose_messages_all_are_others_ends_and_says_so(tmp_path: Path) -> None:
    """The records that a hot hash leads to are read, and each costs as much as many entries."""
    store = with_hot_key(tmp_path, range(1, 50_000), ManualClock())
    query = MessageQuery(store.index, store.log, QueryWanted("T", "hot"))
    assert list(query.records()) == []
    assert query.cut_short
    complete = MessageQuery(store.index, store.log, QueryWanted("T", "absent"))
    assert list(complete.records()) == []
    assert not complete.cut_short
    assert RECORD_ENTRIES > 1


def test_the_first_message_of_a_rolled_file_is_found_by_its_time(tmp_path: Path) -> None:
    """Apache's broker counts its seconds from the end of the file before."""
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    for index in range(49):
        append_keys(store, "T", f"k{index}")
    clock.advance_ms(3_600_000)
    batch = batch_of("T", b"b", properties={"KEYS": "wanted"})
    stored_ms = store.append(batch, queue_id=0).store_timestamp_ms
    store.confirm(store.appended_end)

    def found() -> int:
        begin_ms, end_ms = stored_ms - 60_000, stored_ms + 60_000
        return len(find_by_key(store, "T", "wanted", begin_ms, end_ms))

    assert found() == 1
    clock.advance_ms(10_000)
    flush(store)
    assert [info.header.count for info in store.index.files()] == [50, 2]
    assert found() == 1
    # What Apache's broker would say.
    raw = store.index.plan_search("T", "wanted", begin_ms=0, end_ms=stored_ms + 60_000)
    assert raw.run_raw() == []
    store.close()
