"""Retention keeps the half messages that Apache's broker left waiting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.store.config import consume_queue_entries
from aerobee.broker.store.disk import RealDisk
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.store.retention.unread_search import QueueReaders
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import CLEAN_STORE
from aerobee.runtime.clock import ManualClock
from aerobee.store_format.consume_queue_entry import unpack_entry
from aerobee.store_format.json_config import parse_object
from aerobee.v1 import broker_pb2
from tests.golden_stores.conftest import GoldenStore
from tests.golden_stores.test_takeover_by_broker import Takeover
from tests.support.plain_store import PlainStore
from tests.support.retention import write_times
from tests.support.stores import SMALL

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
CHECKS = "CID_RMQ_SYS_TRANS"
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture(params=["clean-small", "retained", "ipv6-v2"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenStore:
    return GoldenStore(request.param, tmp_path)


def options(golden: GoldenStore) -> dict[str, Any]:
    config = golden.config
    return {
        "segment_bytes": golden.segment_bytes,
        "consume_queue_entries_per_file": consume_queue_entries(
            int(config["mappedFileSizeConsumeQueue"])
        ),
        "index_slots_max": int(config["maxHashSlotNum"]),
        "index_entries_max": int(config["maxIndexNum"]),
    }


@pytest.fixture
def open_golden() -> Iterator[Callable[[GoldenStore], MessageStore]]:
    opened = []

    def open_it(golden: GoldenStore) -> MessageStore:
        store = MessageStore.open(
            RealDisk(golden.root), ManualClock(), replace(SMALL, **options(golden))
        )
        opened.append(store)
        return store

    yield open_it
    for store in opened:
        store.close()


def committed(golden: GoldenStore, topic: str, queue_id: int) -> int:
    table = golden.manifest["consumerOffsets"].get(f"{topic}@{CHECKS}", {})
    return int(table.get(str(queue_id), 0))


def pending(store: MessageStore, offset_of: Callable[[str, int], int]) -> list[QueueReaders]:
    search = store.retention.take_pending(offset_of)
    search.run()
    return search.found


def oldest(store: MessageStore, found: list[QueueReaders], topic: str) -> int | None:
    """The position of the oldest message of a system topic that waits."""
    positions = [
        unpack_entry(store.queues.read_entries(topic, each.queue_id, each.oldest, 1))[0]
        for each in found
        if each.topic == topic
    ]
    return min(positions, default=None)


def sent(golden: GoldenStore, kind: str) -> list[dict[str, Any]]:
    return [send for send in golden.manifest["specialSends"] if send["kind"] == kind]


def oldest_half(golden: GoldenStore) -> int | None:
    """Of the half messages without an answer; one that was asked for was stored once more."""
    keys = {send["uniqKey"] for send in sent(golden, "transaction-pending")}
    last = {
        record.properties["UNIQ_KEY"]: record.physical_offset
        for record in PlainStore(golden.root, golden.segment_bytes).records
        if record.topic == HALF and record.properties.get("UNIQ_KEY") in keys
    }
    assert set(last) == keys
    return min(last.values(), default=None)


OpenGolden = Callable[[GoldenStore], MessageStore]


def test_the_oldest_half_message_that_waits_is_found(
    golden: GoldenStore, open_golden: OpenGolden
) -> None:
    store = open_golden(golden)
    found = pending(store, lambda *queue: committed(golden, *queue))
    assert {(each.topic, kind) for each in found for kind in each.offsets} <= {
        (HALF, "half messages")
    }
    assert oldest(store, found, HALF) == oldest_half(golden)


def test_half_messages_that_were_answered_do_not_wait_although_no_check_has_passed_them(
    tmp_path: Path, open_golden: OpenGolden
) -> None:
    golden = GoldenStore("clean-small", tmp_path)
    assert committed(golden, HALF, 0) > 0
    store = open_golden(golden)
    assert oldest(store, pending(store, lambda *_: 0), HALF) == oldest_half(golden)


# ------------------------------------------------------------------------------ a broker


@pytest.mark.slow
async def test_a_broker_keeps_their_log_and_says_so_until_it_is_told_to_remove_them(
    tmp_path: Path,
) -> None:
    golden = GoldenStore("clean-small", tmp_path)
    forget_groups(golden.root)
    running = Takeover(golden)
    running.add_topic()
    channels = Channels()
    try:
        await running.broker.start()
        await running.send(60)  # the segment of the half messages is not the last one any more
        write_times(golden.root, LONG_AGO_MS)
        first = oldest_half(golden)
        assert first is not None
        answer = await channels.call(
            running.broker.address, CLEAN_STORE, broker_pb2.CleanStoreRequest()
        )
        size = golden.segment_bytes
        assert answer.log_min_offset == first // size * size > 0
        assert not answer.removed_unread
        assert f"half messages of Apache's broker wait in topic {HALF}" in answer.kept_because
        assert f"keeps the log from offset {first} on" in answer.kept_because
        assert "aerobee cluster clean --unread" in answer.kept_because
        answer = await channels.call(
            running.broker.address, CLEAN_STORE, broker_pb2.CleanStoreRequest(unread=True)
        )
        assert answer.log_min_offset > first
        assert ("half messages", HALF) in {(one.group, one.topic) for one in answer.removed_unread}
    finally:
        await channels.close()
        await running.stop()


def forget_groups(root: Path) -> None:
    """No group of users holds anything."""
    path = root / "config" / "consumerOffset.json"
    table: Any = parse_object(path.read_bytes())
    table["offsetTable"] = {
        name: offsets for name, offsets in table["offsetTable"].items() if name.endswith(CHECKS)
    }
    path.write_text(json.dumps(table))
