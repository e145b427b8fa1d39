"""Records of failed messages: the copy for redelivery, the dead letter, the resent letter.

   back-off      SCHEDULE_TOPIC_XXXX or rmq_sys_wheel_timer, for %RETRY%GROUP queue 0
   dead letter   %DLQ%GROUP queue 0
   resent        %RETRY%GROUP queue 0, or any topic: a message that remembers how often it was
                 resent

A copy keeps body, id, keys, tags, properties and born time and host. It names its origin: topic
(RETRY_TOPIC), the broker's id of the first record (ORIGIN_MESSAGE_ID), and, unlike in Apache's
broker, queue and offset there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from aerobee.store.format.dead_letter_fields import (
    RETRY_PREFIX,
    Death,
    Origin,
    Resend,
    dead_letter_topic,
    origin_of,
    resends_of,
    retry_topic,
)
from aerobee.store.format.delayed_records import (
    WAITING_MARKS,
    Changes,
    Delay,
    Moved,
    waiting_record,
)
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.properties import PropertyName, replace_properties
from aerobee.store.format.record_layout import PROPERTIES_BYTES_MAX
from aerobee.store.format.record_rewrite import rewrite_record
from aerobee.store.format.record_view import Record

RETRIES_MAX: Final = 16
"""Apache's default for a group's `retryMaxTimes`."""
FIRST_RETRY_LEVEL: Final = 3
"""The delay level after the first failure; each further one waits one level longer."""

REASON_CLASS_BYTES_MAX: Final = 128
REASON_BYTES_MAX: Final = 1_024
MEMBER_BYTES_MAX: Final = 255
RESENDS_KEPT_MAX: Final = 16
RESENDS_MAX: Final = 3
"""How often a dead letter may be resent the same way before it counts as a loop."""

_I32_MAX: Final = (1 << 31) - 1
_N: Final = PropertyName
_DEAD_LETTER_MARKS: Final[Changes] = dict.fromkeys(
    name.encode()
    for name in (
        *(_N.RETRY_TOPIC, _N.ORIGIN_MESSAGE_ID, _N.ORIGIN_QUEUE_ID, _N.ORIGIN_QUEUE_OFFSET),
        *(_N.DLQ_ORIGIN_TOPIC, _N.DLQ_ORIGIN_MESSAGE_ID, _N.DLQ_GROUP, _N.DLQ_ATTEMPTS),
        *(_N.DLQ_REASON_CLASS, _N.DLQ_REASON, _N.DLQ_MEMBER, _N.DLQ_TIME_MS),
        *(_N.POP_CK, _N.POP_CK_OFFSET, _N.FIRST_POP_TIME),
    )
)
"""Removes everything that says where and how a message failed."""


class ResendCircle(ValueError):
    """A dead letter that was resent the same way several times, and came back each time."""


# ------------------------------------------------------------------------------------- decisions


def retry_level(
    reconsume_times: int, *, retries_max: int = RETRIES_MAX, asked_level: int = 0
) -> int | None:
    """The delay level until redelivery after a failure; None: it becomes a dead letter.

    `reconsume_times` is the failed message's. `asked_level` is the consumer's: below 0 it gives up,
    0 leaves the choice to the broker. A level above the highest means the highest.
    """
    if asked_level < 0 or reconsume_times >= retries_max:
        return None
    return asked_level or FIRST_RETRY_LEVEL + max(0, reconsume_times)


# ------------------------------------------------------------------------------------- origin


def _origin_changes(origin: Origin) -> dict[bytes, bytes | None]:
    changes: dict[bytes, bytes | None] = {
        b"RETRY_TOPIC": origin.topic.encode(),
        b"ORIGIN_MESSAGE_ID": origin.message_id.encode(),
        b"WAIT": b"false",
    }
    if origin.queue_id >= 0:
        changes[b"ORIGIN_QUEUE_ID"] = b"%d" % origin.queue_id
    if origin.queue_offset >= 0:
        changes[b"ORIGIN_QUEUE_OFFSET"] = b"%d" % origin.queue_offset
    return changes


def _next_times(record: Record) -> int:
    return min(max(0, record.reconsume_times) + 1, _I32_MAX)


# ------------------------------------------------------------------------------------- copies


def retry_record(
    record: Record,
    delay: Delay,
    *,
    group: str,
    store_host_ipv6: bool,
    topic: str | None = None,
) -> Moved:
    """The copy of a failed message, waiting until it is redelivered to `group`.

    `topic` is the retry topic if the group has several. Raises GroupNameTooLong; RecordIllegal if
    the message's properties leave no room: then it cannot be retried, but `dead_letter_record`
    still accepts it. RecordCorrupt.
    """
    return waiting_record(
        record,
        delay,
        topic=retry_topic(group) if topic is None else topic,
        queue_id=0,
        store_host_ipv6=store_host_ipv6,
        changes=_origin_changes(origin_of(record)),
        reconsume_times=_next_times(record),
    )


def shortened_death(death: Death) -> Death:
    """With the texts as a dead letter stores them: all that is needed to make it again."""
    return replace(
        death,
        reason_class=_shortened(death.reason_class, REASON_CLASS_BYTES_MAX).decode(),
        reason=_shortened(death.reason, REASON_BYTES_MAX).decode(),
        member=_shortened(death.member, MEMBER_BYTES_MAX).decode(),
    )


def dead_letter_record(record: Record, death: Death, *, store_host_ipv6: bool) -> Moved:
    """The single copy of a message in its group's dead-letter topic.

    A dead letter is never refused for its size: if the message's own properties leave no room, the
    longest texts about its death are left out first. Raises GroupNameTooLong, RecordCorrupt.
    """
    topic = dead_letter_topic(death.group)
    origin = origin_of(record)
    base = replace_properties(record.properties_bytes, {**WAITING_MARKS, **_DEAD_LETTER_MARKS})
    message_id = record.unique_key or origin.message_id
    told: list[tuple[bytes, bytes]] = [
        *((name, value) for name, value in _origin_changes(origin).items() if value is not None),
        (b"DLQ_ORIGIN_TOPIC", origin.topic.encode()),
        (b"DLQ_ORIGIN_MESSAGE_ID", message_id.encode()),
        (b"DLQ_GROUP", death.group.encode()),
        (b"DLQ_ATTEMPTS", b"%d" % death.attempts),
        (b"DLQ_TIME_MS", b"%d" % death.time_ms),
        (b"DLQ_REASON_CLASS", _shortened(death.reason_class, REASON_CLASS_BYTES_MAX)),
        (b"DLQ_MEMBER", _shortened(death.member, MEMBER_BYTES_MAX)),
        (b"DLQ_REASON", _shortened(death.reason, REASON_BYTES_MAX)),
    ]
    rewritten = rewrite_record(
        record,
        topic=topic.encode(),
        properties=_as_many_as_fit(base, told),
        store_host_ipv6=store_host_ipv6,
        reconsume_times=_next_times(record),
    )
    return Moved(topic, 0, rewritten)


def _as_many_as_fit(properties: bytes, told: Iterable[tuple[bytes, bytes]]) -> bytes:
    """`properties` with as many of `told` as fit, in order."""
    room = PROPERTIES_BYTES_MAX - len(properties) - 1
    changes: dict[bytes, bytes | None] = {}
    for name, value in told:
        size = len(name) + len(value) + 2
        if value and size <= room:
            changes[name] = value
            room -= size
    return replace_properties(properties, changes) if changes else properties


def _shortened(text: str, bytes_max: int) -> bytes:
    """One line of at most `bytes_max` bytes, without property separators."""
    # First cut roughly: a text may be very long.
    plain = " ".join(text[: 4 * bytes_max].split())
    if not plain.isprintable():
        plain = "".join(mark if mark.isprintable() else "?" for mark in plain)
    data = plain.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data
    cut = data[: bytes_max - len("…".encode())].decode("utf-8", "ignore")
    return f"{cut}…".encode()


# ------------------------------------------------------------------------------------- letters


def resent_record(
    record: Record,
    *,
    topic: str,
    queue_id: int,
    now_ms: int,
    store_host_ipv6: bool,
    resends_max: int = RESENDS_MAX,
) -> Moved:
    """A dead letter as an ordinary message of `topic`: attempts start again, its id stays. In its
    group's retry topic it still names its origin.

    The resend is recorded in the message, and stays there if it fails again. Raises ResendCircle if
    it was already resent this way `resends_max` times; RecordIllegal if the entry does not fit any
    more, RecordCorrupt.
    """
    assert resends_max <= RESENDS_KEPT_MAX, "more are not remembered"
    resends = resends_of(record)
    same = [resend for resend in resends if resend[1:] == (record.topic, topic)]
    if len(same) >= resends_max:
        name = record.unique_key or offset_message_id(record.store_host, record.physical_offset)
        raise ResendCircle(
            f"message {name} was resent from "
            f"{record.topic} to {topic} {len(same)} times already and came back each time: repair "
            "the consumer, or drop the message, or allow more resends"
        )
    kept = (*resends, Resend(now_ms, record.topic, topic))[-RESENDS_KEPT_MAX:]
    history = ",".join(f"{resend.time_ms}:{resend.source}>{resend.target}" for resend in kept)
    changes: dict[bytes, bytes | None] = {
        **WAITING_MARKS,
        **_DEAD_LETTER_MARKS,
        b"WAIT": None,
        b"DLQ_RESENDS": history.encode(),
    }
    if topic.startswith(RETRY_PREFIX):
        changes |= _origin_changes(origin_of(record))
    rewritten = rewrite_record(
        record,
        topic=topic.encode(),
        properties=replace_properties(record.properties_bytes, changes),
        store_host_ipv6=store_host_ipv6,
        reconsume_times=0,
    )
    return Moved(topic, queue_id, rewritten)
