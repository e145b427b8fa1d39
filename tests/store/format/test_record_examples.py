"""The records whose every byte is known: read, written and stamped."""

from __future__ import annotations

import pytest

from aerobee.store.format.batch import BatchLimits, CheckedBatch, check_batch
from aerobee.store.format.java_hash import index_key_hash
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.property_crc import property_crc_matches
from aerobee.store.format.record import (
    HostAddress,
    Record,
    RecordIllegal,
    blank_record,
    body_crc,
    encode_record,
)
from aerobee.store.format.tags import TagsCodes

PHYSICAL_OFFSET = 0x40000400
BORN_HOST = HostAddress.parse("192.168.0.11:50123")
STORE_HOST = HostAddress.parse("10.0.0.5:10911")
PROPERTIES = {
    "KEYS": "order-1 order-2",
    "UNIQ_KEY": "C0A8000B30393764D8BE2A139A000007",
    "WAIT": "true",
    "TAGS": "TagA",
}
MESSAGE_A = bytes.fromhex(
    "000000c5daa320a769c865ed0000000300000000000000000000010200000000"
    "40000400000000000000018bcfe56800c0a8000b0000c3cb0000018bcfe5687b"
    "0a00000500002a9f0000000000000000000000000000000e48656c6c6f20526f"
    "636b65744d5109546f7069635465737400534b455953016f726465722d31206f"
    "726465722d3202554e49515f4b45590143304138303030423330333933373634"
    "4438424532413133394130303030303702574149540174727565025441475301"
    "5461674102"
)
MESSAGE_B_HEAD = bytes.fromhex(
    "0000014bdaa320ab69c865ed0000000300000000000000000000010200000000"
    "40000400000000100000018bcfe5680020010db8000000000000000000000001"
    "0000c3cb"
)


def stamped(record: bytes, topic: str) -> CheckedBatch:
    batch = check_batch(
        record,
        [len(record)],
        topic=topic,
        limits=BatchLimits(topic_bytes_max=255),
        store_host_ipv6=False,
        tags=TagsCodes(),
    )
    batch.stamp(
        queue_id=3,
        base_queue_offset=258,
        base_physical_offset=PHYSICAL_OFFSET,
        store_timestamp_ms=1_700_000_000_123,
        store_host=STORE_HOST,
    )
    return batch


def encoded(topic: bytes, born_host: HostAddress, *, property_crc: bool = False) -> bytes:
    return encode_record(
        topic=topic,
        body=b"Hello RocketMQ",
        properties=encode_properties(PROPERTIES),
        born_timestamp_ms=1_700_000_000_000,
        born_host=born_host,
        property_crc=property_crc,
    )


def test_message_a_is_written_byte_by_byte() -> None:
    assert bytes(stamped(encoded(b"TopicTest", BORN_HOST), "TopicTest").buffer) == MESSAGE_A


def test_message_a_is_read_field_by_field() -> None:
    record = Record(MESSAGE_A)
    assert (record.size, record.version, record.magic & 0xFFFFFFFF) == (197, 1, 0xDAA320A7)
    assert record.body_crc == 0x69C865ED
    assert (record.queue_id, record.flag, record.queue_offset) == (3, 0, 258)
    assert record.physical_offset == PHYSICAL_OFFSET
    assert (record.sys_flag, record.transaction_type) == (0, 0)
    assert record.born_timestamp_ms == 1_700_000_000_000
    assert record.store_timestamp_ms == 1_700_000_000_123
    assert (record.born_host, record.store_host) == (BORN_HOST, STORE_HOST)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (0, 0)
    assert (record.body, record.body_size) == (b"Hello RocketMQ", 14)
    assert (record.topic, record.topic_bytes) == ("TopicTest", b"TopicTest")
    assert record.properties == PROPERTIES
    assert len(record.properties_bytes) == 83
    assert (record.tag, record.keys) == ("TagA", ("order-1", "order-2"))
    assert record.unique_key == PROPERTIES["UNIQ_KEY"]
    assert record.raw == MESSAGE_A
    record.check()


def test_message_a_has_its_entry_and_its_id() -> None:
    batch = stamped(encoded(b"TopicTest", BORN_HOST), "TopicTest")
    assert batch.dispatch_entries(PHYSICAL_OFFSET) == bytes.fromhex(
        "0000000040000400000000c5000000000027a807"
    )
    assert offset_message_id(STORE_HOST, PHYSICAL_OFFSET) == "0A00000500002A9F0000000040000400"


def test_the_keys_of_message_a_hash_as_the_index_example_says() -> None:
    hashes = [
        index_key_hash(f"TopicTest#{key}")
        for key in (PROPERTIES["UNIQ_KEY"], *Record(MESSAGE_A).keys)
    ]
    assert hashes == [0x6816EA8C, 0x6D0746D0, 0x6D0746CF]


def test_message_b_is_version_2_with_an_ipv6_born_host() -> None:
    topic = b"T" * 130
    born_host = HostAddress.parse("[2001:db8::1]:50123")
    data = bytes(stamped(encoded(topic, born_host), "T" * 130).buffer)
    assert len(data) == 331
    assert data[:68] == MESSAGE_B_HEAD
    assert data[68:] == (MESSAGE_A[56:102] + bytes.fromhex("0082") + topic + MESSAGE_A[112:])
    record = Record(data)
    assert (record.version, record.topic_bytes, record.born_host) == (2, topic, born_host)
    assert (record.store_host, record.properties) == (STORE_HOST, PROPERTIES)


def test_message_c_ends_in_the_crc_of_the_whole_record() -> None:
    data = bytes(stamped(encoded(b"TopicTest", BORN_HOST, property_crc=True), "TopicTest").buffer)
    assert len(data) == 217
    assert data[:4] == bytes.fromhex("000000d9")
    assert data[112:114] == bytes.fromhex("0067")
    assert data[197:] == bytes.fromhex("5f5f4352433332230132353631373037313931 02")
    assert property_crc_matches(data, 0, 114, 217) is True
    assert Record(data).properties == PROPERTIES | {"__CRC32#": "2561707191"}


def test_the_smallest_record_has_92_bytes() -> None:
    data = bytearray(
        encode_record(
            topic=b"T",
            body=b"",
            properties=b"",
            born_timestamp_ms=0,
            born_host=HostAddress(bytes(4), 0),
        )
    )
    data[56:64] = (1).to_bytes(8, "big")
    assert bytes(data) == bytes.fromhex(
        "0000005cdaa320a70000000000000000000000000000000000000000000000000000000000000000"
        "00000000000000000000000000000000000000000000000100000000000000000000000000000000"
        "0000000000000000 01 54 0000"
    )
    Record(data).check()


def test_a_body_crc_has_no_top_bit() -> None:
    assert body_crc(b"123456789") == 0x4BF43926


def test_the_filler_at_a_files_end_says_how_much_it_covers() -> None:
    assert blank_record(64) == bytes.fromhex("00000040cbd43194")
    with pytest.raises(RecordIllegal):
        blank_record(7)
