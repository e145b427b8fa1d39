"""Stores that an Apache broker wrote, through our recovery: it finds what Apache's own finds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from aerobee.cli.store.dump_document import DumpRequest, dump_store
from aerobee.cli.store.questions import GivenQuestions
from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig, consume_queue_entries
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import TagsCodes
from tests.support.documents import without_answers

pytestmark = pytest.mark.many_files
Compare = Callable[[Any, Any], list[str]]

NOTHING_ASKED = DumpRequest(questions=GivenQuestions({}))
"""Only what the store holds, without searches by time and by key."""
BORN_HOST = HostAddress.parse("127.0.0.1:50000")


def open_store(golden: Any, *, read_only: bool = False) -> MessageStore:
    config = StoreConfig(
        segment_bytes=golden.segment_bytes,
        consume_queue_entries_per_file=consume_queue_entries(
            int(golden.config["mappedFileSizeConsumeQueue"])
        ),
        index_slots_max=int(golden.config["maxHashSlotNum"]),
        index_entries_max=int(golden.config["maxIndexNum"]),
        disk_free_bytes_min=0,
    )
    clock = ManualClock(golden.manifest["snapshotTime"])
    return MessageStore.open(RealDisk(golden.root), clock, config, read_only=read_only)


def dumped(golden: Any, request: DumpRequest | None = None) -> dict[str, Any]:
    """The document, without what differs by looking at another time: the files themselves."""
    return without_files(dump_store(golden.root, golden.config, request))


def without_files(content: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in content.items()
        if key not in ("onDisk", "state", "otherConfigs")
    }


def batch_of(topic: str, count: int) -> CheckedBatch:
    properties = [encode_properties({"TAGS": "late", "KEYS": f"k-{n}"}) for n in range(count)]
    records, sizes = encode_batch(
        topic=topic.encode(),
        bodies=[b"x" * n for n in range(count)],
        properties=properties,
        born_timestamp_ms=1,
        born_host=BORN_HOST,
    )
    return check_batch(
        records,
        sizes,
        topic=topic,
        limits=BatchLimits(),
        store_host_ipv6=False,
        tags=TagsCodes(),
    )


def test_what_recovery_finds_is_what_the_manifest_says(golden: Any, compare: Compare) -> None:
    before = golden.files()
    assert compare(without_files(golden.content), dumped(golden)) == []
    assert golden.files() == before, "looking changes nothing"


@pytest.mark.thorough
def test_a_store_that_was_taken_over_and_closed_says_the_same(
    golden: Any, compare: Compare
) -> None:
    open_store(golden).close()
    assert not (golden.root / "abort").exists()
    assert compare(without_files(golden.content), dumped(golden)) == []
    open_store(golden).close()
    assert compare(without_files(golden.content), dumped(golden)) == []


@pytest.mark.thorough
def test_a_takeover_that_dies_right_after_the_start_loses_nothing(
    golden: Any, compare: Compare
) -> None:
    store = open_store(golden)
    copy = golden.root.with_name("copy")
    shutil.copytree(golden.root, copy)
    store.close()
    assert (copy / "abort").exists()
    golden.root = copy
    assert compare(without_files(golden.content), dumped(golden)) == []
    open_store(golden).close()
    assert compare(without_files(golden.content), dumped(golden)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("read_only", [True, False], ids=["read-only", "for-good"])
def test_queues_are_rebuilt_from_the_log_alone(
    golden: Any, compare: Compare, read_only: bool
) -> None:
    shutil.rmtree(golden.root / "consumequeue")
    if not read_only:
        open_store(golden).close()
    assert compare(without_files(golden.content), dumped(golden)) == []


def test_acknowledged_messages_are_there_after_a_crash(
    extract_golden: Callable[[str], Any],
) -> None:
    golden = extract_golden("crashed")
    found = {
        message["physicalOffset"]
        for queues in dumped(golden, NOTHING_ASKED)["topics"].values()
        for queue in queues.values()
        for message in queue["messages"]
    }
    acknowledged = {position for position, _ in golden.manifest["acknowledged"]}
    assert len(acknowledged) > 100
    assert acknowledged <= found


def test_new_messages_follow_where_apache_stopped(
    golden: Any, compare: Compare, plain_store: Any
) -> None:
    store = open_store(golden)
    end = golden.manifest["commitLog"]["maxOffset"]
    queue = golden.manifest["topics"]["OrderEvents"]["1"]
    appended = store.append(batch_of("OrderEvents", 50), queue_id=1)
    assert appended.base_queue_offset == queue["maxOffset"]
    assert appended.base_physical_offset >= end
    store.append(batch_of("Brand.New".replace(".", "-"), 3), queue_id=0)
    store.confirm(store.appended_end)
    store.close()

    plain = plain_store(golden.root, golden.segment_bytes)
    document = dumped(golden, NOTHING_ASKED)
    assert compare(plain.commit_log(), document["commitLog"]) == []
    assert compare(plain.topics(), without_answers(document["topics"])) == []
    assert document["topics"]["OrderEvents"]["1"]["maxOffset"] == queue["maxOffset"] + 50
    assert document["topics"]["Brand-New"]["0"]["maxOffset"] == 3
