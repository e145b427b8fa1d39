"""Incoming batches: what is accepted, what is refused and why, and what the stamp writes.

The check of single records is the oracle of the check by arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.batch import (
    BatchFault,
    BatchIllegal,
    BatchLimits,
    CheckedBatch,
    check_batch,
)
from aerobee.store.format.consume_queue_entry import pack_entry
from aerobee.store.format.producer_number import PRODUCER_ID_END, SEQUENCE_END, ProducerRun
from aerobee.store.format.property_crc import property_crc_matches
from aerobee.store.format.record import HostAddress, Record, encode_record, iterate_records
from aerobee.store.format.tags import TagsCodes

ARRAYS, ONE_BY_ONE = 1, 1 << 30
BOTH_WAYS = pytest.mark.parametrize("array_records_min", [ARRAYS, ONE_BY_ONE])
TOPICS = ("TopicTest", "T", "主题", "%RETRY%" + "g" * 140, "SCHEDULE_TOPIC_XXXX")


def check(
    records: Sequence[bytes], *, topic: str = "TopicTest", way: int = ARRAYS, **changes: Any
) -> CheckedBatch:
    arguments: dict[str, Any] = {
        "limits": BatchLimits(),
        "store_host_ipv6": False,
        "tags": TagsCodes(),
        "sizes": [len(record) for record in records],
    }
    return check_batch(
        b"".join(records), topic=topic, array_records_min=way, **(arguments | changes)
    )


def fault(records: Sequence[bytes], **arguments: Any) -> tuple[BatchFault, int, str]:
    with pytest.raises(BatchIllegal) as caught:
        check(records, **arguments)
    return caught.value.kind, caught.value.index, str(caught.value)


@given(st.data())
def test_a_legal_batch_is_stamped_like_single_records_either_way(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes], data: st.DataObject
) -> None:
    topic = data.draw(st.sampled_from(TOPICS))
    is_ipv6 = data.draw(st.booleans())
    store_host = HostAddress(bytes(range(200, 216 if is_ipv6 else 204)), 10911)
    batch = [
        replace(message, topic=topic.encode(), store_host_ipv6=is_ipv6)
        for message in data.draw(st.lists(messages, min_size=1, max_size=12))
    ]
    if data.draw(st.booleans()):  # as one producer sends them
        batch = [replace(message, born_host=batch[0].born_host) for message in batch]
    stamp = {"queue_id": 5, "base_queue_offset": 1 << 33, "base_physical_offset": 1 << 40}
    sent_by = st.tuples(st.integers(0, PRODUCER_ID_END - 1), st.integers(0, SEQUENCE_END - 20))
    first = data.draw(st.integers(0, len(batch)))
    producers = data.draw(
        st.just(())
        | st.tuples(
            sent_by.map(lambda of: ProducerRun(*of, first)),
            sent_by.map(lambda of: ProducerRun(*of, len(batch) - first)),
        )
    )
    records = [reference(message) for message in batch]
    results = []
    for way in (ARRAYS, ONE_BY_ONE):
        checked = check(records, topic=topic, way=way, store_host_ipv6=is_ipv6)
        assert bytes(checked.buffer) == b"".join(records)
        checked.producers = producers
        checked.stamp(**stamp, store_timestamp_ms=1, store_host=store_host)
        checked.stamp(**stamp, store_timestamp_ms=1_700_000_000_000, store_host=store_host)
        results.append(checked)

    expected = []
    entries = []
    queue_offset = stamp["base_queue_offset"]
    physical_offset = stamp["base_physical_offset"]
    numbers = [
        (producer_id << 24) + first + index if producer_id else 0
        for producer_id, first, count in producers
        for index in range(count)
    ] or [0] * len(batch)
    for message, number in zip(batch, numbers, strict=True):
        is_queued = message.sys_flag & 0xC in (0, 8)
        if not message.sys_flag & 0xC:
            signed = number if number < 1 << 63 else number - (1 << 64)
            message = replace(message, prepared_transaction_offset=signed)
        record = reference(
            message,
            queue_id=5,
            queue_offset=queue_offset if is_queued else 0,
            physical_offset=physical_offset,
            store_timestamp=1_700_000_000_000,
            store_host=store_host,
        )
        expected.append(record)
        if is_queued:
            entries.append(pack_entry(physical_offset, len(record), tags_code_of(record)))
            queue_offset += 1
        physical_offset += len(record)
    for checked in results:
        assert bytes(checked.buffer) == b"".join(expected)
        assert checked.dispatch_entries(stamp["base_physical_offset"]) == b"".join(entries)
        assert checked.queued_count == len(entries)
        assert (checked.count, checked.size) == (len(batch), len(b"".join(expected)))
        assert checked.sizes.tolist() == [len(record) for record in expected]
        assert checked.starts.tolist() == (np.cumsum(checked.sizes) - checked.sizes).tolist()
        assert checked.sys_flags.tolist() == [message.whole_sys_flag for message in batch]
        assert checked.transaction_types.tolist() == [m.sys_flag & 0xC for m in batch]
        assert checked.tags_codes.tolist() == [tags_code_of(record) for record in expected]


def tags_code_of(record: bytes) -> int:
    view = Record(record)
    codes = TagsCodes()
    properties = view.properties_bytes
    if view.topic == "SCHEDULE_TOPIC_XXXX":
        return codes.scheduled_code_in(properties, 0, len(properties), view.store_timestamp_ms)
    return codes.code_of((view.tag or "").encode())


@given(st.data())
def test_a_damaged_batch_is_refused_alike_either_way(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes], data: st.DataObject
) -> None:
    topic = data.draw(st.sampled_from(TOPICS))
    batch = [
        replace(message, topic=topic.encode(), store_host_ipv6=False)
        for message in data.draw(st.lists(messages, min_size=1, max_size=12))
    ]
    if data.draw(st.booleans()):  # as one producer sends them
        batch = [replace(message, born_host=batch[0].born_host) for message in batch]
    records = [reference(message) for message in batch]
    sizes = [len(record) for record in records]
    damaged = bytearray(b"".join(records))
    for _ in range(data.draw(st.integers(1, 3))):
        record_start = data.draw(st.sampled_from([0, *np.cumsum(sizes).tolist()[:-1]]))
        # Mostly where lengths, magic and flags are.
        offset = data.draw(st.integers(0, 12) | st.integers(36, 39) | st.integers(84, 140))
        at = min(record_start + offset, len(damaged) - 1)
        damaged[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()) and len(sizes) > 1:
        moved = data.draw(st.integers(-95, 95))
        sizes[0] += moved
        sizes[1] -= moved
    limits = BatchLimits(body_bytes_max=data.draw(st.sampled_from([10, 100])))
    outcomes: list[tuple[object, ...]] = []
    for way in (ARRAYS, ONE_BY_ONE):
        try:
            checked = check([bytes(damaged)], topic=topic, way=way, sizes=sizes, limits=limits)
        except BatchIllegal as error:
            outcomes.append((error.kind, error.index, error.message))
        else:
            outcomes.append(tuple(map(tuple, (checked.starts, checked.sizes, checked.tags_codes))))
            for record in iterate_records(checked.buffer):
                record.check()
                assert record.topic == topic
    assert outcomes[0] == outcomes[1]


@BOTH_WAYS
def test_each_fault_is_named_with_the_first_record_that_has_it(
    array_records_min: int, message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    way = array_records_min
    good = reference(message_type())
    v6 = reference(message_type(store_host_ipv6=True))

    def put(at: int, value: bytes) -> bytes:
        return good[:at] + value + good[at + len(value) :]

    size = len(good)
    cases = {
        BatchFault.MAGIC: [put(4, b"\xcb\xd4\x31\x94")],
        BatchFault.BODY_CRC: [put(88, b"x"), put(8, b"\xff")],
        BatchFault.TOPIC: [put(93, b"x"), reference(message_type(topic=b"TopicTes"))],
        BatchFault.HOST: [v6, v6],
        BatchFault.LENGTHS: [
            put(0, (size + 1).to_bytes(4, "big")),
            put(84, b"\xff\xff\xff\xff"),
            put(84, b"\x7f\xff\xff\xff"),
            put(92, b"\xff"),
            put(102, b"\x00\x0b"),
            put(102, b"\xff\xff"),
            good[:90],
            small_with_ipv6_flags(reference, message_type),
        ],
    }
    for kind, records in cases.items():
        for bad in records:
            found = fault([good, good, bad, good, bad], way=way)
            assert found[:2] == (kind, 2), found
            assert found[2].startswith("record 2: ")


def small_with_ipv6_flags(reference: Callable[..., bytes], message_type: type[Any]) -> bytes:
    """A record with room for IPv4 hosts only that claims two IPv6 hosts."""
    raw = reference(message_type(topic=b"T", body=b"", properties=b""))
    return raw[:36] + b"\x00\x00\x00\x30" + raw[40:]


@BOTH_WAYS
def test_an_ipv6_broker_takes_records_with_a_wide_slot_only(
    array_records_min: int, message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    wide = reference(message_type(store_host_ipv6=True))
    narrow = reference(message_type())
    assert check([wide] * 2, way=array_records_min, store_host_ipv6=True).count == 2
    found = fault([wide, narrow], way=array_records_min, store_host_ipv6=True)
    assert found[:2] == (BatchFault.HOST, 1)


@BOTH_WAYS
def test_a_version_1_record_may_not_have_a_long_topic(
    array_records_min: int, message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    topic = "%RETRY%" + "g" * 140
    legal = reference(message_type(topic=topic.encode()))
    illegal = reference(message_type(topic=topic.encode()), version=1)
    assert check([legal, legal], topic=topic, way=array_records_min).count == 2
    found = fault([legal, illegal], topic=topic, way=array_records_min)
    assert found[:2] == (BatchFault.TOPIC, 1)


@BOTH_WAYS
def test_limits_are_kept_to_the_byte(
    array_records_min: int, message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    record = reference(message_type(body=b"b" * 100, properties=b"A\x01" + b"p" * 48))
    exact = {
        "body_bytes_max": 100,
        "record_bytes_max": len(record),
        "batch_bytes_max": 3 * len(record),
        "properties_bytes_max": 50,
        "topic_bytes_max": 9,
    }
    kinds = {
        "body_bytes_max": (BatchFault.BODY_TOO_LARGE, 0),
        "record_bytes_max": (BatchFault.RECORD_TOO_LARGE, 0),
        "batch_bytes_max": (BatchFault.BATCH_TOO_LARGE, -1),
        "properties_bytes_max": (BatchFault.PROPERTIES_TOO_LARGE, 0),
        "topic_bytes_max": (BatchFault.TOPIC, -1),
    }
    assert check([record] * 3, way=array_records_min, limits=BatchLimits(**exact)).count == 3
    alone = BatchLimits(**(exact | {"batch_bytes_max": len(record)}))
    assert check([record], way=array_records_min, limits=alone).count == 1
    for name, expected in kinds.items():
        limits = BatchLimits(**(exact | {name: exact[name] - 1}))
        assert fault([record] * 3, way=array_records_min, limits=limits)[:2] == expected


def test_a_single_record_above_the_batch_limit_is_called_too_large(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    limits = BatchLimits(batch_bytes_max=100)
    assert fault([reference(message_type())], limits=limits)[:2] == (BatchFault.RECORD_TOO_LARGE, 0)


def test_a_batch_must_have_records_and_sizes_that_divide_it(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    record = reference(message_type())
    size = len(record)
    assert fault([])[:2] == (BatchFault.EMPTY, -1)
    for sizes in (
        [size - 1],
        [size + 1],
        [size, 0],
        [2 * size, -size],
        [1 << 70, size - (1 << 70)],
    ):
        assert fault([record], sizes=sizes)[:2] == (BatchFault.SIZES, -1)
    assert fault([record], topic="")[:2] == (BatchFault.TOPIC, -1)
    assert fault([record], topic="\ud800")[0] is BatchFault.TOPIC


def test_every_truncation_of_a_batch_is_refused(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    records = [reference(message_type()), reference(message_type(store_host_ipv6=False, body=b""))]
    whole = b"".join(records)
    for cut in range(1, len(whole)):
        data = whole[:cut]
        sizes = [min(len(records[0]), cut), max(0, cut - len(records[0]))]
        for way in (ARRAYS, ONE_BY_ONE):
            if sizes[1]:
                kinds = {fault([data], sizes=sizes, way=way)[0]}
            elif cut == len(records[0]):
                continue
            else:
                kinds = {fault([data], sizes=[cut], way=way)[0]}
            assert kinds == {BatchFault.LENGTHS}


@BOTH_WAYS
def test_pieces_too_short_for_records_are_refused(
    array_records_min: int, message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    good = reference(message_type())
    for records in ([b"x"] * 3, [b"x" * 90] * 3, [good, good, good[:20]]):
        assert fault(records, way=array_records_min)[0] is BatchFault.LENGTHS
    short = small_with_ipv6_flags(reference, message_type)
    found = fault([short] * 3, way=array_records_min, store_host_ipv6=True)
    assert found[:2] == (BatchFault.LENGTHS, 0)


def test_the_incoming_bytes_are_left_alone(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    record = reference(message_type())
    checked = check([record] * 30)
    stamp(checked)
    assert Record(record).queue_offset == 0
    assert Record(checked.buffer).queue_offset == 11


def stamp(checked: CheckedBatch) -> None:
    checked.stamp(
        queue_id=1,
        base_queue_offset=11,
        base_physical_offset=1 << 30,
        store_timestamp_ms=1_700_000_000_000,
        store_host=HostAddress.parse("127.0.0.1:10911"),
    )


@BOTH_WAYS
def test_the_stamp_renews_the_crc_of_records_that_carry_one(array_records_min: int) -> None:
    def record(properties: bytes, *, property_crc: bool) -> bytes:
        return encode_record(
            topic=b"TopicTest",
            body=b"body",
            properties=properties,
            born_timestamp_ms=0,
            born_host=HostAddress.parse("[::1]:1"),
            property_crc=property_crc,
        )

    lookalike = b"X__CRC32#\x010123456789\x02"
    batch = [
        record(b"TAGS\x01a", property_crc=True),
        record(lookalike, property_crc=False),
        record(b"", property_crc=True),
        record(b"", property_crc=False),
    ]
    checked = check(batch, way=array_records_min)
    stamp(checked)
    matches = [
        property_crc_matches(r.raw, 0, r.size - len(r.properties_bytes), r.size)
        for r in iterate_records(checked.buffer)
    ]
    assert matches == [True, None, True, None]
    assert list(iterate_records(checked.buffer))[1].properties_bytes == lookalike


def test_a_host_of_the_other_family_is_our_own_mistake(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    checked = check([reference(message_type())])
    with pytest.raises(AssertionError, match="does not fit its slot"):
        checked.stamp(
            queue_id=0,
            base_queue_offset=0,
            base_physical_offset=0,
            store_timestamp_ms=0,
            store_host=HostAddress.parse("[::1]:1"),
        )
