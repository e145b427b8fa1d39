"""What follows when segments go: the index, searches under way; and the same on Apache's files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig, consume_queue_entries
from aerobee.store.engine.queues.time_search import Boundary
from aerobee.store.engine.retention.steady_time import STEP_BELIEVED_AFTER_S
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.names import file_name
from tests.golden_stores.conftest import GoldenStore
from tests.support.retention import BODY, COMMAND, clean_here, expire, fill, open_retained, settle
from tests.support.stores import (
    SMALL,
    batch_of,
    check_agreement,
    find_by_key,
    log_records,
    read_queue,
)

INDEXED = replace(SMALL, index_slots_max=50, index_entries_max=20)


def test_index_files_that_lead_only_to_what_is_gone_go_too(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock, INDEXED)
    for number in range(60):
        batch = batch_of("Orders", BODY, properties={"KEYS": f"key-{number}"})
        store.append(batch, queue_id=0)
        store.confirm(store.appended_end)
        clock.advance_ms(1_500)
    settle(store, clock)
    files = len(os.listdir(tmp_path / "index"))
    assert files > 2
    expire(tmp_path, clock)
    clean_here(store.retention, request=COMMAND, segments_max=8)
    minimum = store.queues.bounds("Orders", 0).min_offset
    assert 0 < minimum < 60
    assert 0 < len(os.listdir(tmp_path / "index")) < files
    found = [number for number in range(60) if find_by_key(store, "Orders", f"key-{number}")]
    assert found == list(range(minimum, 60))
    store.close()
    store = open_retained(tmp_path, clock, INDEXED)
    assert find_by_key(store, "Orders", "key-59")
    assert not find_by_key(store, "Orders", "key-0")
    store.close()


def test_a_clean_start_knows_of_queue_files_that_went_while_a_checkpoint_was_under_way(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 10, queues=1)  # two segments, one queue file
    fill(store, 1, topic="Payments", queues=1)  # so that Orders goes on after the log's minimum
    fill(store, 10, queues=1)
    settle(store, clock)
    expire(tmp_path, clock)
    assert len(clean_here(store.retention, request=COMMAND, segments_max=1)) == 1
    clock.advance_ms(SMALL.checkpoint_interval_ms)
    flush = store.ledger.take_flush()
    assert flush is not None
    assert flush.checkpoint is not None
    expire(tmp_path, clock)
    assert len(clean_here(store.retention, request=COMMAND, segments_max=1)) == 1
    assert os.listdir(tmp_path / "consumequeue/Orders/0") == [file_name(10 * ENTRY_SIZE)]
    flush.run()
    store.ledger.finish_flush(flush)
    flush.checkpoint.run()
    store.ledger.finish_checkpoint(flush.checkpoint)
    store.close()
    store = open_retained(tmp_path, clock)
    assert read_queue(store, "Orders", 0) == [b"%08d" % number + BODY for number in range(10)]
    assert store.recovery.clean
    assert store.recovery.warnings == ()
    assert store.recovery.rebuilt_queues == ()
    store.close()


def test_a_search_by_time_under_way_survives_the_removal_of_its_files(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    times = []
    for _ in range(60):
        fill(store, 1, queues=1)
        times.append(clock.now_ms())
        clock.advance_ms(1_000)
    settle(store, clock)
    search = store.reads.plan_time_search("Orders", 0)
    assert search is not None
    expire(tmp_path, clock)
    clean_here(store.retention, request=COMMAND, segments_max=8)
    minimum = store.queues.bounds("Orders", 0).min_offset
    assert minimum > 20
    assert search.run(times[50], Boundary.LOWER) == 50
    assert search.run(times[0], Boundary.LOWER) == minimum


@pytest.mark.parametrize("name", ["retained", "clean-small", "crashed"])
def test_segments_that_apache_wrote_go_and_the_rest_is_served(name: str, tmp_path: Path) -> None:
    golden = GoldenStore(name, tmp_path)
    sizes = golden.config
    config = StoreConfig(
        segment_bytes=golden.segment_bytes,
        consume_queue_entries_per_file=consume_queue_entries(
            int(sizes["mappedFileSizeConsumeQueue"])
        ),
        index_slots_max=int(sizes["maxHashSlotNum"]),
        index_entries_max=int(sizes["maxIndexNum"]),
        disk_free_bytes_min=0,
    )
    clock = ManualClock(now_ms=1_800_000_000_000)
    store = open_retained(golden.root, clock, config)
    check_agreement(store)
    before = {name: store.queues.bounds(*name) for name in store.queues.names()}
    kept = [record.raw for record in log_records(store)]
    segments = store.log.segments()
    clock.advance_ms(round(STEP_BELIEVED_AFTER_S * 1_000))  # the folder is older than a day
    expire(golden.root, clock)
    removed = clean_here(store.retention, request=COMMAND, segments_max=len(segments) // 2)
    assert len(removed) == len(segments) // 2 > 0
    for _ in range(2):
        check_agreement(store)
        found = [record.raw for record in log_records(store)]
        assert 0 < len(found) < len(kept)
        assert found == kept[-len(found) :]
        for queue, bounds in before.items():
            now = store.queues.bounds(*queue)
            assert (now.max_offset, now.min_offset >= bounds.min_offset) == (
                bounds.max_offset,
                True,
            )
            assert len(read_queue(store, *queue)) == now.max_offset - now.min_offset
        store.close()
        store = open_retained(golden.root, clock, config)
        assert store.recovery.clean
        assert store.recovery.rebuilt_queues == ()
    store.close()
