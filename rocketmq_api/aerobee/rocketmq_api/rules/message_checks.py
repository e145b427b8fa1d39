"""What a message may contain when it is sent: each limit with its reason.

Owns: the limits. Whether the topic accepts the message, and whether its properties fit into a
record, is found out when the record is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.rocketmq_api.rules.reserved import may_be_set
from aerobee.store.format.reserved_properties import MESSAGE_ID_LENGTH_MAX

TIME_MS_END: Final = 1 << 63
"""The first time that a record cannot hold."""

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


def check_body(body: bytes, limits: SendLimits) -> None:
    """Raises Refused with BODY_EMPTY or BODY_TOO_LARGE."""
    if not body:
        raise Refused(Reason.BODY_EMPTY, "the message has no body; give it at least one byte")
    if len(body) > limits.body_bytes_max:
        raise Refused(
            Reason.BODY_TOO_LARGE,
            f"the body has {len(body)} bytes, at most {limits.body_bytes_max} are allowed: "
            "compress it, or store it elsewhere and send where it is",
        )


def _check_text(reason: Reason, what: str, text: str) -> None:
    """For a text that may be empty, which counts as absent."""
    if not text:
        return
    if not text.strip():
        raise Refused(reason, f"{what} has blanks only; give it a name or leave it out")
    if not _CONTROLS.isdisjoint(text):
        raise Refused(reason, f"{what} has control characters; leave them out")


def check_no_controls(what: str, text: str) -> None:
    """Raises Refused with MALFORMED."""
    if not _CONTROLS.isdisjoint(text):
        raise Refused(Reason.MALFORMED, f"{what} has control characters; leave them out")


def check_tag(tag: str) -> None:
    """Raises Refused with ILLEGAL_TAG."""
    _check_text(Reason.ILLEGAL_TAG, "the tag", tag)
    if "|" in tag:
        raise Refused(
            Reason.ILLEGAL_TAG,
            f"the tag {tag[:_SHOWN]!r} contains '|', which separates the tags of a filter; use "
            "another character",
        )


def check_keys(keys: Iterable[str]) -> None:
    """Raises Refused with ILLEGAL_KEY."""
    for key in keys:
        _check_text(Reason.ILLEGAL_KEY, "a message key", key)


def check_user_properties(
    user: Mapping[str, str], tag: str, keys: Iterable[str], limits: SendLimits
) -> None:
    """Raises Refused with PROPERTIES_TOO_LARGE or ILLEGAL_PROPERTY."""
    if len(user) > limits.user_properties_max:
        raise Refused(
            Reason.PROPERTIES_TOO_LARGE,
            f"the message has {len(user)} user properties, at most {limits.user_properties_max} "
            "are allowed: put the rest into the body",
        )
    size = len(tag.encode()) + sum(len(key.encode()) for key in keys)
    for name in user:  # faster than `items` of protobuf's maps
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
        raise Refused(Reason.ILLEGAL_PROPERTY, reason)
    if size > limits.properties_bytes_max:
        raise Refused(
            Reason.PROPERTIES_TOO_LARGE,
            f"user properties, tag and keys have {size} bytes, at most "
            f"{limits.properties_bytes_max} are allowed: put large values into the body",
        )


def check_message_group(group: str, limits: SendLimits) -> None:
    """Raises Refused with ILLEGAL_MESSAGE_GROUP."""
    _check_text(Reason.ILLEGAL_MESSAGE_GROUP, "the message group", group)
    size = len(group.encode())
    if size >= limits.message_group_bytes_end:
        raise Refused(
            Reason.ILLEGAL_MESSAGE_GROUP,
            f"the message group has {size} bytes, at most {limits.message_group_bytes_end - 1} "
            "are allowed: use a shorter one, such as a hash",
        )


def check_message_id(message_id: str) -> None:
    """Raises Refused with ILLEGAL_MESSAGE_ID."""
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
    raise Refused(Reason.ILLEGAL_MESSAGE_ID, reason)


def check_half(*, has_message_group: bool, has_time: bool) -> None:
    """For a message of a transaction. Raises Refused with TYPE_CONFLICT."""
    if has_message_group or has_time:
        raise Refused(
            Reason.TYPE_CONFLICT,
            "a message of a transaction has no message group and no time of delivery; leave them "
            "out, or send it when the transaction is done",
        )


def check_priority(priority: int) -> None:
    """Raises Refused with MALFORMED."""
    if priority < 0:
        raise Refused(
            Reason.MALFORMED, f"the priority is {priority}; it must be 0 or more, or absent"
        )


def check_born_time(born_ms: int) -> None:
    """Raises Refused with MALFORMED."""
    if not 0 <= born_ms < TIME_MS_END:
        raise Refused(
            Reason.MALFORMED, "the message's time of birth is no time after 1970; set the clock"
        )


def check_delivery_time(deliver_ms: int, limits: SendLimits, now_ms: int) -> None:
    """Raises Refused with ILLEGAL_DELIVERY_TIME."""
    delay_ms = deliver_ms - now_ms
    if delay_ms > limits.delay_ms_max or deliver_ms < 0:
        raise Refused(
            Reason.ILLEGAL_DELIVERY_TIME,
            f"the message is to be delivered in {delay_ms} ms, at most {limits.delay_ms_max} "
            "are allowed: choose an earlier time",
        )


def check_recovery_time(recovery_ms: int, limits: SendLimits) -> None:
    """How long a half message is left alone. Raises Refused with MALFORMED."""
    if not 0 <= recovery_ms <= limits.recovery_ms_max:
        raise Refused(
            Reason.MALFORMED,
            f"the time until the transaction is checked is {recovery_ms} ms; it must be between 0 "
            f"and {limits.recovery_ms_max}",
        )
