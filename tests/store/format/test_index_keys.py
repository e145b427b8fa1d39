"""Hashing the keys of many records at once: it says what doing it one by one says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.index_keys import (
    hash_keys,
    record_keys,
    topic_hash,
)
from aerobee.store.format.index_unhashed import LooseRecord, hash_loose_records
from aerobee.store.format.java_hash import index_key_hash
from aerobee.store.format.properties import decode_properties
from aerobee.store.format.record import HostAddress, encode_record
from aerobee.store.format.tags import TagsCodes
from tests.support.property_runs import examples

HOST = HostAddress.parse("127.0.0.1:50000")
TOPIC = "TopicTest"

# Pieces that look like properties without being any, and those that are.
PIECES = st.sampled_from(
    [
        *(
            b"KEYS",
            b"UNIQ_KEY",
            b"TAGS",
            b"KEY",
            b"XKEYS",
            b"\x01",
            b"\x02",
            b" ",
            b"a",
            b"b",
            b"\0",
        ),
        *(b"\xe8\xae\xa2", b"\xf0\x9f\x9a\x80", b"\xff", b"k" * 40, b"k" * 70, b"k" * 600),
        *(b"\x01v\x02", b"KEYS\x01a b\x02", b"UNIQ_KEY\x01C0A8000B30393764D8BE2A139A000007\x02"),
    ]
)
PROPERTIES = st.lists(PIECES, max_size=12).map(b"".join)


def one_by_one(records: list[bytes], topics: list[str]) -> list[tuple[int, int]]:
    return [
        (index_key_hash(f"{topic}#{key}"), index)
        for index, (properties, topic) in enumerate(zip(records, topics, strict=True))
        for key in record_keys(properties)
    ]


def at_once(records: list[bytes], topics: list[str], between: bytes = b"") -> list[tuple[int, int]]:
    ends = np.cumsum([len(between) + len(properties) for properties in records])
    starts = ends - [len(properties) for properties in records]
    found = hash_keys(
        b"".join([between + properties for properties in records]),
        starts,
        ends,
        np.array([topic_hash(topic) for topic in topics], np.uint32),
    )
    return list(zip(found.hashes.tolist(), found.records.tolist(), strict=True))


@given(st.lists(PROPERTIES, min_size=1, max_size=8), st.sampled_from([b"", b"\x02KEYS\x01x\x02"]))
@example([b"KEYS\x01a", b"KEYS\x01b\x02"], b"x" * 200)
@example([b"\x02KEYS\x01a b  c ", b"", b"KEYS\x01 \x02"], b"\x02")
@settings(max_examples=examples(200))
def test_all_at_once_is_as_one_by_one(records: list[bytes], between: bytes) -> None:
    topics = [TOPIC, "订单", "%RETRY%g"] * len(records)
    topics = topics[: len(records)]
    assert at_once(records, topics, between) == one_by_one(records, topics)


@given(st.lists(PROPERTIES, min_size=1, max_size=8))
def test_the_keys_of_a_record_are_those_of_its_decoded_properties(records: list[bytes]) -> None:
    for properties in records:
        decoded = decode_properties(properties)
        unique = [decoded["UNIQ_KEY"]] if "UNIQ_KEY" in decoded else []
        several = [key for key in decoded.get("KEYS", "").split(" ") if key]
        assert record_keys(properties) == unique + several


ALIKE = st.tuples(
    st.sampled_from([0, 1, 24, 40]),
    st.text("ab09", min_size=4, max_size=4),
    st.sampled_from([b"T", b"Ta", b"\x00", "订".encode()]),
    st.sampled_from([b"k", b"order-7", b"a b", b"a  b", b" a", b"a ", b"\xe8\xae\xa2", b"k" * 300]),
)


@given(st.lists(ALIKE, min_size=1, max_size=6), st.data())
@settings(max_examples=examples(150))
def test_records_that_look_alike_but_for_a_few_hash_as_one_by_one(
    groups: list[tuple[int, str, bytes, bytes]], data: st.DataObject
) -> None:
    records = [
        b"UNIQ_KEY\x01%s%02d\x02TAGS\x01%s\x02KEYS\x01%s\x02" % (unique.encode(), n, tag, keys)
        for count, unique, tag, keys in groups
        for n in range(count)
    ]
    if not records:
        return
    # Some bytes of some records differ: spaces, separators and letters, where a column is fixed.
    for _ in range(data.draw(st.integers(0, 3))):
        index = data.draw(st.integers(0, len(records) - 1))
        at = data.draw(st.integers(0, len(records[index]) - 1))
        other = data.draw(st.sampled_from([b"\x01", b"\x02", b" ", b"x", b"\xff", b"\x00"]))
        records[index] = records[index][:at] + other + records[index][at + 1 :]
    topics = [TOPIC] * len(records)
    assert at_once(records, topics, b"\x02") == one_by_one(records, topics)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 129, 511, 512, 513, 5000])
def test_keys_of_any_length_hash_alike(length: int) -> None:
    keys = ["k" * length, "x", "y" * (length // 2 + 1)]
    records = [f"KEYS\x01{' '.join(keys)}\x02".encode(), f"UNIQ_KEY\x01{'z' * length}\x02".encode()]
    assert at_once(records, [TOPIC] * 2) == one_by_one(records, [TOPIC] * 2)


def test_the_last_of_a_repeated_property_counts_unless_it_is_empty() -> None:
    batch = b"UNIQ_KEY\x01own\x02KEYS\x01a b\x02UNIQ_KEY\x01of-batch\x02"
    emptied = b"KEYS\x01a\x02KEYS\x01\x02"
    assert record_keys(batch) == ["of-batch", "a", "b"]
    assert record_keys(emptied) == ["a"]
    assert at_once([batch, emptied], [TOPIC] * 2) == one_by_one([batch, emptied], [TOPIC] * 2)


def test_the_hash_without_a_positive_counterpart_becomes_zero() -> None:
    # "polygenelubricants" hashes to -2^31; as topic, separator and key it is cut differently.
    key = "polygenelubricants"
    found = hash_keys(b"KEYS\x01" + key.encode(), np.array([0]), np.array([23]), 0)
    assert found.hashes.tolist() == [0]


def batch_of(records: list[tuple[bytes, int]], *, array_records_min: int) -> CheckedBatch:
    encoded = [
        encode_record(
            topic=TOPIC.encode(),
            body=b"body" * (index % 5),
            properties=properties,
            sys_flag=sys_flag,
            born_timestamp_ms=1,
            born_host=HOST,
        )
        for index, (properties, sys_flag) in enumerate(records)
    ]
    return check_batch(
        b"".join(encoded),
        [len(record) for record in encoded],
        topic=TOPIC,
        limits=BatchLimits(),
        store_host_ipv6=False,
        tags=TagsCodes(),
        array_records_min=array_records_min,
    )


def columns(keys: IndexKeys) -> list[tuple[int, int, int]]:
    return list(
        zip(
            keys.hashes.tolist(),
            keys.physical_offsets.tolist(),
            keys.store_timestamps_ms.tolist(),
            strict=True,
        )
    )


@given(
    st.lists(st.tuples(PROPERTIES, st.sampled_from([0x0, 0x4, 0x8, 0xC])), min_size=1, max_size=10)
)
def test_a_batch_gives_the_same_keys_whichever_way_it_was_checked(
    records: list[tuple[bytes, int]],
) -> None:
    few = batch_of(records, array_records_min=1000)
    many = batch_of(records, array_records_min=1)
    loose = few.index_keys(5000, 77)
    hashed = many.index_keys(5000, 77)
    assert isinstance(loose, list)
    assert isinstance(hashed, IndexKeys)
    starts = few.starts.tolist()
    expected = [
        (index_key_hash(f"{TOPIC}#{key}"), 5000 + start, 77)
        for (properties, sys_flag), start in zip(records, starts, strict=True)
        if sys_flag != 0xC
        for key in record_keys(properties)
    ]
    assert columns(hashed) == expected
    assert columns(hash_loose_records(loose)) == expected if loose else expected == []


def test_loose_records_keep_their_topics_places_and_times() -> None:
    loose = [
        LooseRecord("A", b"KEYS\x01k", 10, 1),
        LooseRecord("B", b"", 20, 2),
        LooseRecord("B", b"UNIQ_KEY\x01u\x02KEYS\x01k", 30, 3),
    ]
    assert columns(hash_loose_records(loose)) == [
        (index_key_hash("A#k"), 10, 1),
        (index_key_hash("B#u"), 30, 3),
        (index_key_hash("B#k"), 30, 3),
    ]
