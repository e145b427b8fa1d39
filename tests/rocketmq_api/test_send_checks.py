"""What a message may be when it is sent: the last value that is taken, the first refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from aerobee.rocketmq_api.codes import status_of
from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.rocketmq_api.rules.refusals import Refused
from aerobee.rocketmq_api.sending.checks import check_message, check_request
from aerobee.rocketmq_api.times import duration, timestamp
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.support.v2_messages import NOW_MS, message

LIMITS = SendLimits()
HOUR_MS = 3_600_000


def refusal(sent: v2.Message) -> int | None:
    try:
        check_message(sent, LIMITS, NOW_MS)
    except Refused as refused:
        return status_of(refused).code
    return None


def with_system(**fields: object) -> v2.Message:
    sent = message()
    sent.system_properties.MergeFrom(v2.SystemProperties(**fields))  # type: ignore[arg-type]
    return sent


def with_tag(tag: str) -> v2.Message:
    return with_system(tag=tag)


def with_key(key: str) -> v2.Message:
    return message(keys=["order-1", key])


def with_group(group: str) -> v2.Message:
    return with_system(message_group=group)


def with_property(name: str, value: str = "x") -> v2.Message:
    return message(user={name: value})


def with_properties(count: int) -> v2.Message:
    return message(user={str(number): "x" for number in range(count)})


def with_bytes(size: int) -> v2.Message:
    """User properties, tag and keys of `size` bytes; two of them are characters of two bytes."""
    sent = message(user={"name": "é" + "x" * (size - 4 - 2 - 5 - 4)}, keys=["käy"])
    sent.system_properties.tag = "title"
    return sent


def with_body(size: int) -> v2.Message:
    return message(b"x" * size)


def with_id(message_id: str) -> v2.Message:
    return message(message_id=message_id)


def due_in(delay_ms: int) -> v2.Message:
    return with_system(delivery_timestamp=timestamp(NOW_MS + delay_ms))


def checked_after(ms: int) -> v2.Message:
    return with_system(orphaned_transaction_recovery_duration=duration(ms))


class Limit(NamedTuple):
    what: str
    make: Callable[..., v2.Message]
    code: v2.Code
    taken: tuple[object, ...]
    refused: tuple[object, ...]


BLANKS = (" ", "\t ", "\u2003")
CONTROLS = ("a\n", "\x00", "\x1f", "\x7f", "a\x85b", "\x9f")
LIMITED = [
    Limit("empty body", with_body, v2.MESSAGE_BODY_EMPTY, (1,), (0,)),
    Limit("large body", with_body, v2.MESSAGE_BODY_TOO_LARGE, (4 << 20,), ((4 << 20) + 1,)),
    Limit(
        "tag",
        with_tag,
        v2.ILLEGAL_MESSAGE_TAG,
        ("", "a", "a b", "订单", " a"),
        ("|", "a|b", "a||b", *BLANKS, *CONTROLS),
    ),
    Limit("key", with_key, v2.ILLEGAL_MESSAGE_KEY, ("", "a", "a b", "订单"), (*BLANKS, *CONTROLS)),
    Limit(
        "message group",
        with_group,
        v2.ILLEGAL_MESSAGE_GROUP,
        ("", "g", "x" * 63, "é" * 31),
        ("x" * 64, "é" * 32, *BLANKS, *CONTROLS),
    ),
    Limit(
        "name of a user property",
        with_property,
        v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
        (
            *("carrier", "名", "a b", "TAG", "REDIRECT"),
            *("__SHARDINGKEY", "__transactionId__", "TRACE_CONTEXT"),
        ),
        (
            *("", "TAGS", "KEYS", "UNIQ_KEY", "DELAY", "TIMER_DELIVER_MS", "TIMER_TO_COME"),
            *("POP_CK", "__CRC32#", "__PRODUCER", "ORIGIN_QUEUE_ID", "DLQ_REASON", "PGROUP"),
            *("_SYS_MSG_PRIORITY_", "TRAN_MSG", "WAIT", "INNER_MULTI_DISPATCH", *CONTROLS),
        ),
    ),
    Limit(
        "value of a user property",
        lambda value: with_property("carrier", value),
        v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
        ("", " ", "UA", "订单"),
        CONTROLS,
    ),
    Limit("user properties", with_properties, v2.MESSAGE_PROPERTIES_TOO_LARGE, (0, 128), (129,)),
    Limit("bytes of properties", with_bytes, v2.MESSAGE_PROPERTIES_TOO_LARGE, (16_384,), (16_385,)),
    Limit(
        "message id",
        with_id,
        v2.ILLEGAL_MESSAGE_ID,
        ("1", "0102FC0000000174BC0B12E21A00000000", "~!", "x" * 255),
        ("", "x" * 256, "a b", "订单-7", "a\u202eb", *BLANKS, *CONTROLS),
    ),
    Limit(
        "time of delivery",
        due_in,
        v2.ILLEGAL_DELIVERY_TIME,
        (-HOUR_MS, 0, 24 * HOUR_MS, -NOW_MS),
        (24 * HOUR_MS + 1, 1 << 62, -NOW_MS - 1),
    ),
    Limit("time until a check", checked_after, v2.BAD_REQUEST, (0, HOUR_MS), (HOUR_MS + 1,)),
    Limit(
        "priority",
        lambda priority: with_system(priority=priority),
        v2.BAD_REQUEST,
        (0, 2**31 - 1),
        (-1,),
    ),
    Limit(
        "time of birth",
        lambda seconds: with_system(
            born_timestamp=v2.SystemProperties().born_timestamp.__class__(seconds=seconds)
        ),
        v2.BAD_REQUEST,
        (1, 253_402_300_799),
        (-(1 << 62), -NOW_MS, (1 << 63) - 1),
    ),
    Limit(
        "trace context",
        lambda text: with_system(trace_context=text),
        v2.BAD_REQUEST,
        ("", "00-4bf92f-00"),
        CONTROLS,
    ),
    Limit(
        "born host",
        lambda text: with_system(born_host=text),
        v2.BAD_REQUEST,
        ("client-1", "10.0.0.7"),
        CONTROLS,
    ),
    Limit(
        "type",
        lambda kind: with_system(message_type=kind),
        v2.NOT_IMPLEMENTED,
        (v2.NORMAL, v2.FIFO, v2.DELAY, v2.PRIORITY, v2.TRANSACTION, 77),
        (v2.LITE,),
    ),
    Limit("lite topic", lambda name: with_system(lite_topic=name), v2.NOT_IMPLEMENTED, (), ("a",)),
]
each_limit = pytest.mark.parametrize("limit", LIMITED, ids=lambda limit: str(limit.what))


@each_limit
def test_what_reaches_a_limit_is_taken(limit: Limit) -> None:
    for value in limit.taken:
        assert refusal(limit.make(value)) is None, value


@each_limit
def test_what_goes_beyond_is_refused_with_the_code_for_it(limit: Limit) -> None:
    for value in limit.refused:
        assert refusal(limit.make(value)) == limit.code, value


def test_a_refusal_does_not_repeat_a_long_text() -> None:
    for sent in (with_tag("|" + "x" * 9_000), with_property("TIMER_" + "x" * 9_000)):
        with pytest.raises(Refused) as refused:
            check_message(sent, LIMITS, NOW_MS)
        assert len(str(refused.value)) < 300


def test_a_request_has_messages_of_one_topic() -> None:
    one, other = message(), message()
    other.topic.name = "payments"
    check_request([one, one])
    for wrong in ([], [one, other]):
        with pytest.raises(Refused) as refused:
            check_request(wrong)
        assert status_of(refused.value).code == v2.MESSAGE_CORRUPTED


def test_what_senders_have_no_say_in_is_not_looked_at() -> None:
    """The client for C++ sends garbage as the attempt of delayed messages."""
    assert (
        refusal(
            with_system(
                delivery_attempt=-7,
                queue_id=-1,
                queue_offset=-1,
                receipt_handle="\n",
                store_host="\n",
                invisible_duration=duration(1 << 60),
            )
        )
        is None
    )
