"""Records as columns, each created only on request: kind `records`.

Columns are made for a whole chunk; texts and bodies are copied once, by Arrow, from the buffer that
was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aerobee.offset_audit.sources.messages.record_fields import (
    FIELDS,
    RecordFields,
    int32_column,
)
from aerobee.offset_audit.sources.store.columns import Columns, origin_column
from aerobee.offset_audit.sources.store.log_chunks import LogChunk
from aerobee.offset_audit.tables import ORIGIN
from aerobee.store.format.body_checksums import sound_bodies
from aerobee.store.format.producer_number import producer_ids, sequences
from aerobee.store.format.record_arrays import BoolArray, Int64Array
from aerobee.store.format.record_layout import (
    BODY_CRC_AT,
    MAGIC_AT,
    MAGIC_V2,
    PREPARED_TRANSACTION_OFFSET_AT,
    SYSFLAG_TRANSACTION_MASK,
)

BODY: Final = "body"
BODY_SOUND: Final = "body_sound"

RECORDS: Final = Columns.parse(
    f"""{ORIGIN}, topic string, queue_id int, queue_offset long, physical_offset long, size int,
version int, sys_flag int, flag int, born_ms long, born_host string, store_ms long,
store_host string, reconsume_times int, prepared_offset long, producer_id long,
producer_sequence int, tags_code long, tags string, keys array<string>, unique_key string,
properties map<string,string>, body_size int, body_crc int, {BODY_SOUND} boolean, {BODY} binary"""
)
"""`prepared_offset`: for a record in a transaction, the position of its half message; else null.
`producer_id` and `producer_sequence`: null if the producer did not number. `tags_code`: what the
record's queue entry must contain. `body_sound`: whether the body has its checksum. `body`: as it
was sent, compressed if `sys_flag` says so, unless it is to be decompressed."""


class RecordRows(RecordFields):
    """Some records of a chunk."""

    def __init__(self, chunk: LogChunk, chosen: BoolArray | None = None) -> None:
        """`chosen`: which of the chunk's records; None means all."""
        arrays = chunk.records.arrays
        super().__init__(chunk.buffer, arrays if chosen is None else arrays.only(chosen))
        self.chunk = chunk
        self._chosen = chosen

    def of(self, column: Int64Array) -> Int64Array:
        """The rows' part of a column of the chunk's records."""
        return column if self._chosen is None else column[self._chosen]

    def column(self, name: str) -> Any:
        """An Arrow array; not for `body`."""
        make = _MAKERS.get(name)
        if make is None:
            return origin_column(name, self.chunk.piece.store.origin, self.count)
        return make(self)

    # ------------------------------------------------------------------------------ columns

    def _topic(self) -> Any:
        records = self.chunk.records
        codes = int32_column(self.of(records.topic_codes))
        return pa.array(records.topic_table, pa.string()).take(codes)

    def _version(self) -> Any:
        return int32_column(np.where(self.int32s(MAGIC_AT) == MAGIC_V2, 2, 1))

    def _prepared_offset(self) -> Any:
        is_outside = (self.arrays.sys_flags & SYSFLAG_TRANSACTION_MASK) == 0
        places = self.int64s_behind_hosts(PREPARED_TRANSACTION_OFFSET_AT)
        return pa.array(places, mask=is_outside)

    def _producer_id(self) -> Any:
        numbers = self.of(self.chunk.records.producer_numbers)
        return pa.array(producer_ids(numbers), mask=numbers == 0)

    def _producer_sequence(self) -> Any:
        numbers = self.of(self.chunk.records.producer_numbers)
        return pa.array(sequences(numbers).astype(np.int32), mask=numbers == 0)


_MAKERS: Final[Mapping[str, Callable[[RecordRows], Any]]] = {
    **FIELDS,
    "topic": RecordRows._topic,
    "queue_id": lambda rows: int32_column(rows.of(rows.chunk.records.queue_ids)),
    "queue_offset": lambda rows: pa.array(rows.of(rows.chunk.records.queue_offsets)),
    "size": lambda rows: int32_column(rows.of(rows.chunk.records.sizes)),
    "version": RecordRows._version,
    "prepared_offset": RecordRows._prepared_offset,
    "producer_id": RecordRows._producer_id,
    "producer_sequence": RecordRows._producer_sequence,
    "tags_code": lambda rows: pa.array(rows.of(rows.chunk.records.tags_codes)),
    "body_size": lambda rows: int32_column(rows.arrays.body_ends - rows.arrays.body_starts),
    "body_crc": lambda rows: int32_column(rows.int32s(BODY_CRC_AT)),
    BODY_SOUND: lambda rows: pa.array(sound_bodies(rows.buffer, rows.arrays)),
}
