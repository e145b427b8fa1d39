"""The key index of stores that an Apache broker wrote: headers and answers, and ours after it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from aerobee.store.engine.config import StoreConfig, consume_queue_entries
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.index.index_files import IndexFileInfo
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.record import Record
from tests.support.indexes import append_keys, check_files
from tests.support.stores import find_by_key, log_records, open_store

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
NAMES = ("clean-small", "crashed", "crashed-torn", "retained", "ipv6-v2")


class Golden:
    """One extracted store, its manifest, and the sizes it was written with."""

    def __init__(self, name: str, folder: Path) -> None:
        self.manifest: Any = json.loads((GOLDEN / f"{name}.json").read_text())
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(folder)
        self.root = folder / name
        sizes = {key: int(value) for key, value in self.manifest["config"].items()}
        self.config = StoreConfig(
            segment_bytes=sizes["mappedFileSizeCommitLog"],
            consume_queue_entries_per_file=consume_queue_entries(
                sizes["mappedFileSizeConsumeQueue"]
            ),
            index_slots_max=sizes["maxHashSlotNum"],
            index_entries_max=sizes["maxIndexNum"],
            disk_free_bytes_min=0,
        )
        self.index: Any = self.manifest["index"]


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return Golden(request.param, tmp_path)


def as_listed(info: IndexFileInfo) -> dict[str, int]:
    header = info.header
    return {
        "beginTimestamp": header.begin_timestamp_ms,
        "endTimestamp": header.end_timestamp_ms,
        "beginPhyOffset": header.begin_physical_offset,
        "endPhyOffset": header.end_physical_offset,
        "hashSlotCount": header.used_slots,
        "indexCount": header.count,
    }


def check_answers(store: MessageStore, index: Any) -> None:
    most = index["maxPerAnswer"]
    wrong = [
        (topic, key)
        for topic, key, offsets in index["answers"]
        if store.index.plan_search(topic, key, max_results=most).run_raw() != offsets
        or set(store.index.plan_search(topic, key, max_results=most).run()) != set(offsets)
    ]
    assert not wrong
    for window in index["windows"]:
        topic, key = window["topic"], window["key"]
        begin_ms, end_ms, most = window["begin"], window["end"], window["max"]
        search = store.index.plan_search(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, max_results=most
        )
        assert search.run_raw() == window["physicalOffsets"]
        records = find_by_key(store, topic, key, begin_ms, end_ms)[:most]
        # Apache's broker gives the newest ones it found in log order, and an offset that is filed
        # twice as two of them.
        offsets = [Record(record).physical_offset for record in records]
        assert offsets == sorted(set(offsets), reverse=True)
        expected = window["queryMessage"]
        # Keys that are in no file yet have times finer than seconds.
        differing = set(offsets) ^ set(expected)
        if len(set(expected)) < len(expected):
            differing = set(expected) - set(offsets)
        for offset in differing:
            size = int.from_bytes(store.log.record_at(offset, 4), "big")
            stored_ms = Record(store.log.record_at(offset, size)).store_timestamp_ms
            is_pending = store.index.pending_keys > 0
            assert is_pending
            assert (begin_ms <= stored_ms <= end_ms) == (offset in offsets)


@pytest.mark.thorough
@pytest.mark.parametrize("read_only", [True, False])
def test_headers_and_all_answers_are_apaches(golden: Golden, read_only: bool) -> None:
    store = open_store(golden.root, golden.config, read_only=read_only)
    files = store.index.files_with_pending()
    assert [as_listed(info) for info in files] == golden.index["files"]
    check_answers(store, golden.index)
    if not read_only:
        assert store.index.files() == files
    store.close()


@pytest.mark.thorough
def test_a_store_that_was_taken_over_answers_as_before_after_another_start(golden: Golden) -> None:
    open_store(golden.root, golden.config).close()
    store = open_store(golden.root, golden.config)
    assert store.index.pending_keys == 0
    check_answers(store, golden.index)
    store.close()


@pytest.mark.parametrize("name", ["clean-small", "ipv6-v2"])
def test_files_that_both_wrote_are_those_of_one_broker(name: str, tmp_path: Path) -> None:
    """Byte by byte, over several rolls."""
    golden = Golden(name, tmp_path)
    store = open_store(golden.root, golden.config)
    rolls = len(store.index.files())
    for turn in range(30):
        append_keys(store, "orders", *(f"mine-{turn}-{n} customer-{n} hot" for n in range(40)))
    store.close()
    store = open_store(golden.root, golden.config)
    assert len(store.index.files()) > rolls + 1
    check_files(store, RealDisk(golden.root), golden.config)
    newest = log_records(store)[-1]
    assert store.index.plan_search("orders", "hot").run()[0] == newest.physical_offset
    store.close()
