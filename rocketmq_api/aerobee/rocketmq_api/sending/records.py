"""A client's message as a record of the log, with the properties that Apache's broker gives it.

The message is taken as it is: its id, its body with its encoding, its times. What senders have no
say in is ignored: digest, queue, offsets, store time and host, receipt handle, attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.rocketmq_api.codes import Refused
from aerobee.rocketmq_api.sending.message_types import check_accepted, type_of
from aerobee.rocketmq_api.times import milliseconds
from aerobee.runtime.errors import PropertiesTooLarge
from aerobee.store_format.properties import PropertyIllegal, PropertyName, encode_properties
from aerobee.store_format.record import (
    PROPERTIES_BYTES_MAX,
    SYSFLAG_COMPRESSED,
    HostAddress,
    encode_record,
)
from apache.rocketmq.v2 import definition_pb2 as v2

_N: Final = PropertyName


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that was taken, and what decides where it goes."""

    record: bytes
    """With placeholders for what the broker stamps."""
    message_id: str
    message_type: v2.MessageType
    message_group: str
    """Empty: the message belongs to none."""
    priority: int
    """-1: it has none."""
    deliver_ms: int | None


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a record says beside the message: where it goes, whence and when it came."""

    topic: str
    """As the store calls it."""
    accepted: tuple[v2.MessageType, ...]
    """What the topic takes."""
    peer: HostAddress
    now_ms: int
    """When it came; the time of birth of a message that does not tell its own."""
    store_host_ipv6: bool = False


def take_message(message: v2.Message, at: Circumstances) -> Taken:
    """The record of a message that `check_message` has passed.

    Raises:
        Refused: the topic does not take messages of this type.
        PropertiesTooLarge: the properties do not fit into a record.
    """
    properties = stored_properties(message, at)
    message_type = type_of(properties)
    check_accepted(message_type, at.accepted, at.topic)
    system = message.system_properties
    is_gzip = system.body_encoding == v2.GZIP
    has_time = system.HasField("delivery_timestamp")
    return Taken(
        record=encode_record(
            topic=at.topic.encode(),
            body=message.body,
            properties=_encoded(properties),
            born_timestamp_ms=_born_ms(system, at),
            born_host=at.peer,
            sys_flag=SYSFLAG_COMPRESSED if is_gzip else 0,
            store_host_ipv6=at.store_host_ipv6,
        ),
        message_id=system.message_id,
        message_type=message_type,
        message_group=properties.get(_N.SHARDING_KEY, ""),
        priority=system.priority if system.HasField("priority") else -1,
        deliver_ms=milliseconds(system.delivery_timestamp) if has_time else None,
    )


def stored_properties(message: v2.Message, at: Circumstances) -> dict[str, str]:
    """By name, as they are written into the record; what the system sets wins."""
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
    # Apache's producer group of this API: transactions are checked with any producer of the topic.
    properties[_N.PGROUP] = at.topic
    return properties


def _born_ms(system: v2.SystemProperties, at: Circumstances) -> int:
    return milliseconds(system.born_timestamp) or at.now_ms


def _encoded(properties: dict[str, str]) -> bytes:
    try:
        encoded = encode_properties(properties)
    except PropertyIllegal as error:
        raise Refused(v2.ILLEGAL_MESSAGE_PROPERTY_KEY, str(error)) from None
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLarge(
            f"the message's properties have {len(encoded)} bytes in all, at most "
            f"{PROPERTIES_BYTES_MAX} are possible: put large values into the body"
        )
    return encoded
