"""The attributes of a topic that have a meaning for us: their names and allowed values.

Others are stored unchanged, because Apache's brokers and users' tools have their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.domain.names import check_text
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.printable import printable

KEEP_UNREAD_MAX_BYTES = "keep_unread_max_bytes"
"""Unread messages of the topic keep the log only while at most this many bytes follow them; 0: they
never do. Without the attribute they always keep it."""

KEEP_MS = "keep_ms"
"""The topic keeps its messages for this long after they were stored; without the attribute, for as
long as the log has them."""

KEEP_BYTES = "keep_bytes"
"""Each queue of the topic keeps at most this many bytes of its newest messages, and always its
newest one."""

KEEP_MS_MIN = 1_000

MESSAGE_TYPE = "message.type"
"""Which messages official clients may send to the topic, with Apache RocketMQ's names."""

MESSAGE_TYPES = (
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
    "PRIORITY",
    "LITE",
    "MIXED",
    "UNSPECIFIED",
)

DECLARED_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED")
"""Those that a person declares; a topic may have any of `MESSAGE_TYPES`."""

_DIGITS_MAX = 18


def check_topic_attributes(attributes: Mapping[str, str]) -> None:
    """Raises InvalidArgument for an invalid value, an empty name, or text that cannot be shown; an
    empty value stands for a removal."""
    for name, value in attributes.items():
        if not name:
            raise InvalidArgument(
                f"an attribute with the value {printable(value)[:80]!r} has no name"
            )
        check_text("attribute", name)
        check_text(f"the value of attribute {name}", value)
    text = attributes.get(KEEP_UNREAD_MAX_BYTES, "")
    if text and _number_of(text) is None:
        raise InvalidArgument(
            f"attribute {KEEP_UNREAD_MAX_BYTES} must be a number of bytes, 0 or more, not {text!r}"
        )
    for name, unit, least in ((KEEP_MS, "milliseconds", KEEP_MS_MIN), (KEEP_BYTES, "bytes", 1)):
        text = attributes.get(name, "")
        if text and (_number_of(text) or 0) < least:
            raise InvalidArgument(
                f"attribute {name} must be a number of {unit}, {least} or more, not {text!r}"
            )
    text = attributes.get(MESSAGE_TYPE, "")
    if text and text not in MESSAGE_TYPES:
        raise InvalidArgument(
            f"attribute {MESSAGE_TYPE} must be one of {', '.join(MESSAGE_TYPES)}, not {text!r}"
        )


def keeps_order(attributes: Mapping[str, str], *, is_ordered: bool) -> bool:
    """Whether it matters in which order a topic's messages of one key are handled. `is_ordered`:
    the topic says so itself."""
    return is_ordered or topic_type(attributes) == "FIFO"


def topic_type(attributes: Mapping[str, str]) -> str:
    """The value of `message.type`, NORMAL without one; others may have set a value that is unknown
    here."""
    return attributes.get(MESSAGE_TYPE) or "NORMAL"


def keep_unread_max_bytes(attributes: Mapping[str, str]) -> int | None:
    """None: no limit; also for an unchecked value that cannot be read."""
    return _number_of(attributes.get(KEEP_UNREAD_MAX_BYTES, ""))


def keep_ms(attributes: Mapping[str, str]) -> int | None:
    """None: as long as the log has them; also for an unchecked value that cannot be."""
    value = _number_of(attributes.get(KEEP_MS, ""))
    return value if value is not None and value >= KEEP_MS_MIN else None


def keep_bytes(attributes: Mapping[str, str]) -> int | None:
    """Of each queue. None: no limit; also for an unchecked value that cannot be."""
    return _number_of(attributes.get(KEEP_BYTES, "")) or None


def _number_of(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else None
