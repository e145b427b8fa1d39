"""The dump of a store that our broker's engine writes right now, judged by the simple reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.cli.store.dump_document import dump_store
from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import TagsCodes
from tests.support.documents import without_answers

Compare = Callable[[Any, Any], list[str]]

SEGMENT_BYTES = 64 * 1024
CONFIG = StoreConfig(
    segment_bytes=SEGMENT_BYTES, consume_queue_entries_per_file=40, disk_free_bytes_min=0
)


def batch_of(topic: str, bodies: list[bytes]) -> CheckedBatch:
    properties = [
        encode_properties({"TAGS": f"标签{n % 3}", "KEYS": f"k-{n}", "备注": "🚀"})
        for n in range(len(bodies))
    ]
    records, sizes = encode_batch(
        topic=topic.encode(),
        bodies=bodies,
        properties=properties,
        born_timestamp_ms=1_700_000_000_000,
        born_host=HostAddress.parse("127.0.0.1:50000"),
    )
    return check_batch(
        records,
        sizes,
        topic=topic,
        limits=BatchLimits(),
        store_host_ipv6=False,
        tags=TagsCodes(),
    )


def append_some(store: MessageStore, rounds: int) -> None:
    for number in range(rounds):
        bodies = [bytes([number % 256]) * (n * 37 % 900) for n in range(20)]
        store.append(batch_of(f"topic-{number % 3}", bodies), queue_id=number % 2)
        store.confirm(store.appended_end)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[MessageStore]:
    store = MessageStore.open(RealDisk(tmp_path), ManualClock(), CONFIG)
    yield store
    store.close()


def differences_to_plain(tmp_path: Path, plain_store: Any, compare: Compare) -> list[str]:
    plain = plain_store(tmp_path, SEGMENT_BYTES)
    document = dump_store(tmp_path, {})
    return [
        *compare(plain.commit_log(), document["commitLog"]),
        *compare(plain.topics(), without_answers(document["topics"])),
    ]


def test_a_store_in_use_is_shown_as_far_as_it_is_written(
    live: MessageStore, tmp_path: Path, plain_store: Any, compare: Compare
) -> None:
    append_some(live, 30)
    assert live.appended_end > 3 * SEGMENT_BYTES
    work = live.ledger.take_flush()
    assert work is not None
    work.run()
    live.ledger.finish_flush(work)
    append_some(live, 7)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert differences_to_plain(tmp_path, plain_store, compare) == []
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    append_some(live, 1)
    assert live.queues.bounds("topic-0", 0).max_offset > 0


def test_a_store_that_was_closed_is_shown_whole(
    live: MessageStore, tmp_path: Path, plain_store: Any, compare: Compare
) -> None:
    append_some(live, 30)
    live.close()
    assert differences_to_plain(tmp_path, plain_store, compare) == []


def test_a_record_longer_than_one_read_is_shown(
    tmp_path: Path, plain_store: Any, compare: Compare
) -> None:
    config = StoreConfig(segment_bytes=32 * 1024 * 1024, disk_free_bytes_min=0)
    store = MessageStore.open(RealDisk(tmp_path), ManualClock(), config)
    for size in (3_000_000, 4_100_000, 0, 4_190_000, 1):
        store.append(batch_of("large", [b"x" * size]), queue_id=0)
    store.confirm(store.appended_end)
    store.close()
    plain = plain_store(tmp_path, config.segment_bytes)
    document = dump_store(tmp_path, {})
    assert compare(plain.commit_log(), document["commitLog"]) == []
    assert compare(plain.topics(), without_answers(document["topics"])) == []


def test_an_empty_store_has_nothing_to_show(live: MessageStore, tmp_path: Path) -> None:
    live.close()
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    document = dump_store(tmp_path, {})
    assert document["topics"] == {}
    assert document["commitLog"] == {
        "minOffset": 0,
        "maxOffset": 0,
        "segments": [],
        "records": 0,
        "recordsSha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }
    assert document["consumerOffsets"] == {}
    assert document["topicConfigs"] == {}
