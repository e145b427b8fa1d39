"""Retention keeps the half messages that Apache's broker left waiting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import CLEAN_STORE
from aerobee.store.format.json_config import parse_object
from aerobee.v1 import broker_pb2
from tests.golden_stores.conftest import GoldenStore
from tests.golden_stores.test_takeover_by_broker import Takeover
from tests.support.plain_store import PlainStore
from tests.support.retention import write_times

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
CHECKS = "CID_RMQ_SYS_TRANS"
LONG_AGO_MS = 1_700_000_000_000


def oldest_half(golden: GoldenStore) -> int | None:
    """Of the half messages without an answer; one that was asked for was stored once more."""
    pending = [
        send for send in golden.manifest["specialSends"] if send["kind"] == "transaction-pending"
    ]
    keys = {send["uniqKey"] for send in pending}
    last = {
        record.properties["UNIQ_KEY"]: record.physical_offset
        for record in PlainStore(golden.root, golden.segment_bytes).records
        if record.topic == HALF and record.properties.get("UNIQ_KEY") in keys
    }
    assert set(last) == keys
    return min(last.values(), default=None)


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
        assert "of topic PaymentNotices is open" in answer.kept_because
        assert f"keeps the log from offset {first} on" in answer.kept_because
        assert "aerobee cluster clean --unread" in answer.kept_because
        answer = await channels.call(
            running.broker.address, CLEAN_STORE, broker_pb2.CleanStoreRequest(unread=True)
        )
        assert answer.log_min_offset > first
        assert ("open transactions", HALF) in {
            (one.group, one.topic) for one in answer.removed_unread
        }
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
