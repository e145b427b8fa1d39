"""The tables that a store itself keeps: queues, commits, topics, epochs, segments, its broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from aerobee.broker.replication.state_file import ReplicaState
from aerobee.domain.names import KEPT_FROM_GROUP
from aerobee.offset_audit.sources.messages.options import parse_options
from aerobee.offset_audit.sources.messages.place import Bounds
from aerobee.offset_audit.sources.messages.store_place import StorePlace
from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.config_files import QUEUES_MAX
from aerobee.offset_audit.sources.store.folders import Names, Origin, StoreUnreadable, find_stores
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.store.format.epoch_file import encode_epochs
from tests.golden_stores.conftest import NAMES, GoldenStore
from tests.offset_audit.store_rows import store_rows
from tests.support.stores import append, flush, open_store


def test_offsets_that_no_queue_can_have_are_a_damaged_table_and_no_rows(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, "T", 0, b"body")
    store.close()
    table = tmp_path / "config" / "consumerOffset.json"
    table.parent.mkdir(exist_ok=True)
    sound = {"0": 5, "1": (1 << 63) - 1}
    wrong = [{"2": 1 << 63}, {"3": 10**30}, {str(3 * 10**9): 1}, {"4": -1}, {"\u00b2": 1}]
    for one in ({}, *wrong):
        table.write_text(json.dumps({"offsetTable": {"T@g": {**sound, **one}}}))
        rows = store_rows("commits", tmp_path)
        assert {str(row["queue_id"]): row["offset"] for row in rows} == sound
        faults = [row for row in store_rows("faults", tmp_path) if "Offset" in row["file"]]
        assert [row["kind"] for row in faults] == (["BAD_CONFIG"] if one else []), one


@pytest.mark.parametrize("name", NAMES)
def test_queues_reach_from_where_to_where_apache_says(name: str, tmp_path: Path) -> None:
    golden = GoldenStore(name, tmp_path)
    rows = store_rows("queues", golden.root)
    found = {(row["topic"], row["queue_id"]): row for row in rows}
    assert len(found) == len(rows)
    for topic, by_id in golden.topics.items():
        for queue_id, queue in by_id.items():
            row = found.pop((topic, int(queue_id)))
            assert (row["min_offset"], row["max_offset"]) == (
                queue["minOffset"],
                queue["maxOffset"],
            ), (topic, queue_id)
            last = queue["messages"][-1]
            assert last["queueOffset"] == queue["maxOffset"] - 1
            assert row["last_store_ms"] == last["storeTimestamp"]
    for row in found.values():
        assert row["min_offset"] == row["max_offset"], "a queue without messages"
        assert row["last_store_ms"] is None


@pytest.mark.parametrize("name", NAMES)
def test_commits_are_apache_s_with_the_time_of_the_first_unread_message(
    name: str, tmp_path: Path
) -> None:
    golden = GoldenStore(name, tmp_path)
    rows = store_rows("commits", golden.root)
    offsets: dict[str, dict[str, int]] = {}
    unread = 0
    for row in rows:
        key = f"{row['topic']}@{row['group']}"
        offsets.setdefault(key, {})[str(row["queue_id"])] = row["offset"]
        queue = golden.topics.get(row["topic"], {}).get(str(row["queue_id"]))
        messages = [] if queue is None else queue["messages"]
        first = next((m for m in messages if m["queueOffset"] >= row["offset"]), None)
        if queue is None or row["offset"] >= queue["maxOffset"]:
            assert row["first_unread_ms"] is None
        elif first is not None and golden.manifest["listedEvery"] == 1:
            unread += 1
            assert row["first_unread_ms"] == first["storeTimestamp"]
        assert row["committed_at_ms"] is row["is_reset"] is row["matching_unread"] is None
    assert offsets == golden.manifest["consumerOffsets"]
    assert unread or name in ("crashed", "crashed-torn", "ipv6-v2")


@pytest.mark.parametrize("name", NAMES)
def test_broker_topics_and_segments_are_those_of_the_manifest(name: str, tmp_path: Path) -> None:
    golden = GoldenStore(name, tmp_path)
    log = golden.manifest["commitLog"]
    (broker,) = store_rows("brokers", golden.root)
    assert (broker["role"], broker["answered"]) == ("STORE", True)
    assert (broker["log_min_offset"], broker["appended_end"]) == (
        log["minOffset"],
        log["maxOffset"],
    )
    assert broker["epoch"] is broker["confirmed_end"] is broker["flushed_end"] is None
    topics = {row["topic"]: row for row in store_rows("topics", golden.root)}
    assert {
        topic: [row["read_queue_count"], row["write_queue_count"], row["perm"]]
        for topic, row in topics.items()
    } == {
        topic: [bean["readQueueNums"], bean["writeQueueNums"], bean["perm"]]
        for topic, bean in golden.manifest["topicConfigs"].items()
    }
    segments = store_rows("segments", golden.root)
    assert [(row["position"], row["size"]) for row in segments] == [
        (int(segment["name"]), segment["wrotePosition"])
        for segment in log["segments"]
        if segment["wrotePosition"]
    ]
    assert all(row["first_store_ms"] for row in segments)


def test_our_own_files_say_whose_store_it_is_and_in_which_epochs_it_was_written(
    tmp_path: Path,
) -> None:
    root = tmp_path / "folder"
    store = open_store(root)
    append(store, "T", 0, b"body")
    store.close()
    state = ReplicaState(
        broker_id=2,
        instance="i1",
        incarnation="n1",
        epoch=7,
        cluster="c1",
        broker_name="broker-x",
    )
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "replicaState.json").write_bytes(state.encode())
    (root / "epochFileCheckpoint").write_bytes(encode_epochs([(3, 0), (7, 90)]))
    (found,) = find_stores([str(root)])
    assert found.origin == Origin("c1", "broker-x", 2)
    (found,) = find_stores([f"{root}=other:1"], Names(cluster="c2"))
    assert found.origin == Origin("c2", "other", 1)
    (broker,) = store_rows("brokers", root)
    assert (broker["epoch"], broker["instance"], broker["incarnation"]) == (7, "i1", "n1")
    epochs = store_rows("epochs", root)
    assert [(row["epoch"], row["start_offset"]) for row in epochs] == [(3, 0), (7, 90)]
    assert {row["broker_name"] for row in epochs} == {"broker-x"}


def test_apache_s_identity_file_says_whose_store_it_is(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "brokerIdentity").write_text("ClusterA#broker-a#3")
    (found,) = find_stores([str(tmp_path)])
    assert found.origin == Origin("ClusterA", "broker-a", 3)


def test_our_commits_say_when_by_whom_and_how(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(
        json.dumps(
            {
                "offsetTable": {"T@G": {"0": 5, "1": 6, "2": 7}},
                "aerobeeJournal": {
                    "clients": ["", "10.0.0.7@1"],
                    "epochs": {"T@G": {"0": 12, "1": 13}},
                    "changes": {"T@G": {"0": [1000, 1, 0], "1": [2000, 0, 2]}},
                },
            }
        )
    )
    rows = store_rows("commits", tmp_path)
    said = ("offset", "lease_epoch", "committed_at_ms", "client_id", "is_reset")
    assert [tuple(row[name] for name in said) for row in rows] == [
        (5, 12, 1000, "10.0.0.7@1", False),
        (6, None, 2000, None, True),
        (7, None, None, None, None),
    ]
    none = store_rows("commits", tmp_path, conditions=Conditions().with_texts("topic", ["other"]))
    assert not none


def test_a_queue_without_files_is_empty_only_if_the_log_has_its_first_byte(tmp_path: Path) -> None:
    golden = GoldenStore("retained", tmp_path)
    document = json.loads((golden.root / "config" / "topics.json").read_bytes())
    document["topicConfigTable"]["Fresh"] = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    (golden.root / "config" / "topics.json").write_text(json.dumps(document))
    fresh = Conditions().with_texts("topic", ["Fresh"])
    (row,) = store_rows("queues", golden.root, conditions=fresh)
    assert row["min_offset"] is row["max_offset"] is None


def test_the_bounds_of_a_store_in_use_are_those_that_its_broker_knows(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root)
    for number in range(137):
        append(store, f"T{number % 3}", number % 2, b"body" * (number % 9))
    flush(store)
    rows = {(row["topic"], row["queue_id"]): row for row in store_rows("queues", root)}
    for name in store.queues.names():
        bounds = store.queues.bounds(*name)
        row = rows[name]
        assert (row["min_offset"], row["max_offset"]) == (bounds.min_offset, bounds.max_offset)
    (broker,) = store_rows("brokers", root)
    assert broker["appended_end"] == store.appended_end
    store.close()


def test_a_queue_begins_where_its_topic_keeps_messages_although_the_log_has_more(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    store = open_store(root)
    for _ in range(5):
        append(store, "T", 0, b"body")
    store.close()
    table = ConsumerOffsetTable()
    table.commit(KEPT_FROM_GROUP, "T", 0, 3)
    table.commit("g", "T", 0, 1)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_bytes(table.snapshot_bytes(0))
    (row,) = store_rows("queues", root)
    assert (row["min_offset"], row["max_offset"]) == (3, 5)
    options = {"path": str(root), "subscribePattern": ".*"}
    place = StorePlace(parse_options(options, is_streaming=False))
    (bounds,) = place.bounds(1_000).values()
    assert bounds == Bounds(3, 5)


def test_a_queue_whose_files_are_lost_is_as_long_as_our_broker_knew(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root)
    for number in range(35):
        append(store, "T", number % 2, b"body")
    store.close()
    whole = store_rows("queues", root)
    assert [(row["min_offset"], row["max_offset"]) for row in whole] == [(0, 18), (0, 17)]
    (root / "consumequeue" / "T" / "0" / f"{200:020d}").unlink()
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    cut = store_rows("queues", root)
    assert [(row["min_offset"], row["max_offset"]) for row in cut] == [(0, 18), (0, 17)]
    (root / "consumequeue.ends").unlink()
    # With nothing but the files: two of them gave ten entries and none.
    cut = store_rows("queues", root)
    assert [(row["queue_id"], row["max_offset"]) for row in cut] == [(0, 10)]


def test_a_store_says_until_when_its_queues_and_index_are_whole(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = ManualClock()
    store = open_store(root, clock=clock)
    append(store, "T", 0, b"body")
    (broker,) = store_rows("brokers", root)
    assert broker["entries_until_ms"] == broker["keys_until_ms"] == 0, "no checkpoint yet"
    store.close()
    (broker,) = store_rows("brokers", root)
    assert broker["entries_until_ms"] == broker["keys_until_ms"] == clock.now_ms()


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="there is no store at"):
        find_stores([str(tmp_path / "nowhere")])
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(StoreUnreadable, match="no column 'colour'"):
        store_rows("records", tmp_path, columns="colour")
    with pytest.raises(InvalidArgument, match="partitionBytes is 'much'"):
        store_rows("records", tmp_path, partitionBytes="much")


@pytest.mark.parametrize("count", [QUEUES_MAX + 1, 1 << 31, 10**30, -1, "8", True])
def test_as_many_queues_as_no_topic_has_are_a_damaged_table_and_no_rows(
    count: object, tmp_path: Path
) -> None:
    store = open_store(tmp_path)
    append(store, "T", 0, b"body")
    store.close()
    table = tmp_path / "config" / "topics.json"
    table.parent.mkdir(exist_ok=True)
    beans = {"T": {"readQueueNums": 1, "writeQueueNums": 1}, "U": {"readQueueNums": count}}
    table.write_text(json.dumps({"topicConfigTable": beans}))
    counts = {row["topic"]: row["read_queue_count"] for row in store_rows("topics", tmp_path)}
    assert counts == {"T": 1, "U": None}
    assert len(store_rows("queues", tmp_path)) == 1 + 16
    faults = [row for row in store_rows("faults", tmp_path) if "topics" in row["file"]]
    assert [row["kind"] for row in faults] == ["BAD_CONFIG"]
