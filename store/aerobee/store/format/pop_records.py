"""What Apache's broker writes to its revive log about messages that it has handed out by POP.

    checkpoint   tag `ck`         a poll's messages of one queue, and until when they are invisible
    one ack      tag `ack`        a message of a checkpoint is finished
    some acks    tag `bAck`       several are

A record is written with the time at which the messages become visible again, so a checkpoint's acks
are there when its own time comes. Bodies are JSON.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from aerobee.store.format.dead_letter_fields import RETRY_PREFIX, GroupNameTooLong, retry_topic
from aerobee.store.format.properties import PropertyName, replace_properties
from aerobee.store.format.record_rewrite import rewrite_record
from aerobee.store.format.record_view import Record

REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Its committed offset is that of the last record of the revive log that has been processed."""

_OFFSETS_MAX: Final = 127
"""A checkpoint counts them in one byte."""
_I32_MAX: Final = (1 << 31) - 1


class PopRecordIllegal(ValueError):
    """A record of the revive log that is not valid."""


class PollKey(NamedTuple):
    """Identifies a poll of a queue: acks refer to a checkpoint by it."""

    group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_ms: int


class PopCheckpoint(NamedTuple):
    """`unfinished`: offsets of the messages that the checkpoint itself does not mark as done."""

    key: PollKey
    visible_ms: int
    unfinished: tuple[int, ...]


class PopAcks(NamedTuple):
    """These messages of a poll are finished."""

    key: PollKey
    offsets: tuple[int, ...]


def pop_record_of(record: Record) -> PopCheckpoint | PopAcks:
    """Raises PopRecordIllegal."""
    tag = record.property_value(PropertyName.TAGS)
    try:
        told = json.loads(bytes(record.body))
        key = PollKey(
            _text(told["c"]), _text(told["t"]), *map(_number, (told["q"], told["so"], told["pt"]))
        )
        if tag == "ck":
            return _checkpoint(key, told)
        offsets = told["aol"] if tag == "bAck" else [told["ao"]]
        if tag not in ("ack", "bAck"):
            raise ValueError(f"tag {tag!r}")
        return PopAcks(key, tuple(map(_number, offsets)))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PopRecordIllegal(f"not a record of the revive log: {error!r}") from None


def _checkpoint(key: PollKey, told: Any) -> PopCheckpoint:
    count, done = _number(told["n"]), _number(told.get("bm", 0), at_least=-_I32_MAX - 1)
    # Releases without `d` handed out only consecutive messages.
    steps = told.get("d") or list(range(count))
    if len(steps) > _OFFSETS_MAX:
        raise ValueError(f"{len(steps)} messages")
    offsets = [key.start_offset + _number(each) for each in steps]
    unfinished = tuple(each for at, each in enumerate(offsets) if not done >> at & 1)
    return PopCheckpoint(key, key.pop_ms + _number(told["it"]), unfinished)


def _number(value: object, at_least: int = 0) -> int:
    if not isinstance(value, int) or not at_least <= value < 1 << 63:
        raise ValueError(f"{value!r} for a number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} for a name")
    return value


# ------------------------------------------------------------------------------------- retries


def pop_retry_topics(group: str, topic: str) -> tuple[str, str]:
    """The topics to which Apache's broker returns a group's messages of a topic: by default, and
    with `enableRetryTopicV2`."""
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"


def retry_topics_of(group: str, topic: str) -> tuple[str, ...]:
    """The topics from which messages of a topic are redelivered to a group: those of
    `pop_retry_topics`, and the group's own, which its name may be too long for."""
    names = pop_retry_topics(group, topic)
    try:
        return (*names, retry_topic(group))
    except GroupNameTooLong:
        return names


def revived_record(record: Record, topic: str, *, pop_ms: int, store_host_ipv6: bool) -> bytes:
    """The copy of a message whose invisible time is over, for a topic of `pop_retry_topics`.

    Raises RecordIllegal if it does not fit, RecordCorrupt.
    """
    properties = record.properties_bytes
    if record.property_value(PropertyName.FIRST_POP_TIME) is None:
        changes = {PropertyName.FIRST_POP_TIME.encode(): str(pop_ms).encode()}
        properties = replace_properties(properties, dict(changes))
    return rewrite_record(
        record,
        topic=topic.encode(),
        properties=properties,
        store_host_ipv6=store_host_ipv6,
        reconsume_times=min(max(0, record.reconsume_times) + 1, _I32_MAX),
    )
