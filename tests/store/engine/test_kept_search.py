"""From which message on a queue keeps its messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.engine.queues.reading import GetStatus
from aerobee.store.engine.retention.kept_search import KeptRule, KeptSearch, SummedBytes
from aerobee.store.engine.retention.unread_search import QueueReaders
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.consume_queue_entry import pack_entries
from tests.support.retention import expire, fill, open_retained, settle, take_removal
from tests.support.stores import append, locate, open_store


def newest_that_fit(sizes: Sequence[int], bytes_max: int) -> int:
    """The first of them, by definition."""
    begin, total = len(sizes), 0
    while begin > 0 and (total + sizes[begin - 1] <= bytes_max or begin == len(sizes)):
        begin -= 1
        total += sizes[begin]
    return begin


@given(
    grown=st.lists(st.lists(st.integers(1, 50), max_size=12), min_size=1, max_size=5),
    limits=st.lists(st.integers(1, 300), min_size=5, max_size=5),
    trims=st.lists(st.booleans(), min_size=5, max_size=5),
    entries_max=st.integers(1, 9),
)
def test_whatever_grows_and_goes_a_queue_keeps_the_newest_messages_that_fit(
    grown: list[list[int]],
    limits: list[int],
    trims: list[bool],
    entries_max: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    disk = RealDisk(tmp_path_factory.mktemp("store"))
    queues = QueueSet(FileCache(disk, 4), 4)
    queue = queues.get_or_create("t", 0)
    sizes: list[int] = []
    summed, kept = SummedBytes(), 0
    for new, bytes_max, is_trimmed in zip(grown, limits, trims, strict=False):
        if new:
            positions = [sum(sizes) + sum(new[:at]) for at in range(len(new))]
            queues.append(queue, pack_entries(positions, new, new), len(new), sum(sizes) + sum(new))
            sizes += new
            work = queues.take_write_out()
            work.run(Checkpoint())
            queues.finish_write_out(work)
        if is_trimmed and kept:
            trim = queues.take_trim(sum(sizes[:kept]))
            trim.run()
            queues.finish_trim(trim)
        if not sizes:
            continue
        kept = max(kept, newest_that_fit(sizes, bytes_max))
        for _ in range(1_000):
            rule = KeptRule(bytes_max=bytes_max)
            search = KeptSearch(disk, queue, _no_log, rule, summed, entries_max=entries_max)
            search.run()
            assert search.trouble is None
            assert search.found <= kept, "nothing goes that must be kept"
            queues.keep_from("t", 0, search.found)
            summed = search.summed
            if not search.has_more:
                break
        assert queue.served_from == kept
        assert not search.has_more


def _no_log(position: int, size: int) -> bytes:
    raise AssertionError("sizes are in the queue's entries")


def test_by_age_it_keeps_what_was_stored_at_or_after_a_time(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    times_ms = []
    for _ in range(10):
        clock.advance_ms(1_000)
        append(store, "t", 0, b"x")
        times_ms.append(clock.now_ms())
    queue = store.queues.get("t", 0)
    assert queue is not None
    for kept, stored_ms in enumerate(times_ms):
        search = store.reads.kept_search(queue, KeptRule(stored_ms=stored_ms), SummedBytes())
        search.run()
        assert (search.found, search.has_more) == (kept, False)
    store.close()


def test_what_a_topic_does_not_keep_cannot_be_read_and_never_comes_back(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(5):
        append(store, "t", 0, b"x")
    store.queues.keep_from("t", 0, 3)
    assert store.queues.bounds("t", 0).min_offset == 3
    assert locate(store, "t", 0, 2).status is GetStatus.OFFSET_TOO_SMALL
    assert locate(store, "t", 0, 3).count == 2
    store.queues.keep_from("t", 0, 99)  # known before the messages, as by a replica
    assert store.queues.bounds("t", 0).min_offset == 5
    store.close()


def test_unread_messages_hold_the_log_only_as_far_as_their_topic_keeps_them(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 40)
    settle(store, clock)
    expire(tmp_path, clock)
    readers = [QueueReaders("Orders", queue_id, {"g": 0}) for queue_id in (0, 1)]
    assert take_removal(store, readers) is None
    for queue_id in (0, 1):
        store.queues.keep_from("Orders", queue_id, 10)
    removal = take_removal(store, readers)
    assert removal is not None
    store.close()
