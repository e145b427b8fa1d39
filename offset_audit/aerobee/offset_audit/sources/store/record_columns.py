"""Records as columns, each created only on request: kind `records`.

Columns are made for a whole chunk; texts and bodies are copied once, by Arrow, from the buffer that
was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aerobee.offset_audit.sources.messages.hosts import born_hosts, store_hosts
from aerobee.offset_audit.sources.messages.pieces import gather
from aerobee.offset_audit.sources.messages.property_columns import PropertyColumns
from aerobee.offset_audit.sources.store.columns import Columns, origin_column
from aerobee.offset_audit.sources.store.log_chunks import LogChunk
from aerobee.offset_audit.tables import ORIGIN
from aerobee.store.format.body_checksums import sound_bodies
from aerobee.store.format.producer_number import producer_ids, sequences
from aerobee.store.format.record_arrays import (
    BoolArray,
    Int64Array,
    byte_field,
    hosts_extra,
    read_field,
)
from aerobee.store.format.record_layout import (
    BODY_CRC_AT,
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    MAGIC_AT,
    MAGIC_V2,
    PREPARED_TRANSACTION_OFFSET_AT,
    RECONSUME_TIMES_AT,
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


class RecordRows:
    """Some records of a chunk."""

    def __init__(self, chunk: LogChunk, chosen: BoolArray | None = None) -> None:
        """`chosen`: which of the chunk's records; None means all."""
        self.chunk = chunk
        self._chosen = chosen
        # Where the parts of the records lie in the buffer.
        self.arrays = chunk.records.arrays if chosen is None else chunk.records.arrays.only(chosen)
        self._found_properties: PropertyColumns | None = None
        self.count = chunk.records.count if chosen is None else int(np.count_nonzero(chosen))
        self._int32s = byte_field(chunk.buffer, ">i4")
        self._int64s = byte_field(chunk.buffer, ">i8")

    def of(self, column: Int64Array) -> Int64Array:
        """The rows' part of a column of the chunk's records."""
        return column if self._chosen is None else column[self._chosen]

    def column(self, name: str) -> Any:
        """An Arrow array; not for `body`."""
        make = _MAKERS.get(name)
        if make is None:
            return origin_column(name, self.chunk.piece.store.origin, self.count)
        return make(self)

    @property
    def stored_bodies(self) -> Any:
        return gather(memoryview(self.chunk.buffer), self.arrays.body_starts, self.arrays.body_ends)

    @property
    def _properties(self) -> PropertyColumns:
        if self._found_properties is None:
            arrays = self.arrays
            view = memoryview(self.chunk.buffer)
            self._found_properties = PropertyColumns(view, arrays.properties_starts, arrays.ends)
        return self._found_properties

    @property
    def _behind_hosts(self) -> Int64Array:
        """Where a record would begin if its hosts were IPv4: for the fields after them."""
        extra = hosts_extra(self.arrays.sys_flags)
        return self.arrays.starts if extra is None else self.arrays.starts + extra[1]

    # ------------------------------------------------------------------------------ columns

    def _topic(self) -> Any:
        records = self.chunk.records
        codes = pa.array(self.of(records.topic_codes).astype(np.int32))
        return pa.array(records.topic_table, pa.string()).take(codes)

    def _version(self) -> Any:
        magics = read_field(self._int32s, self.arrays.starts + MAGIC_AT)
        return _int32(np.where(magics == MAGIC_V2, 2, 1))

    def _is_in_transaction(self) -> BoolArray:
        return np.asarray((self.arrays.sys_flags & SYSFLAG_TRANSACTION_MASK) != 0, np.bool_)

    def _prepared_offset(self) -> Any:
        places = self._behind_hosts + PREPARED_TRANSACTION_OFFSET_AT
        return pa.array(read_field(self._int64s, places), mask=~self._is_in_transaction())

    def _producer_id(self) -> Any:
        numbers = self.of(self.chunk.records.producer_numbers)
        return pa.array(producer_ids(numbers), mask=numbers == 0)

    def _producer_sequence(self) -> Any:
        numbers = self.of(self.chunk.records.producer_numbers)
        return pa.array(sequences(numbers).astype(np.int32), mask=numbers == 0)

    def _field32(self, at: int) -> Any:
        return _int32(read_field(self._int32s, self.arrays.starts + at))

    def _born_ms(self) -> Any:
        return pa.array(read_field(self._int64s, self.arrays.starts + BORN_TIMESTAMP_AT))

    def _reconsume_times(self) -> Any:
        return _int32(read_field(self._int32s, self._behind_hosts + RECONSUME_TIMES_AT))

    def _body_size(self) -> Any:
        return _int32(self.arrays.body_ends - self.arrays.body_starts)

    def _body_sound(self) -> Any:
        return pa.array(sound_bodies(self.chunk.buffer, self.arrays))


def _int32(values: Int64Array) -> Any:
    return pa.array(values.astype(np.int32))


_MAKERS: Final[Mapping[str, Callable[[RecordRows], Any]]] = {
    "topic": lambda rows: rows._topic(),
    "queue_id": lambda rows: _int32(rows.of(rows.chunk.records.queue_ids)),
    "queue_offset": lambda rows: pa.array(rows.of(rows.chunk.records.queue_offsets)),
    "physical_offset": lambda rows: pa.array(rows.of(rows.chunk.records.physical_offsets)),
    "size": lambda rows: _int32(rows.of(rows.chunk.records.sizes)),
    "version": lambda rows: rows._version(),
    "sys_flag": lambda rows: _int32(rows.of(rows.chunk.records.sys_flags)),
    "flag": lambda rows: rows._field32(FLAG_AT),
    "born_ms": lambda rows: rows._born_ms(),
    "born_host": lambda rows: born_hosts(rows.chunk.buffer, rows.arrays),
    "store_ms": lambda rows: pa.array(rows.of(rows.chunk.records.store_timestamps)),
    "store_host": lambda rows: store_hosts(rows.chunk.buffer, rows.arrays),
    "reconsume_times": lambda rows: rows._reconsume_times(),
    "prepared_offset": lambda rows: rows._prepared_offset(),
    "producer_id": lambda rows: rows._producer_id(),
    "producer_sequence": lambda rows: rows._producer_sequence(),
    "tags_code": lambda rows: pa.array(rows.of(rows.chunk.records.tags_codes)),
    "tags": lambda rows: rows._properties.text(b"TAGS"),
    "keys": lambda rows: rows._properties.words(b"KEYS"),
    "unique_key": lambda rows: rows._properties.text(b"UNIQ_KEY"),
    "properties": lambda rows: rows._properties.map,
    "body_size": lambda rows: rows._body_size(),
    "body_crc": lambda rows: rows._field32(BODY_CRC_AT),
    BODY_SOUND: lambda rows: rows._body_sound(),
}
