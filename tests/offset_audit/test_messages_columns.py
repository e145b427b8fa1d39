"""Records made into Arrow columns say what a record-by-record reader says, whatever the records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.offset_audit.sources.messages.columns import (
    COLUMN_NAMES,
    Columns,
    Expected,
    RecordColumns,
)
from aerobee.offset_audit.sources.messages.pieces import gather
from aerobee.offset_audit.sources.messages.property_columns import PropertyColumns
from aerobee.store.format.compression import CompressionKind, compress, decompress
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.properties import decode_properties, encode_properties
from aerobee.store.format.record import HostAddress, Record, encode_record, iterate_records
from aerobee.store.format.record_hops import hop
from aerobee.store.format.record_layout import SYSFLAG_STORE_HOST_V6

NAMES = ["TAGS", "KEYS", "UNIQ_KEY", "a", "名", "K"]
VALUES = ["", "x", "one two", " a  b ", "order-7", "值", "TAGS"]
SEGMENTS = [
    *(f"{name}\x01{value}\x02".encode() for name in NAMES for value in VALUES),
    b"\x02",
    b"lonely\x02",
    b"\x01nameless\x02",
    b"TAGS\x01a\x01b\x02",
    b"UNIQ_KEY\x01\xff\xfe\x02",
    b"KEYS\x01\xe4\xb8\x02",
]
PROPERTIES = st.lists(st.sampled_from(SEGMENTS), max_size=5).map(b"".join)
"""Also such as no client writes, and, by `cut`, without the last separator."""


def cut(properties: bytes, is_cut: bool) -> bytes:
    return properties[:-1] if is_cut else properties


@given(
    st.lists(st.tuples(PROPERTIES, st.booleans()).map(lambda one: cut(*one)), max_size=6),
    st.binary(max_size=3),
)
def test_properties_of_many_records_are_those_of_each(
    properties: list[bytes], between: bytes
) -> None:
    buffer = between.join([b"", *properties, b""])
    starts = np.zeros(len(properties), np.int64)
    at = 0
    for index, one in enumerate(properties):
        at += len(between)
        starts[index] = at
        at += len(one)
    ends = starts + np.array([len(one) for one in properties], np.int64)
    columns = PropertyColumns(buffer, starts, ends)
    expected = [decode_properties(one) for one in properties]
    assert [dict(one) for one in columns.map.to_pylist()] == expected
    assert [len(one) for one in columns.map.to_pylist()] == [len(one) for one in expected]
    for name in ("TAGS", "UNIQ_KEY", "a"):
        values = [one.get(name) for one in expected]
        assert columns.text(name.encode()).to_pylist() == values
    keys = [[key for key in one.get("KEYS", "").split(" ") if key] for one in expected]
    assert columns.words(b"KEYS").to_pylist() == keys


RECORDS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    body=st.binary(max_size=40),
    properties=PROPERTIES,
    kind=st.sampled_from([None, *CompressionKind]),
    born_host=st.sampled_from(["127.0.0.1:1", "10.1.2.3:40000", "[::1]:77", "[2001:db8::5]:9"]),
    is_v6=st.booleans(),
    born_timestamp_ms=st.integers(0, 1 << 45),
)


def encode(fields: dict[str, Any]) -> bytes:
    kind, body = fields["kind"], fields["body"]
    flag = 0 if kind is None else kind.sys_flag
    return encode_record(
        topic=b"orders",
        body=body if kind is None else compress(body, kind),
        properties=fields["properties"],
        sys_flag=flag | (SYSFLAG_STORE_HOST_V6 if fields["is_v6"] else 0),
        born_timestamp_ms=fields["born_timestamp_ms"],
        born_host=HostAddress.parse(fields["born_host"]),
    )


def plain(record: Record) -> dict[str, Any]:
    """What the columns should say."""
    return {
        "topic": "orders",
        "broker_name": "b",
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "born_ms": record.born_timestamp_ms,
        "store_ms": record.store_timestamp_ms,
        "born_host": str(record.born_host),
        "tags": record.tag,
        "keys": list(record.keys),
        "unique_key": record.unique_key,
        "properties": list(record.properties.items()),
        "body": decompress(record.body, record.sys_flag),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "message_id": record.unique_key
        or offset_message_id(record.store_host, record.physical_offset),
    }


def columns_of(buffer: bytes) -> RecordColumns:
    starts, ends = hop(buffer)
    records = list(iterate_records(buffer))
    return RecordColumns(
        buffer,
        starts,
        ends,
        Expected(
            "b",
            ("orders",),
            None,
            np.array([record.queue_id for record in records], np.int64),
            np.array([record.queue_offset for record in records], np.int64),
        ),
    )


@given(st.lists(RECORDS, min_size=1, max_size=8))
def test_a_batch_says_of_each_record_what_the_record_says(fields: list[dict[str, Any]]) -> None:
    buffer = b"".join(encode(one) for one in fields)
    columns = columns_of(buffer)
    assert columns.sound(check_bodies=True).all()
    assert columns.decompressible().all()
    batch = columns.batch(Columns())
    assert batch.schema == Columns().schema
    batch.validate(full=True)
    found = batch.to_pylist()
    expected = [plain(record) for record in iterate_records(buffer)]
    for one in (*found, *expected):
        one["properties"] = dict(one["properties"])
    assert found == expected


def test_a_damaged_body_and_a_place_that_is_not_the_expected_one_are_seen() -> None:
    fields = {"kind": None, "born_host": "127.0.0.1:1", "is_v6": False, "born_timestamp_ms": 1}
    one = encode({**fields, "body": b"abc", "properties": b""})
    other = bytearray(one)
    other[88] ^= 1
    columns = columns_of(one + bytes(other) + one)
    columns.expected.queue_offsets[2] = 5
    assert columns.sound(check_bodies=True).tolist() == [True, False, False]
    assert columns.sound(check_bodies=False).tolist() == [True, True, False]
    assert columns.sound(check_bodies=False, unchecked=np.ones(3, np.bool_)).all()


def test_a_body_that_says_compressed_and_is_not_is_seen() -> None:
    record = encode_record(
        topic=b"orders",
        body=b"not compressed",
        properties=b"",
        sys_flag=CompressionKind.ZLIB.sys_flag,
        born_timestamp_ms=1,
        born_host=HostAddress.parse("127.0.0.1:1"),
    )
    assert columns_of(record).decompressible().tolist() == [False]


@pytest.mark.parametrize(
    "names", [("body",), ("tags", "queue_id"), ("message_id",), COLUMN_NAMES[::-1]], ids="-".join
)
def test_only_the_wanted_columns_are_made_in_the_wanted_order(names: tuple[str, ...]) -> None:
    columns = Columns(names)
    assert tuple(columns.schema.names) == names
    assert [part.split()[0] for part in columns.ddl.split(", ")] == list(names)
    record = encode_record(
        topic=b"orders",
        body=b"abc",
        properties=encode_properties({"TAGS": "t"}),
        born_timestamp_ms=1,
        born_host=HostAddress.parse("127.0.0.1:1"),
    )
    found = columns_of(record).batch(columns)
    assert found.schema == columns.schema
    assert found.equals(columns_of(record).batch(Columns()).select(list(names)))


@given(st.binary(max_size=40), st.data())
def test_pieces_are_what_slices_are(buffer: bytes, data: st.DataObject) -> None:
    borders = data.draw(st.lists(st.integers(0, len(buffer)), max_size=12).map(sorted))
    if data.draw(st.booleans()):
        spans = list(zip(borders[::2], borders[1::2], strict=False))
    else:
        spans = [(low, high) for low in borders for high in borders if low <= high]
    starts = np.array([start for start, _ in spans], np.int64)
    ends = np.array([end for _, end in spans], np.int64)
    found: pa.Array = gather(buffer, starts, ends)
    assert found.to_pylist() == [buffer[start:end] for start, end in spans]
