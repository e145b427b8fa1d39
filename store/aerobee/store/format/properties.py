"""The properties of a message as bytes: `name 0x01 value 0x02 name 0x01 value 0x02 ...`

Written with a trailing 0x02, read with or without it. If a name occurs twice, the last one counts;
readers ignore segments without a separator, a name or a value. `find_property` gives the same
answer as `decode_properties`, without decoding the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

NAME_END: Final = b"\x01"
VALUE_END: Final = b"\x02"


class PropertyIllegal(ValueError):
    """A property that cannot be stored: an empty name, a separator inside a name or value, or what
    aerobee.store.format.reserved_properties does not allow."""


class PropertyName:
    """The names that brokers and clients act on; reserved_properties says who may set them."""

    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    UNIQ_KEY: Final = "UNIQ_KEY"
    WAIT: Final = "WAIT"
    DELAY: Final = "DELAY"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QID: Final = "REAL_QID"
    TRAN_MSG: Final = "TRAN_MSG"
    PGROUP: Final = "PGROUP"
    TRANSACTION_ID: Final = "__transactionId__"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"
    MSG_REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    CLUSTER: Final = "CLUSTER"
    MSG_TYPE: Final = "MSG_TYPE"
    INSTANCE_ID: Final = "INSTANCE_ID"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    ARRIVE_TIME: Final = "ARRIVE_TIME"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
    BUYER_ID: Final = "BUYER_ID"
    TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    MQ2_FLAG: Final = "MQ2_FLAG"
    DUP_INFO: Final = "DUP_INFO"
    EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
    INNER_NUM: Final = "INNER_NUM"
    INNER_BASE: Final = "INNER_BASE"
    INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
    POP_CK: Final = "POP_CK"
    POP_CK_OFFSET: Final = "POP_CK_OFFSET"
    FIRST_POP_TIME: Final = "1ST_POP_TIME"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
    REDIRECT: Final = "REDIRECT"
    TRACE_CONTEXT: Final = "TRACE_CONTEXT"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
    TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
    BORN_HOST: Final = "__BORNHOST"
    BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
    CRC32: Final = "__CRC32#"
    ORIGIN_QUEUE_ID: Final = "ORIGIN_QUEUE_ID"
    ORIGIN_QUEUE_OFFSET: Final = "ORIGIN_QUEUE_OFFSET"
    DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
    DLQ_GROUP: Final = "DLQ_GROUP"
    DLQ_ATTEMPTS: Final = "DLQ_ATTEMPTS"
    DLQ_REASON_CLASS: Final = "DLQ_REASON_CLASS"
    DLQ_REASON: Final = "DLQ_REASON"
    DLQ_MEMBER: Final = "DLQ_MEMBER"
    DLQ_TIME_MS: Final = "DLQ_TIME_MS"
    DLQ_RESENDS: Final = "DLQ_RESENDS"
    PRIORITY: Final = "_SYS_MSG_PRIORITY_"
    LITE_TOPIC: Final = "__LITE_TOPIC"
    PRODUCER: Final = "__PRODUCER"
    CLIENT: Final = "__CLIENT"


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The bytes of `properties`, in the mapping's order, each followed by 0x02.

    Raises PropertyIllegal for an empty name and for 0x01 or 0x02 in a name or value.
    """
    parts = []
    for name, value in properties.items():
        if not name:
            raise PropertyIllegal("a property has an empty name; give it one")
        parts.append(f"{name}\x01{value}\x02")
    text = "".join(parts)
    if text.count("\x01") != len(parts) or text.count("\x02") != len(parts):
        # Errors are logged, so they name the property but do not show its value.
        number = next(
            number
            for number, pair in enumerate(properties.items(), 1)
            if any(mark in text for text in pair for mark in "\x01\x02")
        )
        raise PropertyIllegal(
            f"the name or value of property {number} of {len(properties)} contains the byte 0x01 "
            "or 0x02, which separate properties; remove it"
        )
    return _utf_8(text)


def encode_usual_properties(unique_key: str, tag: str = "", keys: str = "") -> bytes:
    """UNIQ_KEY, then TAGS and KEYS unless empty: `encode_properties` for the common message.

    `keys` are joined by single spaces. Raises PropertyIllegal like `encode_properties`.
    """
    text = f"UNIQ_KEY\x01{unique_key}\x02"
    expected = 1
    if tag:
        text = f"{text}TAGS\x01{tag}\x02"
        expected = 2
    if keys:
        text = f"{text}KEYS\x01{keys}\x02"
        expected += 1
    if text.count("\x01") != expected or text.count("\x02") != expected:
        raise PropertyIllegal(
            "the unique key, tag or keys contain the byte 0x01 or 0x02, which separate properties"
        )
    return _utf_8(text)


def _utf_8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise PropertyIllegal(f"a property is not valid text: {error}") from None


def decode_properties(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """The properties that readers see. Bytes that are not UTF-8 become U+FFFD, as in Java."""
    properties: dict[str, str] = {}
    for segment in str(data, "utf-8", "replace").split("\x02"):
        name, _, value = segment.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def replace_properties(data: bytes, changes: Mapping[bytes, bytes | None]) -> bytes:
    """`data` with each name of `changes` set to its value once, at the end; None removes it.

    The other properties stay byte for byte the same. No name or value of `changes` may contain 0x01
    or 0x02. Costs 1 us for a message that has none of the names yet, 3 us for others.
    """
    for name in changes:
        if name in data and name + NAME_END in data:
            segments = data.split(VALUE_END)
            kept = [part for part in segments if part.partition(NAME_END)[0] not in changes]
            data = VALUE_END.join(kept)
            break
    if data and data[-1] != VALUE_END[0]:
        data += VALUE_END
    set_ones = [
        b"%b\x01%b\x02" % (name, value) for name, value in changes.items() if value is not None
    ]
    return data + b"".join(set_ones)


def find_property(buffer: bytes | bytearray, start: int, end: int, name: bytes) -> bytes | None:
    """The value of `name` in the properties at [start, end), or None; the last one counts."""
    needle = name + NAME_END
    search_end = end
    while (position := buffer.rfind(needle, start, search_end)) >= 0:
        # In the middle of a segment the match is part of a longer name or of a value.
        if position == start or buffer[position - 1] == 2:
            value_start = position + len(needle)
            value_end = buffer.find(VALUE_END, value_start, end)
            if value_end < 0:
                value_end = end
            if value_end > value_start:
                return bytes(buffer[value_start:value_end])
        search_end = position + len(needle) - 1
    return None


def find_values(
    buffer: bytes | bytearray, start: int, end: int, needles: Iterable[bytes]
) -> list[str | None]:
    """`find_property` of several names, each given with its 0x01, as text; 0.5 us each."""
    values: list[str | None] = []
    for needle in needles:
        position = buffer.rfind(needle, start, end)
        if position < 0:
            values.append(None)
            continue
        value_start = position + len(needle)
        value_end = buffer.find(VALUE_END, value_start, end)
        if value_end > value_start and (position == start or buffer[position - 1] == 2):
            value: bytes | bytearray | None = buffer[value_start:value_end]
        else:
            value = find_property(buffer, start, end, needle[:-1])
        values.append(None if value is None else value.decode("utf-8", "replace"))
    return values
