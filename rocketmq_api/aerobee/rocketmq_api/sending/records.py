"""Turns a client's message into a log record, with the properties that Apache's broker adds.

The message is taken unchanged: its id, its encoded body, its times. Fields that senders may not
decide are ignored: digest, queue, offsets, store time and host, receipt handle, attempt.

`rules.message_checks` says what a message may contain. Most messages are plain: a few checks of all
their text at once show that no rule can be broken, which takes a third of the time. For any other
message, each field is checked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aerobee.rocketmq_api.rules.message_checks import SENDING, TIME_MS_END, SendLimits
from aerobee.rocketmq_api.rules.message_types import MessageType, check_accepted, type_of
from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.rocketmq_api.rules.reserved import is_plain_name
from aerobee.rocketmq_api.sending.checks import check_message
from aerobee.rocketmq_api.times import milliseconds
from aerobee.runtime.errors import PropertiesTooLarge
from aerobee.store.format.message_content import content_digest
from aerobee.store.format.properties import PropertyIllegal, PropertyName, encode_properties
from aerobee.store.format.record import (
    PROPERTIES_BYTES_MAX,
    SYSFLAG_COMPRESSED,
    HostAddress,
    encode_record,
)
from aerobee.store.format.record_encode import body_crc
from aerobee.store.format.reserved_properties import MESSAGE_ID_LENGTH_MAX
from apache.rocketmq.v2 import definition_pb2 as v2

_N: Final = PropertyName
_PLAIN_TYPES: Final = frozenset(
    (v2.MESSAGE_TYPE_UNSPECIFIED, v2.NORMAL, v2.FIFO, v2.DELAY, v2.PRIORITY)
)
_FIFO: Final = MessageType.FIFO
_NORMAL: Final = MessageType.NORMAL
# The separators around names and values, control characters, and the first byte of two-byte ones.
_DOUBTFUL: Final = bytes((*range(0x20), 0x7F, 0xC2))


class Taken(NamedTuple):
    """An accepted message, and what decides where it goes."""

    record: bytes
    """With placeholders for what the broker stamps."""
    message_id: str
    message_type: MessageType
    message_group: str = ""
    """Empty: it belongs to no group."""
    priority: int = -1
    """-1: it has none."""
    deliver_ms: int | None = None
    content: str = ""
    """As `message_content.content_of`, of a message with a time."""


class Circumstances(NamedTuple):
    """What a record contains besides the message: where it goes, where it came from, and when."""

    topic: str
    """As in the store."""
    accepted: tuple[MessageType, ...]
    """What the topic accepts."""
    peer: HostAddress
    now_ms: int
    """When it arrived; used as the born time of a message without one."""
    store_host_ipv6: bool = False
    limits: SendLimits = SENDING
    client: str = ""
    """`message_content.client_mark` of the sender, for messages that it may name later."""


def take_message(message: v2.Message, at: Circumstances) -> Taken:
    """The record of a message.

    Raises:
        Refused: the message may not be sent, or not to this topic.
        PropertiesTooLarge: the properties do not fit into a record.
    """
    return _plainly_taken(message, at) or carefully_taken(message, at)


def carefully_taken(message: v2.Message, at: Circumstances) -> Taken:
    """As `take_message`, checking every field."""
    check_message(message, at.limits, at.now_ms)
    properties = stored_properties(message, at)
    is_half = message.system_properties.message_type == v2.TRANSACTION
    message_type = MessageType.TRANSACTION if is_half else type_of(properties)
    check_accepted(message_type, at.accepted, at.topic)
    system = message.system_properties
    has_time = system.HasField("delivery_timestamp")
    encoded = _encoded(properties)
    return Taken(
        _record(message.body, encoded, system, _born_ms(system, at), at),
        system.message_id,
        message_type,
        properties.get(_N.SHARDING_KEY, ""),
        system.priority if system.HasField("priority") else -1,
        milliseconds(system.delivery_timestamp) if has_time else None,
        content_digest(body_crc(message.body), encoded) if has_time else "",
    )


def _plainly_taken(message: v2.Message, at: Circumstances) -> Taken | None:
    """None if the message has, or may have, anything that `check_message` refuses, or a property
    that is more than text. Each read of a field creates an object: once is enough."""
    system, body, limits = message.system_properties, message.body, at.limits
    message_id, group, born = system.message_id, system.message_group, system.born_timestamp
    born_ms = born.seconds * 1_000 + born.nanos // 1_000_000
    if (
        system.message_type not in _PLAIN_TYPES
        or system.HasField("priority")
        or system.HasField("delivery_timestamp")
        or system.HasField("orphaned_transaction_recovery_duration")
        or system.lite_topic
        or not 0 < len(body) <= limits.body_bytes_max
        or not 0 <= born_ms < TIME_MS_END
        or not 0 < len(message_id) <= MESSAGE_ID_LENGTH_MAX
        or not (message_id.isascii() and message_id.isprintable())
        or " " in message_id
        or len(message.user_properties) > limits.user_properties_max
        or group.isspace()
        or len(group) >= limits.message_group_bytes_end
        or not group.isascii()
    ):
        return None
    message_type = _FIFO if group else _NORMAL
    born_ms = born_ms or at.now_ms
    encoded = _plain_properties(message, message_id, group, born_ms, at)
    if encoded is None or message_type not in at.accepted:
        return None
    return Taken(_record(body, encoded, system, born_ms, at), message_id, message_type, group)


def _plain_properties(
    message: v2.Message, message_id: str, group: str, born_ms: int, at: Circumstances
) -> bytes | None:
    """`stored_properties` of a message without a time, encoded; None if one may be illegal."""
    texts = []
    system, user = message.system_properties, message.user_properties
    for name in user:
        if not is_plain_name(name):
            return None
        if value := user[name]:
            texts.append(f"{name}\x01{value}\x02")
    tag, keys = system.tag, [key for key in system.keys if key]
    if "|" in tag or tag.isspace() or any(map(str.isspace, keys)):
        return None
    texts.append(f"UNIQ_KEY\x01{message_id}\x02")
    if tag:
        texts.append(f"TAGS\x01{tag}\x02")
    if keys:
        texts.append(f"KEYS\x01{' '.join(keys)}\x02")
    if group:
        texts.append(f"__SHARDINGKEY\x01{group}\x02")
    if trace := system.trace_context:
        texts.append(f"TRACE_CONTEXT\x01{trace}\x02")
    if host := system.born_host:
        texts.append(f"__BORNHOST\x01{host}\x02")
    texts.append(f"BORN_TIMESTAMP\x01{born_ms}\x02PGROUP\x01{at.topic}\x02")
    encoded = "".join(texts).encode()
    # Each text has two separators, and the last one four.
    are_clean = len(encoded.translate(None, _DOUBTFUL)) + 2 * len(texts) + 2 == len(encoded)
    return encoded if are_clean and len(encoded) <= at.limits.properties_bytes_max else None


def _record(
    body: bytes, properties: bytes, system: v2.SystemProperties, born_ms: int, at: Circumstances
) -> bytes:
    return encode_record(
        topic=at.topic.encode(),
        body=body,
        properties=properties,
        born_timestamp_ms=born_ms,
        born_host=at.peer,
        sys_flag=SYSFLAG_COMPRESSED if system.body_encoding == v2.GZIP else 0,
        store_host_ipv6=at.store_host_ipv6,
    )


def stored_properties(message: v2.Message, at: Circumstances) -> dict[str, str]:
    """By name, as written into the record; system properties win."""
    system = message.system_properties
    user = message.user_properties
    properties = {name: value for name in user if (value := user[name])}
    properties[_N.UNIQ_KEY] = system.message_id
    if system.tag:
        properties[_N.TAGS] = system.tag
    keys = " ".join(key for key in system.keys if key)
    if keys:
        properties[_N.KEYS] = keys
    if system.message_group:
        properties[_N.SHARDING_KEY] = system.message_group
    if system.HasField("delivery_timestamp"):
        properties[_N.TIMER_DELIVER_MS] = str(milliseconds(system.delivery_timestamp))
    if system.HasField("priority"):
        properties[_N.PRIORITY] = str(system.priority)
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = milliseconds(system.orphaned_transaction_recovery_duration) // 1_000
        properties[_N.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    if system.trace_context:
        properties[_N.TRACE_CONTEXT] = system.trace_context
    if system.born_host:
        properties[_N.BORN_HOST] = system.born_host
    properties[_N.BORN_TIMESTAMP] = str(_born_ms(system, at))
    # Apache's producer group of this API: any producer of the topic may be asked about its
    # transactions.
    properties[_N.PGROUP] = at.topic
    if at.client and (
        system.message_type == v2.TRANSACTION or system.HasField("delivery_timestamp")
    ):
        properties[_N.CLIENT] = at.client
    return properties


def _born_ms(system: v2.SystemProperties, at: Circumstances) -> int:
    return milliseconds(system.born_timestamp) or at.now_ms


def _encoded(properties: dict[str, str]) -> bytes:
    try:
        encoded = encode_properties(properties)
    except PropertyIllegal as error:
        raise Refused(Reason.ILLEGAL_PROPERTY, str(error)) from None
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLarge(
            f"the message's properties have {len(encoded)} bytes in all, at most "
            f"{PROPERTIES_BYTES_MAX} are possible: put large values into the body"
        )
    return encoded
