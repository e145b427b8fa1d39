"""What a message may contain when it is sent: each limit with its code.

Owns: the limits. A message is checked by itself; whether its topic accepts it, and whether its
properties fit into a record, is found out when the record is made (`records.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.rocketmq_api.codes import Refused
from aerobee.rocketmq_api.sending.reserved import may_be_set
from aerobee.rocketmq_api.times import TIME_MS_END, milliseconds
from aerobee.store.format.reserved_properties import MESSAGE_ID_LENGTH_MAX
from apache.rocketmq.v2 import definition_pb2 as v2

_HOUR_MS: Final = 3_600_000
_SHOWN: Final = 40

# Characters that Java calls ISO control.
_CONTROLS: Final = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0))))


@dataclass(frozen=True, slots=True)
class SendLimits:
    """Apache's values."""

    body_bytes_max: int = 4 << 20
    """As received, so for compressed bodies the compressed size; also sent to producers, which
    check it themselves."""
    user_properties_max: int = 128
    properties_bytes_max: int = 16 << 10
    """For names and values of the user's properties, tag and keys, together."""
    message_group_bytes_end: int = 64
    delay_ms_max: int = 24 * _HOUR_MS
    recovery_ms_max: int = _HOUR_MS
    """How long a producer may ask brokers to leave its half messages alone."""


SENDING: Final = SendLimits()
"""Unless a node is configured differently."""


def check_request(messages: Sequence[v2.Message]) -> None:
    """Raises Refused unless they are messages of one topic."""
    if not messages:
        raise Refused(v2.MESSAGE_CORRUPTED, "the request has no message; send at least one")
    if len(messages) == 1:
        return
    topic = messages[0].topic
    if any(message.topic != topic for message in messages):
        raise Refused(
            v2.MESSAGE_CORRUPTED,
            "the messages of the request name different topics; send each topic's by themselves",
        )


def check_message(message: v2.Message, limits: SendLimits, now_ms: int) -> None:
    """Raises Refused. The topic's name is not checked."""
    system = message.system_properties
    _check_body(message.body, limits)
    _check_tag(system.tag)
    for key in system.keys:
        _check_text(v2.ILLEGAL_MESSAGE_KEY, "a message key", key)
    _check_user_properties(message, limits)
    _check_group(system.message_group, limits)
    _check_id(system.message_id)
    _check_kind(system)
    _check_times(system, limits, now_ms)
    for what, text in (
        ("its trace context", system.trace_context),
        ("its born host", system.born_host),
    ):
        if not _CONTROLS.isdisjoint(text):
            raise Refused(v2.BAD_REQUEST, f"{what} has control characters; leave them out")


def _check_body(body: bytes, limits: SendLimits) -> None:
    if not body:
        raise Refused(v2.MESSAGE_BODY_EMPTY, "the message has no body; give it at least one byte")
    if len(body) > limits.body_bytes_max:
        raise Refused(
            v2.MESSAGE_BODY_TOO_LARGE,
            f"the body has {len(body)} bytes, at most {limits.body_bytes_max} are allowed: "
            "compress it, or store it elsewhere and send where it is",
        )


def _check_text(code: v2.Code, what: str, text: str) -> None:
    """For a text that may be empty, which counts as absent."""
    if not text:
        return
    if not text.strip():
        raise Refused(code, f"{what} has blanks only; give it a name or leave it out")
    if not _CONTROLS.isdisjoint(text):
        raise Refused(code, f"{what} has control characters; leave them out")


def _check_tag(tag: str) -> None:
    _check_text(v2.ILLEGAL_MESSAGE_TAG, "the tag", tag)
    if "|" in tag:
        raise Refused(
            v2.ILLEGAL_MESSAGE_TAG,
            f"the tag {tag[:_SHOWN]!r} contains '|', which separates the tags of a filter; use "
            "another character",
        )


def _check_user_properties(message: v2.Message, limits: SendLimits) -> None:
    user, system = message.user_properties, message.system_properties
    if len(user) > limits.user_properties_max:
        raise Refused(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the message has {len(user)} user properties, at most {limits.user_properties_max} "
            "are allowed: put the rest into the body",
        )
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name in user:  # faster than `items` of such a map
        value = user[name]
        size += len(name.encode()) + len(value.encode())
        shown = name[:_SHOWN]
        if not name:
            reason = "a user property has no name; give it one"
        elif not (_CONTROLS.isdisjoint(name) and _CONTROLS.isdisjoint(value)):
            reason = f"user property {shown!r} has control characters; leave them out"
        elif not may_be_set(name, value):
            reason = f"user property {shown!r} has a name that is reserved; use another one"
        else:
            continue
        raise Refused(v2.ILLEGAL_MESSAGE_PROPERTY_KEY, reason)
    if size > limits.properties_bytes_max:
        raise Refused(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"user properties, tag and keys have {size} bytes, at most "
            f"{limits.properties_bytes_max} are allowed: put large values into the body",
        )


def _check_group(group: str, limits: SendLimits) -> None:
    _check_text(v2.ILLEGAL_MESSAGE_GROUP, "the message group", group)
    size = len(group.encode())
    if size >= limits.message_group_bytes_end:
        raise Refused(
            v2.ILLEGAL_MESSAGE_GROUP,
            f"the message group has {size} bytes, at most {limits.message_group_bytes_end - 1} "
            "are allowed: use a shorter one, such as a hash",
        )


def _check_id(message_id: str) -> None:
    if not message_id:
        reason = "the message has no id; its sender makes one"
    elif len(message_id) > MESSAGE_ID_LENGTH_MAX:
        reason = (
            f"the message id has {len(message_id)} characters, at most {MESSAGE_ID_LENGTH_MAX} are "
            "allowed: use a shorter one"
        )
    # What could not be part of a recall handle either.
    elif not (message_id.isascii() and message_id.isprintable()) or " " in message_id:
        reason = "the message id has other than visible ASCII characters; leave them out"
    else:
        return
    raise Refused(v2.ILLEGAL_MESSAGE_ID, reason)


def _check_kind(system: v2.SystemProperties) -> None:
    """Parts of the API that are not supported."""
    if system.message_type == v2.TRANSACTION and (
        system.message_group or system.HasField("delivery_timestamp")
    ):
        raise Refused(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "a message of a transaction has no message group and no time of delivery; leave them "
            "out, or send it when the transaction is done",
        )
    if system.message_type == v2.LITE or system.lite_topic:
        raise Refused(
            v2.NOT_IMPLEMENTED,
            "lite topics are not supported; use a message group or a tag in an ordinary topic",
        )
    if system.HasField("priority") and system.priority < 0:
        raise Refused(
            v2.BAD_REQUEST, f"the priority is {system.priority}; it must be 0 or more, or absent"
        )


def _check_times(system: v2.SystemProperties, limits: SendLimits, now_ms: int) -> None:
    if not 0 <= milliseconds(system.born_timestamp) < TIME_MS_END:
        raise Refused(
            v2.BAD_REQUEST, "the message's time of birth is no time after 1970; set the clock"
        )
    if system.HasField("delivery_timestamp"):
        deliver_ms = milliseconds(system.delivery_timestamp)
        delay_ms = deliver_ms - now_ms
        if delay_ms > limits.delay_ms_max or deliver_ms < 0:
            raise Refused(
                v2.ILLEGAL_DELIVERY_TIME,
                f"the message is to be delivered in {delay_ms} ms, at most {limits.delay_ms_max} "
                "are allowed: choose an earlier time",
            )
    recovery_ms = milliseconds(system.orphaned_transaction_recovery_duration)
    if not 0 <= recovery_ms <= limits.recovery_ms_max:
        raise Refused(
            v2.BAD_REQUEST,
            f"the time until the transaction is checked is {recovery_ms} ms; it must be between 0 "
            f"and {limits.recovery_ms_max}",
        )
