"""The offset journal's records as rows of JOURNAL, whether they were pulled or found in a log.

docs/internals/offset-journal.md describes the members of their entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from aerobee.offset_audit.rules.names import JOURNAL_TOPIC
from aerobee.offset_audit.sources.store.log_chunks import LogChunk
from aerobee.offset_audit.sources.store.plain_values import int64, queue_number, text_of
from aerobee.offset_audit.sources.store.ranges_rows import COLUMNS, JOURNAL, RecordBatch
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX

Origin: TypeAlias = tuple[str | None, str | None, int | None]
"""cluster, broker_name, broker_id"""
Row: TypeAlias = tuple[object, ...]

BATCH_ROWS: Final = 16_384
CHANGES: Final = frozenset({"commit", "reset", "image"})
"""Kinds of entries that contain an offset."""
REMOVE: Final = "remove"
"""Offsets were deleted. Of group, topic and queue id, those that such an entry does not name are
null in its row and stand for all."""
TOPIC_END: Final = "topicEnd"
"""A deleted topic's end: reported as the removal of all its offsets."""
SENT_BACK: Final = "sentBack"
RESENT: Final = "resent"
RETURNED: Final = "returned"
"""Resent to the group that failed: written as `resent`, to its retry topic."""
COPIED: Final = "copied"


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One record of the journal, and whose it is."""

    origin: Origin
    journal_offset: int
    body: bytes


def journal_rows(chunk: LogChunk, log_end: int, since_ms: int) -> Iterator[RecordBatch]:
    """JOURNAL of the chunk's records before `log_end`, stored at `since_ms` or later."""
    records = chunk.records
    if JOURNAL_TOPIC not in records.topic_table:
        return
    chosen = records.topic_codes == records.topic_table.index(JOURNAL_TOPIC)
    chosen &= (records.positions < log_end - chunk.position) & (
        records.store_timestamps >= since_ms
    )
    owner = chunk.piece.store.origin
    origin = owner.cluster, owner.broker_name, owner.broker_id
    places = zip(
        records.queue_offsets[chosen].tolist(),
        records.arrays.body_starts[chosen].tolist(),
        records.arrays.body_ends[chosen].tolist(),
        strict=True,
    )
    yield from journal_batches(
        JournalRecord(origin, offset, chunk.buffer[begin:end]) for offset, begin, end in places
    )


def journal_batches(records: Iterable[JournalRecord]) -> Iterator[RecordBatch]:
    """Their rows; none of the batches is empty."""
    rows: list[Row] = []
    for record in records:
        rows.extend(entries_of(record))
        if len(rows) >= BATCH_ROWS:
            yield journal_batch(rows)
            rows = []
    if rows:
        yield journal_batch(rows)


def journal_batch(rows: Sequence[Row]) -> RecordBatch:
    schema = COLUMNS[JOURNAL].schema
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def entries_of(record: JournalRecord) -> Iterator[Row]:
    """Rows of JOURNAL; none for a record that cannot be read, which the broker's log names."""
    try:
        entries = json.loads(record.body)
    except (ValueError, RecursionError):
        return
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        kind = entry.get("kind") if isinstance(entry, dict) else None
        row: Row | None = None
        if kind in (REMOVE, TOPIC_END):
            row = _removal(record, number, entry)
        elif isinstance(kind, str) and kind in CHANGES:
            row = _row(record, number, entry)
        elif kind in (SENT_BACK, RESENT) and entry.get("repeated") is not True:
            # In an image it is nothing new, and refers to an earlier log.
            row = _row(record, number, entry, int64(entry.get("number")))
        elif kind == COPIED:
            row = _copied(record, number, entry)
        if row is not None:
            yield row


def _row(
    record: JournalRecord, number: int, entry: Mapping[str, Any], copy: int | None = None
) -> Row | None:
    """None: it does not say whose offset it is, or what it is."""
    group, topic = text_of(entry.get("group")), text_of(entry.get("topic"))
    queue_id, offset = queue_number(entry.get("queueId")), int64(entry.get("offset"))
    if group is None or topic is None or queue_id is None or offset is None:
        return None
    return (
        *record.origin,
        record.journal_offset,
        number,
        group,
        topic,
        queue_id,
        offset,
        int64(entry.get("leaseEpoch")),
        int64(entry.get("timestamp")),
        text_of(entry.get("clientId")),
        RETURNED if str(entry.get("toTopic", "")).startswith(RETRY_PREFIX) else entry["kind"],
        copy,
    )


def _copied(record: JournalRecord, number: int, entry: Mapping[str, Any]) -> Row | None:
    through, timestamp_ms = int64(entry.get("through")), int64(entry.get("timestamp"))
    if through is None:
        return None
    head = (*record.origin, record.journal_offset, number)
    return (*head, None, None, None, None, None, timestamp_ms, None, COPIED, through)


def _removal(record: JournalRecord, number: int, entry: Mapping[str, Any]) -> Row | None:
    """None: it does not say what is deleted."""
    group, topic = text_of(entry.get("group")), text_of(entry.get("topic"))
    queue_id = queue_number(entry.get("queueId"))
    for name, value in (("group", group), ("topic", topic), ("queueId", queue_id)):
        if name in entry and value is None:
            return None
    if (group is None or topic is None) and (queue_id is not None or group is topic):
        return None
    timestamp_ms = int64(entry.get("timestamp"))
    head = (*record.origin, record.journal_offset, number)
    return (*head, group, topic, queue_id, None, None, timestamp_ms, None, REMOVE, None)
