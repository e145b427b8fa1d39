"""Records of messages to be delivered later: how they wait in system topics, and how they are
delivered.

   delay level   SCHEDULE_TOPIC_XXXX, the level's queue    DELAY
   a time        rmq_sys_wheel_timer, queue 0              TIMER_OUT_MS, TIMER_DELIVER_MS

Both keep the message's topic and queue in REAL_TOPIC and REAL_QID. TIMER_OUT_MS names a slot of
Apache's timer wheel, which Apache's broker delivers when the slot is over; this broker uses
TIMER_DELIVER_MS, which is in the slot or at its end, or without one the end of the slot. So neither
is early. All these properties stay in the message when it is delivered: only its topic shows
whether it still waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aerobee.store.format.delay_levels import DELAY_MAX_MS, DelayLevels
from aerobee.store.format.properties import (
    NAME_END,
    VALUE_END,
    find_property,
    replace_properties,
)
from aerobee.store.format.property_crc import PROPERTY_CRC_NAME
from aerobee.store.format.record_encode import encode_record, properties_too_large
from aerobee.store.format.record_layout import (
    PROPERTIES_BYTES_MAX,
    SYSFLAG_TRANSACTION_PREPARED,
    HostAddress,
    is_topic_storable,
)
from aerobee.store.format.record_rewrite import fitting_properties, rewrite_record
from aerobee.store.format.record_view import Record
from aerobee.store.format.tags import SCHEDULE_TOPIC

PRECISION_MS: Final = 1_000
"""Apache's default for the length of one slot of its timer wheel."""

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"

MOVING_BYTES_MAX: Final = 256
"""How much the properties of a waiting record may still grow until its message is delivered: when
and how often it was moved, and a time instead of a level."""

Changes = Mapping[bytes, bytes | None]
"""Properties to set, or to remove (None)."""

_DELAY: Final = b"DELAY"
_REAL_TOPIC: Final = b"REAL_TOPIC"
_REAL_QID: Final = b"REAL_QID"
_OUT: Final = b"TIMER_OUT_MS"
_DELIVER: Final = b"TIMER_DELIVER_MS"
_DELAY_SEC: Final = b"TIMER_DELAY_SEC"
_DELAY_MS: Final = b"TIMER_DELAY_MS"
_ENQUEUED: Final = b"TIMER_ENQUEUE_MS"
_DEQUEUED: Final = b"TIMER_DEQUEUE_MS"
_ROLL_TIMES: Final = b"TIMER_ROLL_TIMES"
_DELETES: Final = b"TIMER_DEL_UNIQKEY"
_HALF: Final = b"TRAN_MSG"
_CLIENT: Final = b"__CLIENT"

_TIMER_NAMES: Final = tuple(
    name + NAME_END for name in (_OUT, _DELIVER, _DELETES, _REAL_TOPIC, b"UNIQ_KEY")
)
REQUESTS: Final = (_DELAY_SEC, _DELAY_MS, _DELIVER)
"""The properties with which a client asks for a delay; the first one present counts."""
_NO_REQUESTS: Final[Changes] = dict.fromkeys(REQUESTS)

WAITING_MARKS: Final[Changes] = dict.fromkeys(
    (
        *(_DELAY, _REAL_TOPIC, _REAL_QID, *REQUESTS),
        *(_OUT, _ENQUEUED, _DEQUEUED, _ROLL_TIMES, b"TIMER_DELAY_LEVEL"),
    )
)
"""Removes everything that says a message waits or has waited."""

_MOVING_MARKS: Final[Changes] = dict.fromkeys((_OUT, _DELIVER, _ENQUEUED, _DEQUEUED, _ROLL_TIMES))
"""What MOVING_BYTES_MAX is for."""

_NOT_DELIVERED_TO: Final = frozenset(
    name.encode() for name in (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)
)
_DIGITS_MAX: Final = 18
_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,%d}" % _DIGITS_MAX)
_UNUSUAL: Final = (b"REAL_", _OUT, _HALF, PROPERTY_CRC_NAME.to_bytes(8, "big"))
"""What a record that waits has once, or must not have, or only at its end."""
_ANY_REQUEST: Final = b"DEL"
"""It occurs in the names of all requests, and of recalls."""
_DELIVER_START: Final = _DELIVER + NAME_END
_DELIVER_TIME: Final = re.compile(
    VALUE_END + _DELIVER_START + b"([1-9][0-9]{0,%d})" % (_DIGITS_MAX - 1) + VALUE_END
)


class DelayIllegal(ValueError):
    """A client's message that asks for an impossible time."""


class NotDelayed(ValueError):
    """A record in a system topic from which nothing can be delivered."""


class Delay(NamedTuple):
    """How long a message waits: by a level of at least 1 or, if that is 0, until a time (Unix
    ms)."""

    level: int = 0
    deliver_ms: int = 0


class Moved(NamedTuple):
    """A record to be stored, with placeholders for what the broker stamps."""

    topic: str
    queue_id: int
    record: bytes


@dataclass(frozen=True, slots=True)
class DelayRules:
    """What a broker allows; `delay_ms_max` applies to times, levels are capped at the highest."""

    levels: DelayLevels = field(default_factory=DelayLevels.parse)
    delay_ms_max: int = DELAY_MAX_MS


# ------------------------------------------------------------------------------------- requests


def requested_delay(properties: bytes, now_ms: int, rules: DelayRules) -> Delay | None:
    """The delay that a message asks for; None: none. The time may have passed.

    Raises DelayIllegal: the value is not a number, the time is too far away, the message is also a
    half message of a transaction, or it recalls one whose time has passed.
    """
    end = len(properties)
    # Searching for the bytes costs a tenth of looking up the property.
    level = (_number(properties, _DELAY) or 0) if _DELAY in properties else 0
    if level > 0:
        _refuse_half(properties)
        return Delay(level=rules.levels.capped(level) if len(rules.levels) else level)
    deliver_ms = _requested_time(properties, now_ms)
    # A message with the time of a slot has already been delivered from the timer topic.
    if deliver_ms is None or (_OUT in properties and find_property(properties, 0, end, _OUT)):
        return None
    if deliver_ms <= now_ms and find_property(properties, 0, end, _DELETES) is not None:
        raise DelayIllegal("it recalls a message whose time is past; nothing can be recalled")
    _refuse_half(properties)
    if deliver_ms - now_ms > rules.delay_ms_max:
        raise DelayIllegal(
            f"it asks to be delivered in {deliver_ms - now_ms} ms, at most {rules.delay_ms_max} "
            "are allowed: choose an earlier time"
        )
    return Delay(deliver_ms=deliver_ms)


def _requested_time(properties: bytes, now_ms: int) -> int | None:
    for name in REQUESTS:
        value = _number(properties, name) if name in properties else None
        if value is not None:
            if name is _DELIVER:
                return value
            return now_ms + value * (1_000 if name is _DELAY_SEC else 1)
    return None


def _number(properties: bytes, name: bytes) -> int | None:
    value = find_property(properties, 0, len(properties), name)
    if value is None:
        return None
    if _NUMBER.fullmatch(value) is None:
        raise DelayIllegal(f"its property {name.decode()} is no whole number; correct it")
    return int(value)


def _refuse_half(properties: bytes) -> None:
    if _HALF in properties and find_property(properties, 0, len(properties), _HALF) == b"true":
        raise DelayIllegal(
            "it is part of a transaction and asks for a later delivery, and cannot be both; leave "
            "one of them out"
        )


# ------------------------------------------------------------------------------------- waiting


def timer_slot_ms(deliver_ms: int) -> int:
    """TIMER_OUT_MS for a time: the start of the slot that contains it or ends with it."""
    return (deliver_ms - 1) // PRECISION_MS * PRECISION_MS


def waiting_record(
    record: Record,
    delay: Delay,
    *,
    topic: str,
    queue_id: int,
    store_host_ipv6: bool,
    changes: Changes | None = None,
    reconsume_times: int | None = None,
) -> Moved:
    """The record that waits until its message is due in `topic`, `queue_id`.

    `changes` are additional properties; `reconsume_times` None: unchanged. Raises RecordIllegal if
    the properties do not fit any more, now or at delivery; RecordCorrupt.
    """
    target: dict[bytes, bytes | None] = {} if changes is None else dict(changes)
    target[_REAL_TOPIC] = topic.encode()
    target[_REAL_QID] = b"%d" % queue_id
    moved_to = waiting_queue(delay)
    rewritten = rewrite_record(
        record,
        topic=moved_to[0].encode(),
        properties=_waiting_properties(record.properties_bytes, delay, target),
        store_host_ipv6=store_host_ipv6,
        reconsume_times=reconsume_times,
    )
    return Moved(*moved_to, rewritten)


def waiting_queue(delay: Delay) -> tuple[str, int]:
    """Topic and queue in which a message waits."""
    return (SCHEDULE_TOPIC, delay.level - 1) if delay.level else (TIMER_TOPIC, 0)


def waiting_properties(properties: bytes, delay: Delay, *, topic: str, queue_id: int) -> bytes:
    """The properties of the record that waits for `topic`, `queue_id`. Raises RecordIllegal if they
    do not fit any more, now or at delivery."""
    target: dict[bytes, bytes | None] = {
        _REAL_TOPIC: topic.encode(),
        _REAL_QID: b"%d" % queue_id,
    }
    return fitting_properties(_waiting_properties(properties, delay, target))


def only_times(properties: Sequence[bytes]) -> list[int] | None:
    """The times of messages if each has one, in TIMER_DELIVER_MS, and nothing else in them is about
    a delay, a transaction or a move: as our producers and most others send them. None says nothing.
    Costs a tenth of `requested_delay`."""
    joined = b"".join(properties)
    if joined.count(_ANY_REQUEST) != len(properties) or any(each in joined for each in _UNUSUAL):
        return None
    # One each: there are as many as messages, and each message has one.
    if not all(_DELIVER_START in each for each in properties):
        return None
    found = _DELIVER_TIME.findall(VALUE_END + VALUE_END.join(properties))
    return list(map(int, found)) if len(found) == len(properties) else None


def timed_properties(
    properties: Sequence[bytes], times: Sequence[int], *, topic: str, queue_id: int
) -> list[bytes] | None:
    """As `waiting_properties`, byte for byte, for messages with `only_times`. None: one of them
    has no room."""
    target = b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02TIMER_OUT_MS\x01" % (topic.encode(), queue_id)
    size_max = PROPERTIES_BYTES_MAX - MOVING_BYTES_MAX
    waiting: list[bytes] = []
    known_slot_ms, added = -1, b""
    for text, deliver_ms in zip(properties, times, strict=True):
        slot_ms = timer_slot_ms(deliver_ms)
        if slot_ms != known_slot_ms:
            known_slot_ms, added = slot_ms, b"%b%d\x02" % (target, slot_ms)
        end = b"" if text[-1] == VALUE_END[0] else VALUE_END
        if len(text) + len(added) + 1 > size_max:
            return None
        waiting.append(text + end + added)
    return waiting


def _waiting_properties(
    properties: bytes, delay: Delay, target: dict[bytes, bytes | None]
) -> bytes:
    """`target` holds additional properties to set; it is consumed."""
    if delay.level:
        target.update(_NO_REQUESTS)
        asked, value = _DELAY, b"%d" % delay.level
    else:
        # With a level, Apache's broker would delay it again when its time has come.
        target[_DELAY] = None
        target[_OUT] = b"%d" % timer_slot_ms(delay.deliver_ms)
        asked, value = _DELIVER, b"%d" % delay.deliver_ms
    # Usually unchanged from what the sender wrote: then the properties need not be parsed.
    if find_property(properties, 0, len(properties), asked) != value:
        target[asked] = value
    waiting = replace_properties(properties, target)
    _check_room_to_move(waiting)
    return waiting


def _check_room_to_move(properties: bytes) -> None:
    """A message that cannot be delivered when its time comes would be lost."""
    limit = PROPERTIES_BYTES_MAX - MOVING_BYTES_MAX
    if len(properties) <= limit:
        return
    # Marks that it already carries are replaced, which makes room.
    size = len(replace_properties(properties, _MOVING_MARKS))
    if size > limit:
        raise properties_too_large(size, limit)


def recall_record(
    *,
    topic: str,
    unique_key: str,
    deliver_ms: int,
    now_ms: int,
    host: HostAddress,
) -> Moved:
    """The record with which Apache's broker drops a waiting message: same slot, no content.

    `deliver_ms` is that of the waiting message. `host` is this broker's.
    """
    key = unique_key.encode()
    slot_ms = timer_slot_ms(deliver_ms)
    properties = replace_properties(
        b"",
        {
            _DELETES: topic.encode() + b"+" + key,
            b"UNIQ_KEY": key,
            b"TAGS": b"_RECALL_TAG_",
            _DELIVER: b"%d" % (slot_ms + 1),
            _OUT: b"%d" % slot_ms,
            _REAL_TOPIC: topic.encode(),
            _REAL_QID: b"0",
        },
    )
    record = encode_record(
        topic=TIMER_TOPIC.encode(),
        body=b"0",
        properties=properties,
        born_timestamp_ms=now_ms,
        born_host=host,
        store_host_ipv6=host.is_ipv6,
    )
    return Moved(TIMER_TOPIC, 0, record)


# ------------------------------------------------------------------------------------- delivery


def timer_due_ms(record: Record) -> int:
    """When a record of the timer topic is due. Raises NotDelayed."""
    return timer_facts(record).due_ms


class TimerFacts(NamedTuple):
    """What a record of the timer topic says of itself. `recalls`: what it recalls, `topic+unique
    key`, or only the key (Apache up to 5.3.1); None for a message."""

    due_ms: int
    recalls: str | None
    topic: str
    unique_key: str


def timer_facts(record: Record) -> TimerFacts:
    """Raises NotDelayed; RecordCorrupt."""
    slot, deliver, recalled, topic, unique_key = record.property_values(_TIMER_NAMES)
    slot_ms, deliver_ms = _time_of(record, _OUT, slot), _time_of(record, _DELIVER, deliver)
    if slot_ms is None:
        raise NotDelayed(f"the timer message at {record.physical_offset} has no TIMER_OUT_MS")
    return TimerFacts(_due_ms(slot_ms, deliver_ms), recalled, topic or "", unique_key or "")


def _due_ms(slot_ms: int, deliver_ms: int | None) -> int:
    end_ms = slot_ms + PRECISION_MS
    return deliver_ms if deliver_ms is not None and slot_ms < deliver_ms <= end_ms else end_ms


def _time_of(record: Record, name: bytes, value: str | None) -> int | None:
    if value is None:
        return None
    if value.isdecimal() and value.isascii() and len(value) <= _DIGITS_MAX:
        return int(value)
    try:
        return _number(record.properties_bytes, name)
    except DelayIllegal as error:
        raise NotDelayed(f"the timer message at {record.physical_offset}: {error}") from None


def recalls(record: Record) -> str | None:
    """What a record of the timer topic recalls, see `TimerFacts`; None for a message."""
    return record.property_value(_DELETES.decode())


def destination(record: Record) -> tuple[str, int]:
    """Topic and queue to which a waiting record is delivered.

    Raises NotDelayed if it names none; also for a half message, which Apache's broker drops too,
    since nothing could commit it any more.
    """
    properties = record.properties_bytes
    end = len(properties)
    topic = find_property(properties, 0, end, _REAL_TOPIC) or b""
    queue_id = find_property(properties, 0, end, _REAL_QID) or b""
    if not (is_topic_storable(topic) and queue_id.isdigit() and len(queue_id) < 10):
        raise NotDelayed(
            f"the message at {record.physical_offset} in {record.topic} does not name the topic "
            "and the queue that it is for"
        )
    if topic in _NOT_DELIVERED_TO:
        raise NotDelayed(
            f"the message at {record.physical_offset} in {record.topic} is for "
            f"{topic.decode()}, to which nothing is delivered"
        )
    return topic.decode("utf-8", "replace"), int(queue_id)


def due_record(record: Record, *, now_ms: int, store_host_ipv6: bool) -> Moved:
    """The message as it is delivered from one of the two topics, at `now_ms`.

    Raises NotDelayed; RecordIllegal if the properties do not fit any more, RecordCorrupt.
    """
    topic, queue_id = destination(record)
    properties = record.properties_bytes
    if record.topic == TIMER_TOPIC:
        changes = _moving_marks(record, now_ms)
        if _CLIENT in properties:
            changes[_CLIENT] = None
        properties = replace_properties(properties, changes)
    rewritten = rewrite_record(
        record, topic=topic.encode(), properties=properties, store_host_ipv6=store_host_ipv6
    )
    return Moved(topic, queue_id, rewritten)


def rolled_record(record: Record, *, due_ms: int, now_ms: int, store_host_ipv6: bool) -> Moved:
    """The record that continues to wait in place of `record`, so that the log before it can be
    deleted.

    A message with a level continues to wait in the timer topic: in the schedule topic its delay
    would start again. `due_ms` is that of `record`. Raises RecordIllegal, RecordCorrupt.
    """
    properties = record.properties_bytes
    rolls = find_property(properties, 0, len(properties), _ROLL_TIMES) or b"0"
    changes: dict[bytes, bytes | None] = {
        **_moving_marks(record, now_ms),
        _ROLL_TIMES: b"%d" % (int(rolls) + 1 if rolls.isdigit() else 1),
    }
    if record.topic != TIMER_TOPIC:
        changes[_DELAY] = None
        changes[_OUT] = b"%d" % timer_slot_ms(due_ms)
        changes[_DELIVER] = b"%d" % due_ms
    rewritten = rewrite_record(
        record,
        topic=TIMER_TOPIC.encode(),
        properties=replace_properties(properties, changes),
        store_host_ipv6=store_host_ipv6,
    )
    return Moved(TIMER_TOPIC, 0, rewritten)


def retimed_record(record: Record, *, due_ms: int, store_host_ipv6: bool) -> Moved:
    """The record that waits in place of `record` until another time. Raises RecordIllegal,
    RecordCorrupt."""
    changes: dict[bytes, bytes | None] = {
        **_NO_REQUESTS,
        _DELAY: None,
        _OUT: b"%d" % timer_slot_ms(due_ms),
        _DELIVER: b"%d" % due_ms,
    }
    rewritten = rewrite_record(
        record,
        topic=TIMER_TOPIC.encode(),
        properties=replace_properties(record.properties_bytes, changes),
        store_host_ipv6=store_host_ipv6,
    )
    return Moved(TIMER_TOPIC, 0, rewritten)


def _moving_marks(record: Record, now_ms: int) -> dict[bytes, bytes | None]:
    """Apache's marks: when the timer took it in, by the clock of its wheel, and when it delivered
    it."""
    taken_in_ms = record.store_timestamp_ms // PRECISION_MS * PRECISION_MS
    return {_ENQUEUED: b"%d" % taken_in_ms, _DEQUEUED: b"%d" % now_ms}


def may_wait(sys_flag: int) -> bool:
    """Whether a record's system flag allows its message to be delayed: true except for prepared and
    rolled-back parts of transactions."""
    return not sys_flag & SYSFLAG_TRANSACTION_PREPARED
