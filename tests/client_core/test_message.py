"""What can be sent, and how a stored record looks to a consumer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client_core.message import Message, MessageId, ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime import errors
from aerobee.store.format.compression import CompressionKind, compress
from aerobee.store.format.properties import decode_properties
from aerobee.store.format.record import HostAddress, Record, encode_record
from aerobee.store.format.record_layout import BODY_AT
from aerobee.store.format.reserved_properties import allowed_of

HOST = HostAddress.parse("10.0.0.5:10911")
QUEUE = MessageQueue("orders", "broker-a", 3)
VALUES = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]))
WORDS = st.text(
    st.characters(
        blacklist_characters="\x01\x02|", blacklist_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]
    ),
    min_size=1,
).filter(lambda word: not any(character.isspace() for character in word))


@given(
    st.none() | WORDS,
    st.lists(WORDS),
    st.dictionaries(VALUES.filter(str.strip), VALUES.filter(bool)),
)
def test_stored_properties_read_back_as_given(
    tag: str | None, keys: list[str], properties: dict[str, str]
) -> None:
    properties = {name: value for name, value in properties.items() if allowed_of(name) is None}
    message = Message("orders", b"1", tag=tag, keys=keys, properties=properties)
    stored = decode_properties(message.encoded_properties)
    assert stored.pop("TAGS", None) == tag
    assert stored.pop("KEYS", "").split() == keys
    assert stored == properties


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"body": b""}, "empty"),
        ({"body": "text"}, "str, not bytes"),
        ({"body": None}, "NoneType"),
        ({"tag": ""}, "one word"),
        ({"tag": "a|b"}, "one word"),
        ({"tag": "a b"}, "one word"),
        ({"keys": ["a b"]}, "one word"),
        ({"keys": [""]}, "one word"),
        ({"sharding_key": ""}, "empty"),
        ({"sharding_key": "a\x01"}, "0x01"),
        ({"properties": {"TAGS": "x"}}, "reserved"),
        ({"properties": {"UNIQ_KEY": "x"}}, "reserved"),
        ({"properties": {"__RMQ.TRANSIENT.x": "x"}}, "never sent; leave it out"),
        ({"properties": {"DELAY": "3"}}, "reserved"),
        ({"properties": {"TIMER_NEW": "3"}}, "set only by brokers; leave it out"),
        ({"properties": {"TRAN_MSG": "true"}}, "begins a transaction; leave it out"),
        ({"properties": {" ": "x"}}, "blank"),
        ({"properties": {"a\x02": "x"}}, "0x02"),
        ({"properties": {"a": "x\x02y"}}, "0x02"),
        ({"properties": {"a": ""}}, "non-empty"),
        ({"properties": {"a": 7}}, "must be text"),
        ({"flag": 1 << 31}, "32 bits"),
    ],
)
def test_what_cannot_be_stored_is_refused_where_it_is_written(
    arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(errors.MessageIllegal, match=reason):
        Message("orders", **({"body": b"1"} | arguments))


def test_properties_leave_room_for_the_unique_key() -> None:
    Message("orders", b"1", properties={"a": "x" * 32_600})
    with pytest.raises(errors.PropertiesTooLarge, match="32768"):
        Message("orders", b"1", properties={"a": "x" * 32_765})


def test_any_bytes_like_body_is_taken_as_bytes() -> None:
    body = bytearray(b"abc")
    message = Message("orders", memoryview(body)[1:])
    body[1] = 0
    assert message.body == b"bc"


@pytest.mark.parametrize("kind", list(CompressionKind))
def test_a_received_body_is_decompressed_when_asked_for(kind: CompressionKind) -> None:
    body = b"aerobee" * 1_000
    record = encode_record(
        topic=b"orders",
        body=compress(body, kind),
        properties=b"UNIQ_KEY\x01id-7\x02TAGS\x01new\x02KEYS\x01a b\x02",
        sys_flag=kind.sys_flag,
        born_timestamp_ms=1_700_000_000_000,
        born_host=HOST,
        reconsume_times=2,
    )
    message = ReceivedMessage(Record(record), QUEUE)
    assert message.body == body
    assert message.body is message.body
    assert (message.topic, message.queue, message.tag) == ("orders", QUEUE, "new")
    assert message.keys == ("a", "b")
    assert message.message_id == "id-7"
    assert message.properties["TAGS"] == "new"
    assert message.reconsume_times == 2
    assert message.born_timestamp_ms == 1_700_000_000_000


def test_a_body_that_only_claims_to_be_compressed_is_a_typed_error() -> None:
    record = encode_record(
        topic=b"orders",
        body=b"not zlib",
        properties=b"",
        sys_flag=CompressionKind.ZLIB.sys_flag,
        born_timestamp_ms=0,
        born_host=HOST,
    )
    message = ReceivedMessage(Record(record), QUEUE)
    with pytest.raises(errors.CorruptBody, match="orders@broker-a:3"):
        _ = message.body
    assert message.message_id == message.offset_message_id


@pytest.mark.parametrize("compressed", [False, True])
def test_a_body_that_changed_on_its_way_is_never_handed_out(compressed: bool) -> None:
    body = compress(b"flight 7" * 9, CompressionKind.LZ4) if compressed else b"flight 7"
    record = bytearray(
        encode_record(
            topic=b"orders",
            body=body,
            properties=b"",
            sys_flag=CompressionKind.LZ4.sys_flag if compressed else 0,
            born_timestamp_ms=0,
            born_host=HOST,
        )
    )
    record[BODY_AT + 3] ^= 1
    for message in (
        ReceivedMessage(Record(bytes(record)), QUEUE),
        ReceivedMessage.at(bytes(record), 0, QUEUE),
    ):
        with pytest.raises(errors.CorruptBody, match="damaged since it was sent"):
            _ = message.body


def test_queues_sort_by_topic_broker_and_number() -> None:
    queues = [
        MessageQueue("t", "b", 10),
        MessageQueue("t", "b", 9),
        MessageQueue("t", "a", 11),
        MessageQueue("s", "z", 99),
    ]
    assert [str(queue) for queue in sorted(queues)] == ["s@z:99", "t@a:11", "t@b:9", "t@b:10"]


@given(st.integers(0, (1 << 63) - 1), st.ip_addresses(), st.integers(0, 65_535))
def test_message_ids_read_back(offset: int, ip: Any, port: int) -> None:
    place = MessageId(str(HostAddress(ip=ip.packed, port=port)), offset)
    assert MessageId.parse(str(place)) == place


@pytest.mark.parametrize("text", ["", "xyz", "00" * 15, "00" * 17, "0g" * 16])
def test_other_text_is_no_message_id(text: str) -> None:
    with pytest.raises(errors.MessageIllegal, match="not an offset message id"):
        MessageId.parse(text)


def make_received(body: bytes) -> ReceivedMessage:
    record = encode_record(
        topic=b"orders", body=body, properties=b"", born_timestamp_ms=1, born_host=HOST
    )
    return ReceivedMessage(Record(record), QUEUE)


def test_a_value_goes_and_comes_as_json() -> None:
    value = {"order": 7, "names": ["Zoë", None], "cents": 12.5}
    assert make_received(Message.json("orders", value).body).json() == value
    with pytest.raises(errors.MessageIllegal, match="cannot be written as JSON"):
        Message.json("orders", {1, 2})
    with pytest.raises(errors.MessageIllegal, match="cannot be written as JSON"):
        Message.json("orders", float("nan"))
    with pytest.raises(errors.MessageIllegal, match="is not JSON"):
        make_received(b"{").json()


def test_messages_with_the_same_content_are_equal() -> None:
    one = Message("orders", b"1", tag="a", keys=["k"])
    assert one == Message("orders", bytearray(b"1"), tag="a", keys=["k"])
    assert len({one, Message("orders", b"1", tag="a", keys=["k"])}) == 1
    for other in (Message("orders", b"1"), Message("orders", b"1", tag="a", keys=["k"], delay=1)):
        assert one != other
    assert one != b"1"
