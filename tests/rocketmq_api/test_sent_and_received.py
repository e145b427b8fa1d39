"""A message through a record and back: what was sent is what is received."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.domain.topic_attributes import MESSAGE_TYPE, MESSAGE_TYPES
from aerobee.rocketmq_api.codes import status_of
from aerobee.rocketmq_api.receiving.messages import PLAIN_BYTES_MAX, digest
from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.rocketmq_api.rules.message_types import MessageType, accepted_types
from aerobee.rocketmq_api.rules.refusals import Refused
from aerobee.rocketmq_api.rules.reserved import may_be_set
from aerobee.rocketmq_api.sending.checks import check_message
from aerobee.rocketmq_api.sending.message_types import V2_TYPES
from aerobee.rocketmq_api.sending.records import Circumstances, carefully_taken, take_message
from aerobee.rocketmq_api.times import duration, milliseconds, timestamp
from aerobee.runtime.errors import AerobeeError, PropertiesTooLarge
from aerobee.store.format.compression import CompressionKind, compress
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.support.v2_messages import (
    ALL_TYPES,
    MESSAGE_ID,
    NOW_MS,
    QUEUE_ID,
    QUEUE_OFFSET,
    STORED_MS,
    TOPIC,
    Delivery,
    at,
    message,
    message_of,
    record_with,
    stored,
)

FIRST = Delivery(topic=TOPIC, attempt=1, receipt_handle="handle")
PLAIN = b"flights of the day " * 200
CPP = Delivery(topic=TOPIC, attempt=1, needs_plain_body=True)

_CHARACTERS = st.characters(exclude_categories=["Cc", "Cs"])
_TEXTS = st.text(_CHARACTERS, min_size=1, max_size=12).filter(str.strip)
_WORDS = _TEXTS.filter(lambda text: " " not in text)
_TIMES_MS = st.integers(1, 1 << 50)


@st.composite
def sent_messages(draw: st.DrawFn) -> v2.Message:
    user = draw(st.dictionaries(_TEXTS, _TEXTS, max_size=5))
    sent = message(
        draw(st.binary(min_size=1, max_size=40)),
        user={name: value for name, value in user.items() if may_be_set(name, value)},
        keys=draw(st.lists(_WORDS, max_size=3)),
        message_id=draw(st.text("0123456789ABCDEFxyz-_~!", min_size=1, max_size=40)),
    )
    system = sent.system_properties
    system.born_timestamp.CopyFrom(timestamp(draw(_TIMES_MS)))
    if draw(st.booleans()):
        system.tag = draw(_TEXTS.filter(lambda text: "|" not in text))
    if draw(st.booleans()):
        system.message_group = draw(_TEXTS)
    if draw(st.booleans()):
        system.trace_context = draw(_TEXTS)
    if draw(st.booleans()):
        system.born_host = draw(_TEXTS)
    if draw(st.booleans()):
        system.priority = draw(st.integers(0, (1 << 31) - 1))
    if draw(st.booleans()):
        system.delivery_timestamp.CopyFrom(timestamp(draw(st.integers(0, NOW_MS))))
    if draw(st.booleans()):
        seconds = draw(st.integers(0, 3_600))
        system.orphaned_transaction_recovery_duration.CopyFrom(duration(seconds * 1_000))
    return sent


@given(sent_messages())
def test_everything_that_a_sender_decides_is_received(sent: v2.Message) -> None:
    check_message(sent, SendLimits(), NOW_MS)
    received = message_of(stored(sent), FIRST)
    system = received.system_properties

    expected = v2.Message()
    expected.CopyFrom(sent)
    # What is told beside the application's own properties, too, as Apache does.
    for name, value in (
        ("__SHARDINGKEY", system.message_group),
        ("TRACE_CONTEXT", system.trace_context),
    ):
        if value:
            expected.user_properties[name] = value
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.seconds
        expected.user_properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(seconds)
    told = expected.system_properties
    told.body_digest.CopyFrom(v2.Digest(type=v2.MD5, checksum=digest(sent.body)))
    told.message_type = system.message_type
    told.store_timestamp.CopyFrom(timestamp(STORED_MS))
    told.store_host = "10.0.0.5:10911"
    told.queue_id = QUEUE_ID
    told.queue_offset = QUEUE_OFFSET
    told.delivery_attempt = 1
    told.receipt_handle = "handle"
    assert received == expected


@given(sent_messages())
def test_sending_on_what_was_received_stores_the_same_again(sent: v2.Message) -> None:
    """Consumers send messages on; nothing that brokers added may be in their way."""
    received = message_of(stored(sent), FIRST)
    check_message(received, SendLimits(), NOW_MS)
    assert stored(received).properties == stored(sent).properties


@st.composite
def odd_messages(draw: st.DrawFn) -> v2.Message:
    """Whatever the types of the fields allow."""
    system = draw(
        st.builds(
            v2.SystemProperties,
            message_id=st.text(max_size=20),
            tag=st.none() | st.text(max_size=20),
            keys=st.lists(st.text(max_size=20), max_size=3),
            message_group=st.none() | st.text(max_size=70),
            trace_context=st.none() | st.text(max_size=20),
            born_host=st.text(max_size=20),
            message_type=st.integers(-(1 << 31), (1 << 31) - 1),
            body_encoding=st.integers(-(1 << 31), (1 << 31) - 1),
            priority=st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
            born_timestamp=st.none() | st.builds(timestamp, st.integers(-(1 << 63), (1 << 63) - 1)),
            delivery_timestamp=st.none() | st.builds(timestamp, st.integers(-(1 << 63), 1 << 62)),
            orphaned_transaction_recovery_duration=st.none()
            | st.builds(duration, st.integers(0).map(lambda ms: ms % (1 << 62))),
        )
    )
    user = draw(st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=4))
    body = draw(st.binary(max_size=9))
    return v2.Message(topic=TOPIC, user_properties=user, body=body, system_properties=system)


_ODD_WORDS = st.sampled_from(("", "word", " ", "a b", "a|b", "\x7f", "\x85", "\x01", "é", "名"))
_ODD_NAMES = st.sampled_from(
    (
        "colour",
        "",
        " ",
        "a\x02",
        "é",
        "KEYS",
        "TIMER_OTHER",
        "TRACE_CONTEXT",
        "__SHARDINGKEY",
        "DELAY",
    )
)


@st.composite
def nearly_plain_messages(draw: st.DrawFn) -> v2.Message:
    """Most of what is in them breaks no rule."""
    sent = message(
        draw(st.sampled_from((b"body", b""))),
        user=draw(st.dictionaries(_ODD_NAMES, _ODD_WORDS, max_size=2)),
        keys=draw(st.lists(_ODD_WORDS, max_size=2)),
        encoding=draw(st.sampled_from((v2.IDENTITY, v2.GZIP))),
        message_id=draw(st.sampled_from((MESSAGE_ID, "", "a b", "\t", "é", "x" * 255, "x" * 256))),
    )
    system = sent.system_properties
    system.message_type = draw(st.sampled_from((v2.NORMAL, v2.FIFO, v2.TRANSACTION, v2.LITE)))
    groups = st.sampled_from(("", "g", "g" * 63, "g" * 64, "é" * 31, "é" * 32, " "))
    for name, values in (
        ("tag", _ODD_WORDS),
        ("message_group", groups),
        ("trace_context", _ODD_WORDS),
    ):
        if draw(st.booleans()):
            setattr(system, name, draw(values))
    for name in ("born_timestamp", "delivery_timestamp"):
        if draw(st.integers(0, 9)) == 0:
            ms = draw(st.sampled_from((-1, 0, NOW_MS, (1 << 63) - 1)))
            getattr(system, name).CopyFrom(timestamp(ms))
    if draw(st.integers(0, 9)) == 0:
        system.priority = draw(st.integers(-1, 1))
    return sent


def outcome(
    take: Callable[[v2.Message, Circumstances], object], sent: v2.Message, at: Circumstances
) -> object:
    try:
        return take(sent, at)
    except AerobeeError as error:
        return status_of(error)


@given(odd_messages())
def test_whatever_comes_is_stored_or_refused(sent: v2.Message) -> None:
    try:
        check_message(sent, SendLimits(), NOW_MS)
        record = stored(sent)
    except Refused:
        return
    received = message_of(record, FIRST)
    assert received.body == sent.body
    assert received.system_properties.message_id == sent.system_properties.message_id


@given(
    st.one_of(sent_messages(), odd_messages(), nearly_plain_messages()),
    st.sampled_from([ALL_TYPES, (MessageType.NORMAL,), ()]),
)
def test_a_message_that_is_taken_after_few_looks_is_taken_as_after_all(
    sent: v2.Message, accepted: tuple[MessageType, ...]
) -> None:
    circumstances = at(accepted=accepted)
    assert outcome(take_message, sent, circumstances) == outcome(
        carefully_taken, sent, circumstances
    )


@pytest.mark.parametrize("encoding", [v2.ENCODING_UNSPECIFIED, v2.IDENTITY, v2.GZIP])
def test_the_digest_is_of_the_bytes_in_the_answer(encoding: v2.Encoding) -> None:
    body = gzip.compress(b"hello world") if encoding == v2.GZIP else b"hello world"
    received = message_of(stored(message(body, encoding=encoding)), FIRST)
    assert received.body == body
    assert received.system_properties.body_encoding == (encoding or v2.IDENTITY)
    assert received.system_properties.body_digest.checksum == digest(body)


def test_a_digest_is_printed_as_all_clients_print_it() -> None:
    assert digest(b"hello world") == "5EB63BBBE01EEED093CB22BB8F5ACDC3"


@pytest.mark.parametrize("kind", CompressionKind)
def test_what_our_own_producers_compress_is_received_plain(kind: CompressionKind) -> None:
    record = record_with({}, compress(PLAIN, kind), sys_flag=kind.sys_flag)
    for delivery in (FIRST, CPP):
        received = message_of(record, delivery)
        assert received.body == PLAIN
        assert received.system_properties.body_encoding == v2.IDENTITY
        assert received.system_properties.body_digest.checksum == digest(PLAIN)


def test_a_client_that_reads_no_gzip_gets_the_plain_body() -> None:
    """Also of what it sent itself: zlib under the name of gzip."""
    for body in (gzip.compress(PLAIN), zlib.compress(PLAIN)):
        record = stored(message(body, encoding=v2.GZIP))
        assert message_of(record, CPP).body == PLAIN
        assert message_of(record, CPP).system_properties.body_encoding == v2.IDENTITY


def test_zlib_under_the_name_of_gzip_is_received_plain_by_others() -> None:
    received = message_of(stored(message(zlib.compress(PLAIN), encoding=v2.GZIP)), FIRST)
    assert (received.body, received.system_properties.body_encoding) == (PLAIN, v2.IDENTITY)


def test_a_body_that_would_grow_beyond_what_clients_receive_stays_compressed() -> None:
    plain = bytes(PLAIN_BYTES_MAX + 1)
    record = stored(message(zlib.compress(plain), encoding=v2.GZIP))
    received = message_of(record, FIRST)
    assert received.system_properties.body_encoding == v2.GZIP
    assert gzip.decompress(received.body) == plain
    assert received.system_properties.body_digest.checksum == digest(received.body)
    assert message_of(record, CPP).body == plain


def test_a_body_that_is_not_what_its_flag_says_is_delivered_as_it_is() -> None:
    """Its reader finds it corrupt; the poll goes on with the others."""
    received = message_of(stored(message(b"no gzip", encoding=v2.GZIP)), FIRST)
    assert (received.body, received.system_properties.body_encoding) == (b"no gzip", v2.GZIP)


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, v2.NORMAL),
        ({"__SHARDINGKEY": "g"}, v2.FIFO),
        ({"TIMER_DELIVER_MS": "1"}, v2.DELAY),
        ({"DELAY": "3"}, v2.DELAY),
        ({"TIMER_DELAY_SEC": "3", "__SHARDINGKEY": "g"}, v2.DELAY),
        ({"TRAN_MSG": "true", "DELAY": "3"}, v2.TRANSACTION),
        ({"TRAN_MSG": "false"}, v2.NORMAL),
        ({"_SYS_MSG_PRIORITY_": "3"}, v2.PRIORITY),
        ({"_SYS_MSG_PRIORITY_": "3", "__SHARDINGKEY": "g"}, v2.FIFO),
        ({"__LITE_TOPIC": "a"}, v2.LITE),
        # Waited to come again: its own time is not the sender's.
        ({"DELAY": "3", "RETRY_TOPIC": "orders"}, v2.NORMAL),
    ],
)
def test_a_messages_type_follows_from_its_properties(
    properties: dict[str, str], kind: v2.MessageType
) -> None:
    system = message_of(record_with(properties), FIRST).system_properties
    assert system.message_type == kind
    is_timed = kind == v2.DELAY and "TIMER_DELIVER_MS" in properties
    assert system.HasField("delivery_timestamp") == is_timed


def test_what_others_wrote_badly_is_left_out() -> None:
    record = record_with(
        {
            "TIMER_DELIVER_MS": "soon",
            "CHECK_IMMUNITY_TIME_IN_SECONDS": "-1",
            "_SYS_MSG_PRIORITY_": str(1 << 31),
            "DLQ_ORIGIN_TOPIC": "orders",
        }
    )
    system = message_of(record, FIRST).system_properties
    for name in (
        *("delivery_timestamp", "orphaned_transaction_recovery_duration", "priority"),
        *("dead_letter_queue", "tag", "message_group", "trace_context", "lite_topic"),
    ):
        assert not system.HasField(name), name


def test_a_dead_letter_names_the_message_that_failed() -> None:
    told = {"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": MESSAGE_ID, "DLQ_REASON": "boom"}
    received = message_of(record_with(told), FIRST)
    letter = received.system_properties.dead_letter_queue
    assert (letter.topic, letter.message_id) == ("orders", MESSAGE_ID)
    assert dict(received.user_properties) == {"DLQ_REASON": "boom"}


def test_a_message_without_an_id_has_the_one_of_its_place_also_as_a_copy() -> None:
    record = record_with({})
    first = message_of(record, FIRST).system_properties.message_id
    assert first == "0A00000500002A9F000000000000226C"
    copy = record_with({"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": first})
    assert message_of(copy, FIRST).system_properties.message_id == first


def test_a_delivery_echoes_the_topic_and_counts_the_attempt() -> None:
    delivery = Delivery(topic=v2.Resource(name="orders"), attempt=4)
    received = message_of(record_with({"RETRY_TOPIC": "x"}), delivery)
    assert received.topic == v2.Resource(name="orders")
    assert received.system_properties.delivery_attempt == 4
    assert not received.system_properties.HasField("receipt_handle")


def test_a_message_that_does_not_tell_its_birth_is_born_when_it_comes() -> None:
    sent = message()
    sent.system_properties.ClearField("born_timestamp")
    sent.system_properties.born_host = ""
    system = message_of(stored(sent), FIRST).system_properties
    assert milliseconds(system.born_timestamp) == NOW_MS + 1
    assert system.born_host == "10.0.0.7"


def test_a_topic_takes_the_types_that_its_attribute_says() -> None:
    takes = {name: accepted_types({MESSAGE_TYPE: name}) for name in MESSAGE_TYPES}
    assert takes == {
        "NORMAL": (MessageType.NORMAL,),
        "FIFO": (MessageType.FIFO,),
        "DELAY": (MessageType.DELAY,),
        "TRANSACTION": (MessageType.TRANSACTION,),
        "PRIORITY": (MessageType.PRIORITY,),
        "LITE": (MessageType.LITE,),
        "MIXED": (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION),
        "UNSPECIFIED": (MessageType.UNSPECIFIED,),
    }
    assert accepted_types({}) == (MessageType.NORMAL,)
    assert accepted_types({MESSAGE_TYPE: "TO_COME"}) == (MessageType.UNSPECIFIED,)


def test_types_have_the_same_names_in_the_protocol() -> None:
    assert {each.value: number for each, number in V2_TYPES.items()} == dict(v2.MessageType.items())


@pytest.mark.parametrize("accepted", [each for each in ALL_TYPES if each != MessageType.NORMAL])
def test_a_message_of_another_type_is_refused(accepted: MessageType) -> None:
    with pytest.raises(Refused) as refused:
        take_message(message(), at(accepted=(accepted,)))
    assert status_of(refused.value).code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert accepted.value in str(refused.value)


def test_a_fifo_message_is_one_that_has_a_group_whatever_it_is_called() -> None:
    called_fifo = message()
    called_fifo.system_properties.message_type = v2.FIFO
    with pytest.raises(Refused) as refused:
        take_message(called_fifo, at(accepted=(MessageType.FIFO,)))
    assert status_of(refused.value).code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    grouped = message()
    grouped.system_properties.message_group = "g"
    assert take_message(grouped, at(accepted=(MessageType.FIFO,))).message_group == "g"


def test_what_decides_where_a_message_goes_is_told_beside_its_record() -> None:
    sent = message()
    taken = take_message(sent, at())
    assert (taken.message_id, taken.message_type) == (MESSAGE_ID, MessageType.NORMAL)
    assert (taken.message_group, taken.priority, taken.deliver_ms) == ("", -1, None)
    sent.system_properties.priority = 0
    sent.system_properties.delivery_timestamp.CopyFrom(timestamp(NOW_MS + 5))
    taken = take_message(sent, at())
    assert (taken.priority, taken.deliver_ms) == (0, NOW_MS + 5)


def test_properties_that_fit_into_no_record_are_refused() -> None:
    sent = message()
    sent.system_properties.trace_context = "x" * 40_000
    check_message(sent, SendLimits(), NOW_MS)
    with pytest.raises(PropertiesTooLarge) as refused:
        take_message(sent, at())
    assert status_of(refused.value).code == v2.MESSAGE_PROPERTIES_TOO_LARGE


def test_the_properties_are_those_of_apaches_broker() -> None:
    sent = message(user={"carrier": "UA"}, keys=["order-1", "", "order-2"])
    system = sent.system_properties
    system.tag = "new"
    system.message_group = "g"
    system.trace_context = "trace"
    system.priority = 3
    system.delivery_timestamp.CopyFrom(timestamp(NOW_MS + 5_000))
    system.orphaned_transaction_recovery_duration.CopyFrom(duration(30_000))
    assert stored(sent).properties == {
        "carrier": "UA",
        "UNIQ_KEY": MESSAGE_ID,
        "TAGS": "new",
        "KEYS": "order-1 order-2",
        "__SHARDINGKEY": "g",
        "TIMER_DELIVER_MS": str(NOW_MS + 5_000),
        "_SYS_MSG_PRIORITY_": "3",
        "CHECK_IMMUNITY_TIME_IN_SECONDS": "30",
        "TRACE_CONTEXT": "trace",
        "__BORNHOST": "client-1",
        "BORN_TIMESTAMP": str(NOW_MS),
        "PGROUP": "shop%orders",
    }
