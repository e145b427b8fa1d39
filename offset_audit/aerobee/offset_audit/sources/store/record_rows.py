"""Pieces of logs as record batches of kind `records`: chosen rows, chosen columns, bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.offset_audit.sources.messages.record_fields import plain_bodies
from aerobee.offset_audit.sources.store.columns import Columns, batch, merged
from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.log_chunks import CHUNK_BYTES, LogChunk, log_chunks
from aerobee.offset_audit.sources.store.plan import LogPiece
from aerobee.offset_audit.sources.store.record_columns import BODY, RECORDS, RecordRows
from aerobee.offset_audit.sources.store.record_search import RECORD_BYTES_MAX
from aerobee.store.format.record_arrays import BoolArray, Int64Array
from aerobee.store.format.tags import TagsCodes

BATCH_BODY_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecordReading:
    """What is wanted of records."""

    columns: Columns = RECORDS
    conditions: Conditions = field(default_factory=Conditions)
    decompress: bool = False
    """Bodies as before compression; null where that is impossible."""
    delays_ms: tuple[int, ...] | None = None
    """The delays of the delay levels; None means Apache's default."""
    chunk_bytes: int = CHUNK_BYTES
    record_bytes_max: int = RECORD_BYTES_MAX


def record_batches(piece: LogPiece, reading: RecordReading) -> Iterator[Any]:
    """pyarrow.RecordBatches of `reading.columns`, none of them empty."""
    return merged(_small_batches(piece, reading))


def _small_batches(piece: LogPiece, reading: RecordReading) -> Iterator[Any]:
    tags = TagsCodes(delays_ms=reading.delays_ms)
    chunks = log_chunks(
        piece,
        tags=tags,
        chunk_bytes=reading.chunk_bytes,
        record_bytes_max=reading.record_bytes_max,
    )
    for chunk in chunks:
        chosen = _chosen(chunk, reading.conditions)
        if chunk.records.count and (chosen is None or chosen.any()):
            yield from _batches(RecordRows(chunk, chosen), reading)


def _chosen(chunk: LogChunk, conditions: Conditions) -> BoolArray | None:
    records = chunk.records
    numbers: dict[str, Int64Array] = {
        "queue_id": records.queue_ids,
        "queue_offset": records.queue_offsets,
        "physical_offset": records.physical_offsets,
        "store_ms": records.store_timestamps,
        "size": records.sizes,
        "sys_flag": records.sys_flags,
        "tags_code": records.tags_codes,
    }
    topics = (records.topic_table, records.topic_codes)
    return conditions.mask(records.count, topics, numbers.__getitem__)


CONDITION_COLUMNS: Final = frozenset(
    {
        *("cluster", "broker_name", "broker_id", "topic", "queue_id", "queue_offset"),
        *("physical_offset", "store_ms", "size", "sys_flag", "tags_code"),
    }
)
"""Columns whose conditions a reader takes over."""


def _batches(rows: RecordRows, reading: RecordReading) -> Iterator[Any]:
    columns = reading.columns
    names = columns.names
    others = {name: rows.column(name) for name in names if name != BODY}
    if BODY not in names:
        whole = batch(columns, [others[name] for name in names])
        yield whole
        return
    stored = rows.stored_bodies
    parts: Iterable[tuple[int, int, Any]] = [(0, rows.count, stored)]
    if reading.decompress:
        parts = plain_bodies(stored, rows.arrays.sys_flags, BATCH_BODY_BYTES)
    for begin, end, bodies in parts:
        part = {name: array.slice(begin, end - begin) for name, array in others.items()}
        part[BODY] = bodies
        yield batch(columns, [part[name] for name in names])
