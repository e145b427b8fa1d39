"""The encoders against the slow reference, and against each other."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.record import (
    PROPERTIES_BYTES_MAX,
    SYSFLAG_COMPRESSED,
    HostAddress,
    RecordIllegal,
    body_crc,
    encode_batch,
    encode_record,
)
from aerobee.store.format.record_encode import record_encoder

HOST = HostAddress.parse("127.0.0.1:10911")


@given(st.data())
def test_a_record_is_what_the_reference_writes(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes], data: st.DataObject
) -> None:
    message = data.draw(messages)
    assert encode_record(**message.arguments) == reference(message)
    assert encode_record(**message.arguments, version=2) == reference(message, version=2)


@given(st.data())
def test_an_encoder_for_many_writes_the_same(
    messages: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    given = data.draw(messages).arguments
    shared = {name: given[name] for name in ("topic", "born_host", "store_host_ipv6")}
    own = {name: given[name] for name in ("body", "properties", "born_timestamp_ms")}
    flags = SYSFLAG_COMPRESSED if data.draw(st.booleans()) else 0
    encode = record_encoder(**shared)
    for _ in range(2):
        encoded = encode(own["body"], own["properties"], own["born_timestamp_ms"], flags)
        assert encoded == encode_record(**shared, **own, sys_flag=flags)
    with pytest.raises(RecordIllegal, match="properties of"):
        encode(b"", bytes(PROPERTIES_BYTES_MAX + 1), 0, 0)
    with pytest.raises(RecordIllegal, match="does not fit"):
        encode(b"", b"", 1 << 63, 0)


@given(st.data())
def test_a_batch_is_its_records_end_to_end(
    messages: st.SearchStrategy[Any], property_bytes: st.SearchStrategy[bytes], data: st.DataObject
) -> None:
    template = data.draw(messages)
    count = data.draw(st.integers(0, 20))
    bodies = data.draw(st.lists(st.binary(max_size=40), min_size=count, max_size=count))
    properties = data.draw(st.lists(property_bytes, min_size=count, max_size=count))
    i32 = st.integers(-(1 << 31), (1 << 31) - 1)
    flags = data.draw(i32 | st.lists(i32, min_size=count, max_size=count))
    common = template.arguments
    for name in ("body", "properties", "sys_flag"):
        del common[name]
    common |= {"reconsume_times": 0, "prepared_transaction_offset": 0}
    expected = [
        encode_record(
            **common,
            body=body,
            properties=properties[index],
            sys_flag=flags if isinstance(flags, int) else flags[index],
        )
        for index, body in enumerate(bodies)
    ]
    del common["reconsume_times"], common["prepared_transaction_offset"]
    records, sizes = encode_batch(**common, bodies=bodies, properties=properties, sys_flags=flags)
    assert type(records) is bytes
    assert records == b"".join(expected)
    assert sizes == [len(record) for record in expected]


@given(st.binary(max_size=3000))
def test_the_crc_is_zlibs(body: bytes) -> None:
    assert body_crc(body) == zlib.crc32(body) & 0x7FFFFFFF


def plain(**changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "topic": b"T",
        "body": b"",
        "properties": b"",
        "born_timestamp_ms": 0,
        "born_host": HOST,
    }
    return encode_record(**(arguments | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b"T" * 128, "version": 1},
        {"topic": b"T" * (1 << 15)},
        {"version": 3},
        {"properties": b"x" * 32_768},
        {"flag": 1 << 31},
        {"sys_flag": 1 << 31},
        {"born_timestamp_ms": 1 << 63},
        {"reconsume_times": -(1 << 31) - 1},
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordIllegal):
        plain(**changes)


def test_the_longest_topics_and_properties_fit() -> None:
    assert len(plain(topic=b"T" * 127)) == 91 + 127
    assert len(plain(topic=b"T" * 32_767)) == 92 + 32_767
    assert len(plain(properties=b"x" * 32_767)) == 92 + 32_767


@pytest.mark.parametrize("count", [2, 20])
def test_a_batch_refuses_what_a_record_refuses(count: int) -> None:
    def batch(**changes: Any) -> None:
        arguments: dict[str, Any] = {
            "topic": b"T",
            "bodies": [b""] * count,
            "properties": [b""] * count,
            "born_timestamp_ms": 0,
            "born_host": HOST,
        }
        encode_batch(**(arguments | changes))

    with pytest.raises(RecordIllegal):
        batch(properties=[b""] * (count - 1) + [b"x" * 32_768])
    with pytest.raises(RecordIllegal):
        batch(sys_flags=[0] * (count - 1) + [1 << 31])
    with pytest.raises(RecordIllegal):
        batch(sys_flags=1 << 31)
    with pytest.raises(ValueError, match="equally many"):
        batch(properties=[b""])
    with pytest.raises(ValueError, match="equally many"):
        batch(sys_flags=[0])
