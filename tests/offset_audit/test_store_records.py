"""Kind `records`: what Apache's brokers and ours wrote is read as their own readers see it."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from aerobee.offset_audit.sources.store.conditions import Conditions, Numbers
from tests.golden_stores.conftest import NAMES, GoldenStore
from tests.offset_audit.store_rows import Row, store_rows
from tests.support.plain_store import Json, PlainRecord, PlainStore
from tests.support.stores import batch_with, open_store


def of_manifest(message: Json) -> Row:
    """A manifest's message in the names of the table."""
    return {
        "topic": message["topic"],
        "queue_id": message["queueId"],
        "queue_offset": message["queueOffset"],
        "physical_offset": message["physicalOffset"],
        "size": message["size"],
        "version": message["version"],
        "sys_flag": message["sysFlag"],
        "flag": message["flag"],
        "born_ms": message["bornTimestamp"],
        "born_host": message["bornHost"],
        "store_ms": message["storeTimestamp"],
        "store_host": message["storeHost"],
        "reconsume_times": message["reconsumeTimes"],
        "tags_code": message["tagsCode"],
        "tags": message["tags"],
        "keys": [key for key in (message["keys"] or "").split(" ") if key],
        "unique_key": message["uniqKey"],
        "properties": message["properties"],
        "body_size": message["bodyLength"],
        "body_crc": message["bodyCrc"],
        "body_sound": True,
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_record_of_apache_is_read_as_apache_reads_it(name: str, tmp_path: Path) -> None:
    golden = GoldenStore(name, tmp_path)
    rows = store_rows("records", golden.root, bodies="true", checkBodies="true")
    plain = PlainStore(golden.root, golden.segment_bytes)
    assert len(rows) == len(plain.records) == golden.manifest["commitLog"]["records"]
    listed = {
        message["physicalOffset"]: message
        for queues in golden.manifest["topics"].values()
        for queue in queues.values()
        for message in queue["messages"]
    }
    found = 0
    for row, record in zip(rows, plain.records, strict=True):
        message = record.as_message()
        expected = of_manifest(listed.pop(record.physical_offset, message))
        found += record.in_queue
        row["properties"] = dict(row["properties"])
        assert {column: row[column] for column in expected} == expected
        assert hashlib.sha256(row["body"]).hexdigest() == message["bodySha256"]
        assert row["prepared_offset"] == _prepared_offset(record)
        assert (row["cluster"], row["broker_name"], row["broker_id"]) == ("", name, 0)
    assert not listed, "the manifest knows of more"
    assert found


def _prepared_offset(record: PlainRecord) -> int | None:
    return record.prepared_transaction_offset if record.sys_flag & 0xC else None


def test_compressed_bodies_are_given_as_they_were_sent(tmp_path: Path) -> None:
    golden = GoldenStore("clean-small", tmp_path)
    rows = store_rows(
        "records", golden.root, bodies="true", decompress="true", columns="sys_flag,body"
    )
    plain = PlainStore(golden.root, golden.segment_bytes).records
    compressed = 0
    for row, record in zip(rows, plain, strict=True):
        sent = record.plain_body
        compressed += sent is not None
        assert row["body"] == (record.body if sent is None else sent)
    assert compressed > 3


def test_a_body_that_cannot_be_decompressed_is_null_and_unsound_only_if_it_changed(
    tmp_path: Path,
) -> None:
    with_store = open_store(tmp_path / "store")
    with_store.append(batch_with("T", [b""], [b"no zlib stream"], sys_flag=1), queue_id=0)
    with_store.append(batch_with("T", [b""], [b"plain"]), queue_id=0)
    with_store.close()
    rows = store_rows("records", tmp_path / "store", columns="body,body_sound", decompress="true")
    assert rows == [
        {"body": None, "body_sound": True},
        {"body": b"plain", "body_sound": True},
    ]
    segment = next((tmp_path / "store" / "commitlog").iterdir())
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"plain", b"plaid"))
    rows = store_rows("records", tmp_path / "store", columns="body,body_sound")
    assert rows[1] == {"body": b"plaid", "body_sound": False}


def test_our_broker_s_records_say_who_produced_them_and_whose_they_are(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root)
    store.append(batch_with("Orders", [b"UNIQ_KEY\x01u1\x02TAGS\x01a\x02"] * 5), queue_id=3)
    store.close()
    rows = store_rows("records", [f"{root}=broker-x:2"], cluster="c1")
    assert [row["queue_offset"] for row in rows] == list(range(5))
    assert {(row["cluster"], row["broker_name"], row["broker_id"]) for row in rows} == {
        ("c1", "broker-x", 2)
    }
    assert {(row["topic"], row["queue_id"], row["tags"]) for row in rows} == {("Orders", 3, "a")}
    assert {row["producer_id"] for row in rows} == {None}


def test_only_the_asked_columns_are_made_in_the_asked_order(tmp_path: Path) -> None:
    golden = GoldenStore("ipv6-v2", tmp_path)
    rows = store_rows("records", golden.root, columns="size, topic")
    assert list(rows[0]) == ["size", "topic"]
    assert len(rows) == golden.manifest["commitLog"]["records"]


def test_conditions_leave_out_exactly_the_other_rows(tmp_path: Path) -> None:
    golden = GoldenStore("clean-small", tmp_path)
    whole = store_rows("records", golden.root)
    middle = whole[len(whole) // 2]
    topics = Counter(row["topic"] for row in whole)
    topic = topics.most_common(1)[0][0]
    position, stored_ms = middle["physical_offset"], middle["store_ms"]
    conditions = (
        Conditions()
        .with_texts("topic", [topic, "no such topic"])
        .with_numbers("physical_offset", Numbers(low=position))
        .with_numbers("store_ms", Numbers(high=stored_ms + 500))
        .with_numbers("queue_id", Numbers(among=frozenset({0, 2})))
    )
    rows = store_rows("records", golden.root, conditions=conditions, partitionBytes="70000")
    assert rows == [
        row
        for row in whole
        if row["topic"] == topic
        and row["physical_offset"] >= position
        and row["store_ms"] <= stored_ms + 500
        and row["queue_id"] in (0, 2)
    ]
    assert rows


def test_many_stores_are_found_by_pattern_and_below_a_folder(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        store = open_store(tmp_path / "stores" / name)
        store.append(batch_with("T", [b""] * 3), queue_id=0)
        store.close()
    (tmp_path / "stores" / "something-else").mkdir()
    for path in (tmp_path / "stores", tmp_path / "stores" / "broker-*"):
        rows = store_rows("records", path)
        assert Counter(row["broker_name"] for row in rows) == {"broker-a": 3, "broker-b": 3}
