"""Copies of failed messages, from one reading of the log: FAILED.

   WAITING   in SCHEDULE_TOPIC_XXXX or rmq_sys_wheel_timer, for %RETRY%GROUP
   RETRY     in %RETRY%GROUP, to be consumed
   DEAD      in %DLQ%GROUP

Every copy ever made has a row, as long as the log has it: PENDING shows whether it still waits. A
record of other topics costs nothing here, one of a system topic a search for a few bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.log_chunks import LogChunk
from aerobee.offset_audit.sources.store.ranges_rows import FAILED, RecordBatch, batch_of
from aerobee.store.format.dead_letter_fields import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    read_dead_letter,
)
from aerobee.store.format.delayed_records import TIMER_TOPIC
from aerobee.store.format.message_id import MessageIdIllegal, parse_offset_message_id
from aerobee.store.format.producer_number import (
    BROKER_PRODUCER_IDS,
    PRODUCER_ID_END,
    SEQUENCE_BITS,
)
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.record_view import Record
from aerobee.store.format.tags import SCHEDULE_TOPIC

WAITING: Final = "WAITING"
RETRY: Final = "RETRY"
DEAD: Final = "DEAD"

_FIRST_SEND_BACK: Final = (BROKER_PRODUCER_IDS + PRODUCER_ID_END) // 2
"""Producer ids from here on belong to copies of messages that were sent back:
docs/internals/offset-journal.md."""
_RETRY_BYTES: Final = RETRY_PREFIX.encode()


@dataclass(frozen=True, slots=True)
class FailedCopy:
    """One row; None is what the copy does not contain."""

    state: str
    topic: str
    queue_id: int
    queue_offset: int
    position: int
    store_ms: int
    group: str
    number: int | None
    attempt: int
    unique_key: str | None
    origin_topic: str | None
    origin_queue_id: int | None
    origin_offset: int | None
    origin_id: str | None
    origin_position: int | None


def failed_rows(chunk: LogChunk, log_end: int) -> RecordBatch | None:
    """Of the chunk's records before `log_end`; None if there are none."""
    rows = [row for index in _candidates(chunk) if (row := _row(chunk, index, log_end)) is not None]
    if not rows:
        return None
    return batch_of(FAILED, chunk.piece.store, rows)


def _candidates(chunk: LogChunk) -> list[int]:
    table = chunk.records.topic_table
    wanted = [code for code, topic in enumerate(table) if _is_system(topic)]
    if not wanted:
        return []
    found: list[int] = np.flatnonzero(np.isin(chunk.records.topic_codes, wanted)).tolist()
    return found


def _is_system(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) or topic in (
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
    )


def _row(chunk: LogChunk, index: int, log_end: int) -> FailedCopy | None:
    records = chunk.records
    start = int(records.positions[index])
    position = chunk.position + start
    topic = records.topic_table[int(records.topic_codes[index])]
    real_topic = topic
    if topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        end = start + int(records.sizes[index])
        if chunk.buffer.find(_RETRY_BYTES, int(records.properties_starts[index]), end) < 0:
            return None
    if position >= log_end:
        return None
    try:
        record = Record(chunk.buffer, start)
        if topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
            real_topic = record.property_value(PropertyName.REAL_TOPIC) or ""
            if not real_topic.startswith(RETRY_PREFIX):
                return None
        state = _state(topic)
        letter = read_dead_letter(record)
        is_told = record.property_value(PropertyName.RETRY_TOPIC) is not None
        origin_id = record.property_value(PropertyName.ORIGIN_MESSAGE_ID)
        unique_key = record.unique_key
    except RecordCorrupt:
        return None
    group = real_topic.removeprefix(DEAD_LETTER_PREFIX if state == DEAD else RETRY_PREFIX)
    return FailedCopy(
        state=state,
        topic=topic,
        queue_id=int(records.queue_ids[index]),
        queue_offset=int(records.queue_offsets[index]),
        position=position,
        store_ms=int(records.store_timestamps[index]),
        group=group,
        number=_number(int(records.producer_numbers[index])),
        attempt=record.reconsume_times,
        unique_key=unique_key,
        origin_topic=letter.origin.topic if is_told else None,
        origin_queue_id=_known(letter.origin.queue_id) if is_told else None,
        origin_offset=_known(letter.origin.queue_offset) if is_told else None,
        origin_id=origin_id,
        origin_position=_position(origin_id),
    )


def _state(topic: str) -> str:
    if topic.startswith(RETRY_PREFIX):
        return RETRY
    return DEAD if topic.startswith(DEAD_LETTER_PREFIX) else WAITING


def _known(number: int) -> int | None:
    return number if 0 <= number < 1 << 63 else None


def _number(field: int) -> int | None:
    """The copy's number in its broker's journal; None: it was not appended for an entry there."""
    producer_id = (field >> SEQUENCE_BITS) & (PRODUCER_ID_END - 1)
    if producer_id < _FIRST_SEND_BACK:
        return None
    sequence = field & ((1 << SEQUENCE_BITS) - 1)
    return ((producer_id - _FIRST_SEND_BACK) << SEQUENCE_BITS) + sequence


def _position(origin_id: str | None) -> int | None:
    """The position of the first record in its log."""
    if origin_id is None:
        return None
    try:
        return parse_offset_message_id(origin_id)[1]
    except MessageIdIllegal:
        return None
