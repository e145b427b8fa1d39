"""Transactions of a folder that Apache's broker has left: committed, rolled back and pending as its
manifest says, wherever reading begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.broker.transactions.pending import PendingHalves, TransactionName
from aerobee.store_format.delayed_records import HALF_TOPIC
from aerobee.store_format.record import Record
from aerobee.store_format.transaction_records import (
    OP_TOPIC,
    TRANSACTIONS_GROUP,
    half_of,
    is_commit_of,
    op_of,
)
from tests.golden_stores.conftest import GoldenStore
from tests.support.plain_store import PlainStore

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
