"""What the records of failed messages and dead letters contain, and the names of their topics.

Reading only: `retry_records` makes these records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.record_layout import TOPIC_V1_BYTES_MAX
from aerobee.store.format.record_view import Record

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
RETRY_TOPIC_BYTES_MAX: Final = 255

_N: Final = PropertyName


class GroupNameTooLong(ValueError):
    """A group name so long that its retry or dead-letter topic's name would be too long."""


def retry_topic(group: str) -> str:
    """The topic of a group's redelivered messages. Raises GroupNameTooLong."""
    return _topic(RETRY_PREFIX, group, RETRY_TOPIC_BYTES_MAX, "a retry topic")


def dead_letter_topic(group: str) -> str:
    """The topic of a group's dead letters. Raises GroupNameTooLong: the group name has more than
    122 bytes."""
    return _topic(DEAD_LETTER_PREFIX, group, TOPIC_V1_BYTES_MAX, "a dead-letter topic")


def _topic(prefix: str, group: str, bytes_max: int, what: str) -> str:
    group_bytes_max = bytes_max - len(prefix)
    if len(group.encode()) > group_bytes_max:
        raise GroupNameTooLong(
            f"group {group[:40]!r}... has a name of {len(group.encode())} bytes, too long for "
            f"{what}: at most {group_bytes_max} are possible; use a group with a shorter name"
        )
    return prefix + group


class Origin(NamedTuple):
    """Where a message was first stored; -1 for a queue or an offset that its copy does not
    contain."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    """The broker's id, made of host and log position."""


def origin_of(record: Record) -> Origin:
    """The origin of a consumed message, from its own topic or a copy."""
    topic = record.property_value(_N.RETRY_TOPIC)
    message_id = record.property_value(_N.ORIGIN_MESSAGE_ID)
    if topic is None and message_id is None:
        return Origin(
            record.topic, record.queue_id, record.queue_offset, _offset_message_id(record)
        )
    return Origin(
        record.topic if topic is None else topic,
        _number(record, _N.ORIGIN_QUEUE_ID, -1),
        _number(record, _N.ORIGIN_QUEUE_OFFSET, -1),
        _offset_message_id(record) if message_id is None else message_id,
    )


def _offset_message_id(record: Record) -> str:
    return offset_message_id(record.store_host, record.physical_offset)


def _number(record: Record, name: str, otherwise: int) -> int:
    value = record.property_value(name) or ""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else otherwise


@dataclass(frozen=True, slots=True)
class Death:
    """Why a message is a dead letter. Texts may have any length and content: they are shortened."""

    group: str
    attempts: int
    """How often it was delivered to the group."""
    time_ms: int
    reason_class: str = ""
    """The class of the last exception, or another short name."""
    reason: str = ""
    member: str = ""
    """The member that tried last."""


class Resend(NamedTuple):
    """One route by which a dead letter was resent."""

    time_ms: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What a record in a dead-letter topic contains. Those of Apache's brokers have only the
    origin's topic and id; the rest is empty, 0 or -1."""

    origin: Origin
    death: Death
    resends: tuple[Resend, ...]


def read_dead_letter(record: Record) -> DeadLetter:
    """Parse a record of a dead-letter topic; unreadable values count as absent."""
    value = record.property_value
    return DeadLetter(
        origin_of(record),
        Death(
            group=value(_N.DLQ_GROUP) or record.topic.removeprefix(DEAD_LETTER_PREFIX),
            attempts=_number(record, _N.DLQ_ATTEMPTS, record.reconsume_times),
            time_ms=_number(record, _N.DLQ_TIME_MS, record.store_timestamp_ms),
            reason_class=value(_N.DLQ_REASON_CLASS) or "",
            reason=value(_N.DLQ_REASON) or "",
            member=value(_N.DLQ_MEMBER) or "",
        ),
        resends_of(record),
    )


def resends_of(record: Record) -> tuple[Resend, ...]:
    """How a message was resent so far, oldest first: the newest 16."""
    found = []
    for word in (record.property_value(_N.DLQ_RESENDS) or "").split(","):
        time_ms, _, way = word.partition(":")
        source, arrow, target = way.partition(">")
        if arrow and time_ms.isascii() and time_ms.isdigit() and len(time_ms) < 20:
            found.append(Resend(int(time_ms), source, target))
    return tuple(found)
