"""Lazy views: every field of sound records, a typed error for every damaged one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.properties import decode_properties
from aerobee.store.format.record import HostAddress, Record, RecordCorrupt, iterate_records

STAMPS = {
    "queue_id": 7,
    "queue_offset": 1 << 40,
    "physical_offset": 1 << 41,
    "store_timestamp": 1_700_000_000_123,
}
FIELDS = [name for name in vars(Record) if isinstance(vars(Record)[name], property)]


def touch_all(record: Record) -> None:
    """Decode everything; may raise RecordCorrupt and nothing else."""
    for name in FIELDS:
        getattr(record, name)
    record.property_value("anything")
    repr(record)
    record.check()


def containers(data: bytes) -> list[bytes | bytearray | memoryview]:
    return [data, bytearray(data), memoryview(data)]


@given(st.data())
def test_every_field_comes_back_from_anywhere_in_a_buffer(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes], data: st.DataObject
) -> None:
    message = data.draw(messages)
    store_host = HostAddress(bytes(range(16 if message.store_host_ipv6 else 4)), 10911)
    raw = reference(message, **STAMPS, store_host=store_host)
    for buffer in containers(b"before" + raw + b"after"):
        record = Record(buffer, 6, 6 + len(raw))
        record.check()
        assert record.raw == raw
        assert record.size == len(raw)
        assert record.version == (2 if len(message.topic) > 127 else 1)
        assert (record.topic_bytes, record.body) == (message.topic, message.body)
        assert record.topic == message.topic.decode()
        assert type(record.body) is bytes
        assert record.properties_bytes == message.properties
        expected = decode_properties(message.properties)
        assert record.tag == expected.get("TAGS")
        assert record.unique_key == expected.get("UNIQ_KEY")
        assert record.keys == tuple(expected.get("KEYS", "").split())
        assert record.properties == expected
        assert record.property_value("DELAY") == expected.get("DELAY")
        assert (record.flag, record.sys_flag) == (message.flag, message.whole_sys_flag)
        assert record.stamps() == (
            record.queue_id,
            record.queue_offset,
            record.born_timestamp_ms,
            record.packed_born_host,
            record.store_timestamp_ms,
            record.packed_store_host,
        )
        assert record.transaction_type == message.sys_flag & 0xC
        assert record.born_timestamp_ms == message.born_timestamp
        assert (record.born_host, record.store_host) == (message.born_host, store_host)
        assert record.reconsume_times == message.reconsume_times
        assert record.prepared_transaction_offset == message.prepared_transaction_offset
        assert record.queue_id == STAMPS["queue_id"]
        assert record.queue_offset == STAMPS["queue_offset"]
        assert record.physical_offset == STAMPS["physical_offset"]
        assert record.store_timestamp_ms == STAMPS["store_timestamp"]


@given(st.data())
def test_records_end_to_end_are_walked_one_by_one(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes], data: st.DataObject
) -> None:
    raws = [reference(message) for message in data.draw(st.lists(messages, max_size=8))]
    for buffer in containers(b"".join(raws)):
        records = list(iterate_records(buffer))
        assert [record.raw for record in records] == raws
        for record, raw in zip(records, raws, strict=True):
            alone = Record(raw)
            assert [getattr(record, name) for name in FIELDS] == [
                getattr(alone, name) for name in FIELDS
            ]


@given(st.data())
def test_every_truncation_is_refused_with_its_position(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes], data: st.DataObject
) -> None:
    raw = reference(data.draw(messages))
    first = reference(data.draw(messages))
    for cut in range(len(raw)):
        with pytest.raises(RecordCorrupt) as caught:
            Record(raw[:cut])
        assert caught.value.position == 0
        if cut:
            walk = iterate_records(first + raw[:cut])
            assert next(walk).raw == first
            with pytest.raises(RecordCorrupt) as caught:
                next(walk)
            assert caught.value.position == len(first)


@given(st.data())
def test_a_wrong_length_anywhere_is_refused(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes], data: st.DataObject
) -> None:
    message = data.draw(messages)
    raw = reference(message)
    properties_at = len(raw) - len(message.properties) - 2
    width = 2 if len(message.topic) > 127 else 1
    topic_at = properties_at - len(message.topic) - width
    body_at = topic_at - len(message.body) - 4
    at, size = data.draw(
        st.sampled_from([(0, 4), (body_at, 4), (topic_at, width), (properties_at, 2)])
    )
    old = int.from_bytes(raw[at : at + size], "big")
    limit = 1 << 8 * size
    new = data.draw(
        st.sampled_from([0, limit - 1, limit // 2, limit // 2 - 1, (old - 1) % limit, old + 1])
        | st.integers(0, limit - 1)
    )
    damaged = raw[:at] + new.to_bytes(size, "big") + raw[at + size :]
    if damaged == raw:
        return
    for buffer in containers(damaged):
        with pytest.raises(RecordCorrupt):
            touch_all(Record(buffer, 0, len(buffer)))
    # After others, and followed by enough bytes for any length to look possible.
    roomy = damaged + bytes(1 << 17)
    with pytest.raises(RecordCorrupt):
        touch_all(Record(roomy, 0, len(raw)))


def first_error(buffer: bytes | bytearray | memoryview) -> RecordCorrupt | None:
    """What stops a walk that decodes everything."""
    try:
        for record in iterate_records(buffer):
            touch_all(record)
    except RecordCorrupt as error:
        return error
    return None


@given(st.data())
def test_any_damage_gives_a_record_or_the_typed_error(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes], data: st.DataObject
) -> None:
    damaged = bytearray(reference(data.draw(messages)) * 2)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    for buffer in containers(bytes(damaged)):
        error = first_error(buffer)
        if error is not None:
            assert 0 <= error.position < len(damaged)
            assert error.reason


def test_errors_say_what_is_wrong(message_type: type[Any], reference: Callable[..., bytes]) -> None:
    raw = reference(message_type())

    def reason(data: bytes, start: int = 0, end: int | None = None) -> str:
        with pytest.raises(RecordCorrupt) as caught:
            Record(data, start, end).check()
        return caught.value.reason

    assert "magic 0x00000000" in reason(raw[:4] + bytes(4) + raw[8:])
    assert "bytes are left" in reason(raw[:50])
    assert "exceeds" in reason(raw[:-1])
    assert f"{len(raw) + 1} was expected" in reason(raw + b"x", 0, len(raw) + 1)
    assert "body length" in reason(raw[:84] + b"\xff" * 4 + raw[88:])
    assert "topic" in reason(raw[:92] + b"\xff" + raw[93:])
    assert "properties length" in reason(raw[:-11] + b"\x00" + raw[-10:])
    assert "CRC" in reason(raw[:88] + b"x" + raw[89:])
    assert "position" in reason(raw, -len(raw))


def test_an_empty_body_needs_no_crc(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    raw = reference(message_type(body=b""))
    Record(raw[:8] + b"\x12\x34\x56\x78" + raw[12:]).check()


def test_properties_are_decoded_once(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    record = Record(reference(message_type()))
    assert record.properties is record.properties


def test_nothing_at_all_holds_no_record() -> None:
    assert list(iterate_records(b"")) == []
