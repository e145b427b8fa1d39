"""Pieces of consume queues as record batches of kind `entries`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aerobee.offset_audit.sources.messages.pieces import constant
from aerobee.offset_audit.sources.store.columns import Columns, batch, origin_column
from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.plan import QueuePiece
from aerobee.offset_audit.sources.store.queue_chunks import (
    CHUNK_ENTRIES,
    QueueChunk,
    queue_chunks,
)
from aerobee.offset_audit.tables import ORIGIN
from aerobee.store.format.record_arrays import Int64Array

ENTRIES: Final = Columns.parse(
    f"""{ORIGIN}, topic string, queue_id int, queue_offset long, position long, size int,
tags_code long, file string"""
)
"""`position`: where its record is, according to the entry. `file`: below the store's folder."""

CONDITION_COLUMNS: Final = frozenset(
    {
        *("cluster", "broker_name", "broker_id", "topic", "queue_id", "queue_offset"),
        *("position", "size", "tags_code"),
    }
)


@dataclass(frozen=True, slots=True)
class EntryReading:
    """What is wanted of entries."""

    columns: Columns = ENTRIES
    conditions: Conditions = field(default_factory=Conditions)
    chunk_entries: int = CHUNK_ENTRIES


def entry_batches(piece: QueuePiece, reading: EntryReading) -> Iterator[Any]:
    """pyarrow.RecordBatches of `reading.columns`, none of them empty. Impossible entries are left
    out."""
    for chunk in queue_chunks(piece, chunk_entries=reading.chunk_entries):
        rows = EntryRows(chunk, reading.conditions)
        if rows.count:
            yield batch(reading.columns, [rows.column(name) for name in reading.columns.names])


class EntryRows:
    """The sound entries of a chunk that meet conditions."""

    def __init__(self, chunk: QueueChunk, conditions: Conditions) -> None:
        self._chunk = chunk
        chosen = chunk.sound
        topics = ((chunk.piece.topic,), np.zeros(chunk.count, np.int64))
        fitting = conditions.mask(chunk.count, topics, self._numbers)
        if fitting is not None:
            chosen = chosen & fitting
        self._chosen = None if chosen.all() else chosen
        self.count = chunk.count if self._chosen is None else int(np.count_nonzero(chosen))

    def column(self, name: str) -> Any:
        """An Arrow array."""
        piece = self._chunk.piece
        match name:
            case "topic":
                return constant(piece.topic, self.count)
            case "file":
                return constant(piece.file.path.removeprefix(f"{piece.store.root}/"), self.count)
            case "queue_id":
                return pa.array(np.full(self.count, piece.queue_id, np.int32))
            case "size":
                return pa.array(self._rows("size").astype(np.int32))
            case "queue_offset" | "position" | "tags_code":
                return pa.array(self._rows(name))
        return origin_column(name, piece.store.origin, self.count)

    def _rows(self, name: str) -> Int64Array:
        numbers = self._numbers(name)
        return numbers if self._chosen is None else numbers[self._chosen]

    def _numbers(self, name: str) -> Int64Array:
        chunk = self._chunk
        match name:
            case "queue_offset":
                return chunk.queue_offsets
            case "position":
                return chunk.positions
            case "size":
                return chunk.sizes
            case "tags_code":
                return chunk.tags_codes
        assert name == "queue_id", name
        return np.full(chunk.count, chunk.piece.queue_id, np.int64)
