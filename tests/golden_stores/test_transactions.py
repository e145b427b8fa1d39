"""Transactions of a folder that Apache's broker has left: committed, rolled back and pending as its
manifest says, wherever reading begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.transactions.pending import PendingHalves, TransactionName
from aerobee.store.engine.config import StoreConfig, consume_queue_entries
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.json_config import parse_object
from aerobee.store.format.record import Record
from aerobee.store.format.transaction_records import (
    OP_TOPIC,
    TRANSACTIONS_GROUP,
    half_of,
    is_commit_of,
    op_of,
)
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import running_broker
from tests.golden_stores.conftest import GoldenStore
from tests.support.apache_start import apache_problems
from tests.support.plain_folder import folder_problems
from tests.support.plain_store import PlainStore
from tests.support.transactions import end
from tests.support.v2_calls import V2

TOPIC = "PaymentNotices"
KINDS = ("commit", "rollback", "pending")


@pytest.fixture(params=["clean-small", "crashed", "retained"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenStore:
    return GoldenStore(request.param, tmp_path)


def records_of(golden: GoldenStore, topic: str) -> Iterator[Record]:
    for each in PlainStore(golden.root, golden.segment_bytes).records:
        if each.topic == topic:
            yield Record(each.data)


def committed(golden: GoldenStore, topic: str) -> int:
    table = golden.manifest["consumerOffsets"].get(f"{topic}@{TRANSACTIONS_GROUP}", {})
    return int(table.get("0", 0))


def followed(golden: GoldenStore, *, from_progress: bool, ops_first: bool) -> PendingHalves:
    halves, ops = (
        committed(golden, topic) if from_progress else 0 for topic in (HALF_TOPIC, OP_TOPIC)
    )
    pending = PendingHalves(next_half=halves, next_op=ops)

    def read_ops() -> None:
        for record in records_of(golden, OP_TOPIC):
            if record.queue_offset >= ops:
                pending.read_op(record.queue_offset, *op_of(record))

    if ops_first:
        read_ops()
    for record in records_of(golden, HALF_TOPIC):
        if record.queue_offset >= halves:
            pending.read_half(half_of(record))
    if not ops_first:
        read_ops()
    return pending


def ids(golden: GoldenStore) -> dict[str, set[str]]:
    """Of transactions by how they stand, as their producer knows."""
    sends = golden.manifest.get("specialSends")
    if sends is None:  # a store whose broker was killed; each kind once, in this order
        halves = golden.manifest["topics"].get(HALF_TOPIC, {"0": {"messages": []}})["0"]
        firsts = list(dict.fromkeys(each["uniqKey"] for each in halves["messages"]))
        return {kind: {firsts[at]} for at, kind in enumerate(KINDS)}
    return {
        kind: {send["uniqKey"] for send in sends if send["kind"] == f"transaction-{kind}"}
        for kind in KINDS
    }


@pytest.mark.parametrize("ops_first", [False, True])
@pytest.mark.parametrize("from_progress", [False, True])
def test_what_waits_is_what_its_manifest_says(
    golden: GoldenStore, from_progress: bool, ops_first: bool
) -> None:
    pending = followed(golden, from_progress=from_progress, ops_first=ops_first)
    expected = ids(golden)
    assert {half.transaction_id for half in pending} == expected["pending"]
    assert len(pending) == len(expected["pending"])
    if not from_progress:
        for each in expected["commit"] | expected["rollback"]:
            assert pending.ended(TransactionName(TOPIC, each)) is not None


def test_progress_never_goes_back_and_passes_nothing_that_waits(golden: GoldenStore) -> None:
    pending = followed(golden, from_progress=False, ops_first=False)
    waiting = [half.offset for half in pending]
    assert pending.half_progress >= committed(golden, HALF_TOPIC)
    assert pending.half_progress == min(waiting, default=pending.next_half)
    assert pending.op_progress >= committed(golden, OP_TOPIC)
    # Whoever begins there knows the same.
    again = PendingHalves(next_half=pending.half_progress, next_op=pending.op_progress)
    for record in records_of(golden, HALF_TOPIC):
        if record.queue_offset >= pending.half_progress:
            again.read_half(half_of(record))
    for record in records_of(golden, OP_TOPIC):
        if record.queue_offset >= pending.op_progress:
            again.read_op(record.queue_offset, *op_of(record))
    assert list(again) == list(pending)


def test_apaches_commits_are_known_as_such(golden: GoldenStore) -> None:
    positions = {half.unique_key: half for half in records_of(golden, HALF_TOPIC)}
    found = {
        record.unique_key
        for record in records_of(golden, TOPIC)
        if (half := positions.get(record.unique_key)) is not None
        and is_commit_of(record, half.physical_offset)
    }
    assert found == ids(golden)["commit"]


# ------------------------------------------------------------------------------ a broker


async def test_a_broker_ends_what_apaches_left_open_and_leaves_it_the_rest(tmp_path: Path) -> None:
    golden = GoldenStore("clean-small", tmp_path)
    expected = ids(golden)
    first, second, third = sorted(expected["pending"])
    config = StoreConfig(
        segment_bytes=golden.segment_bytes,
        consume_queue_entries_per_file=consume_queue_entries(
            int(golden.config["mappedFileSizeConsumeQueue"])
        ),
        index_slots_max=int(golden.config["maxHashSlotNum"]),
        index_entries_max=int(golden.config["maxIndexNum"]),
        disk_free_bytes_min=0,
        retention=RetentionConfig(enabled=False),
    )
    async with running_broker(golden.root, store=config) as broker:
        client = V2(broker.channel)
        assert (await end(client, first, v2.COMMIT, TOPIC)).message == "OK"
        assert (await end(client, second, v2.ROLLBACK, TOPIC)).message == "OK"
        # Apache's brokers do not tell how a transaction ended, only that it has.
        for each in expected["commit"] | expected["rollback"]:
            status = await end(client, each, v2.COMMIT, TOPIC)
            assert status.message == "the transaction had ended before"
        await broker.stop()
    assert not folder_problems(golden.root, golden.sizes, closed=True)
    assert not apache_problems(golden.root, golden.sizes)

    # What Apache's broker would read: from the offsets of its group on, without the ops' halves.
    table: Any = parse_object((golden.root / "config" / "consumerOffset.json").read_bytes())
    halves, ops = (
        table["offsetTable"][f"{topic}@{TRANSACTIONS_GROUP}"]["0"]
        for topic in (HALF_TOPIC, OP_TOPIC)
    )
    done = {
        offset
        for record in records_of(golden, OP_TOPIC)
        if record.queue_offset >= ops
        for offset in op_of(record)[0]
    }
    waiting = {
        half.unique_key
        for half in records_of(golden, HALF_TOPIC)
        if half.queue_offset >= halves and half.queue_offset not in done
    }
    assert waiting == {third}
    messages = Counter(record.unique_key for record in records_of(golden, TOPIC))
    assert [messages[each] for each in (first, second, third)] == [1, 0, 0]
    assert [messages[each] for each in expected["commit"]] == [1] * len(expected["commit"])
