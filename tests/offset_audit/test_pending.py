"""What waits in the system topics of an Apache store: exactly what its producer left waiting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aerobee.store.format.json_config import parse_object
from aerobee.store.format.timer_checkpoint import TimerCheckpoint
from tests.golden_stores.conftest import GoldenStore
from tests.offset_audit.store_rows import store_rows

Row = dict[str, Any]
KINDS = {"HALF": "transaction-pending", "DELAY": "delay-pending", "TIMER": "timer-pending"}


def sends(golden: GoldenStore, kind: str) -> list[dict[str, Any]]:
    return [send for send in golden.manifest["specialSends"] if send["kind"] == kind]


@pytest.fixture(params=["clean-small", "retained", "ipv6-v2"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenStore:
    return GoldenStore(request.param, tmp_path)


@pytest.fixture
def clean(tmp_path: Path) -> GoldenStore:
    return GoldenStore("clean-small", tmp_path)


def unresolved(root: Path, kind: str) -> list[Row]:
    return [
        row for row in store_rows("pending", root) if row["kind"] == kind and not row["resolved"]
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_what_the_producer_left_waiting_waits(golden: GoldenStore, kind: str) -> None:
    expected = {send["uniqKey"] for send in sends(golden, KINDS[kind])}
    found = unresolved(golden.root, kind)
    assert {row["unique_key"] for row in found} == expected
    assert len(found) == len(expected), "each once"


def test_rows_say_where_the_message_lies_and_when_it_is_due(golden: GoldenStore) -> None:
    for kind in ("DELAY", "TIMER"):
        places = {send["uniqKey"]: send["physicalOffset"] for send in sends(golden, KINDS[kind])}
        for row in unresolved(golden.root, kind):
            assert row["position"] == places[row["unique_key"]]
            assert row["due_ms"] > golden.manifest["snapshotTime"], "it was not due yet"
            messages = golden.manifest["topics"][row["topic"]][str(row["queue_id"])]["messages"]
            listed = {message["queueOffset"]: message for message in messages}
            message = listed[row["queue_offset"]]
            assert message["physicalOffset"] == row["position"]
            assert message["storeTimestamp"] == row["store_ms"]


def test_a_recalled_message_is_resolved(golden: GoldenStore) -> None:
    recalled = {send["uniqKey"] for send in sends(golden, "timer-recalled")}
    resolved = {
        row["unique_key"]
        for row in store_rows("pending", golden.root)
        if row["kind"] == "TIMER" and row["resolved"]
    }
    assert resolved == recalled


def test_half_messages_that_were_answered_are_resolved(clean: GoldenStore) -> None:
    offsets = Path(clean.root, "config", "consumerOffset.json")
    table = parse_object(offsets.read_bytes())
    names = table["offsetTable"]
    assert isinstance(names, dict)
    # As if the broker had never noted how far it was: all half messages are looked at.
    table["offsetTable"] = {
        name: value for name, value in names.items() if not str(name).endswith("CID_RMQ_SYS_TRANS")
    }
    offsets.write_text(json.dumps(table))
    halves = [row for row in store_rows("pending", clean.root) if row["kind"] == "HALF"]
    answered = {
        send["uniqKey"]
        for kind in ("transaction-commit", "transaction-rollback")
        for send in sends(clean, kind)
    }
    assert {row["unique_key"] for row in halves if row["resolved"]} >= answered
    assert {row["unique_key"] for row in halves if not row["resolved"]} == {
        send["uniqKey"] for send in sends(clean, "transaction-pending")
    }


def test_without_saved_progress_all_delayed_messages_wait(clean: GoldenStore) -> None:
    for path in Path(clean.root, "config").glob("delayOffset.json*"):
        path.unlink()
    found = unresolved(clean.root, "DELAY")
    topics = clean.manifest["topics"]["SCHEDULE_TOPIC_XXXX"]
    assert len(found) == sum(queue["maxOffset"] for queue in topics.values())


def test_what_the_timer_has_not_taken_in_yet_waits_too(clean: GoldenStore) -> None:
    before = unresolved(clean.root, "TIMER")
    for path in Path(clean.root, "timerlog").iterdir():
        path.unlink()
    check = Path(clean.root, "config", "timercheck")
    delivered = len(sends(clean, "timer-delivered"))
    check.write_bytes(TimerCheckpoint(last_queue_offset=0).encode())
    found = unresolved(clean.root, "TIMER")
    keys = {row["unique_key"] for row in found}
    assert {row["unique_key"] for row in before} <= keys
    assert len(keys) == len(before) + delivered
