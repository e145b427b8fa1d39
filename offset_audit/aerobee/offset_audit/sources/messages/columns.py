"""The columns of a message, and records turned into them: one Arrow batch from one buffer.

Only two things are done record by record: the checksum, a C call mapped over the bodies, and the
rare decompression of bodies. The caller says which topic and queue the records belong to; what is
found in the bytes is checked against that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.offset_audit.sources.messages.hosts import born_hosts, offset_message_ids
from aerobee.offset_audit.sources.messages.pieces import constant, gather
from aerobee.offset_audit.sources.messages.property_columns import MAP, TEXTS, PropertyColumns
from aerobee.store.format.body_checksums import sound_bodies
from aerobee.store.format.compression import BodyCorrupt, decompress
from aerobee.store.format.record_arrays import (
    BoolArray,
    Int64Array,
    byte_field,
    hosts_extra,
    parse_records,
    read_field,
)
from aerobee.store.format.record_layout import (
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    STORE_TIMESTAMP_AT,
    SYSFLAG_COMPRESSED,
)

BODY = "body"
PROPERTIES = "properties"

_COLUMNS: tuple[tuple[str, str, Any], ...] = (
    ("topic", "string", pa.string()),
    ("broker_name", "string", pa.string()),
    ("queue_id", "int", pa.int32()),
    ("queue_offset", "bigint", pa.int64()),
    ("physical_offset", "bigint", pa.int64()),
    ("born_ms", "bigint", pa.int64()),
    ("store_ms", "bigint", pa.int64()),
    ("born_host", "string", pa.string()),
    ("tags", "string", pa.string()),
    ("keys", "array<string>", TEXTS),
    ("unique_key", "string", pa.string()),
    (PROPERTIES, "map<string,string>", MAP),
    (BODY, "binary", pa.binary()),
    ("flag", "int", pa.int32()),
    ("sys_flag", "int", pa.int32()),
    ("reconsume_times", "int", pa.int32()),
    ("message_id", "string", pa.string()),
)


COLUMN_NAMES = tuple(name for name, _, _ in _COLUMNS)
"""All columns, in their default order."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns are wanted, in which order, and whether bodies are checked."""

    names: tuple[str, ...] = COLUMN_NAMES
    check_bodies: bool = True

    @property
    def body(self) -> bool:
        return BODY in self.names

    def _wanted(self) -> list[tuple[str, str, Any]]:
        known = {column[0]: column for column in _COLUMNS}
        return [known[name] for name in self.names]

    @property
    def ddl(self) -> str:
        """For Spark."""
        return ", ".join(f"{name} {spark_type}" for name, spark_type, _ in self._wanted())

    @property
    def schema(self) -> Any:
        """For Arrow."""
        return pa.schema([pa.field(name, kind) for name, _, kind in self._wanted()])


@dataclass(frozen=True, slots=True)
class Expected:
    """What a reader knows about each record in advance; single values hold for all."""

    broker_name: str
    topics: tuple[str, ...]
    topic_codes: Int64Array | None
    """Of each record, an index of `topics`; None: all are of the first."""
    queue_ids: Int64Array | int
    queue_offsets: Int64Array

    def only(self, chosen: BoolArray) -> Expected:
        return Expected(
            self.broker_name,
            self.topics,
            None if self.topic_codes is None else self.topic_codes[chosen],
            self.queue_ids if isinstance(self.queue_ids, int) else self.queue_ids[chosen],
            self.queue_offsets[chosen],
        )

    def topic_column(self, count: int) -> Any:
        if self.topic_codes is None:
            return constant(self.topics[0], count)
        codes = pa.array(self.topic_codes.astype(np.int32))
        return pa.array(self.topics, pa.string()).take(codes)


class RecordColumns:
    """Records of one buffer: parsed once, then judged, filtered and turned into a batch."""

    def __init__(
        self, buffer: bytes | memoryview, starts: Int64Array, ends: Int64Array, expected: Expected
    ) -> None:
        """Records lie at [starts, ends), rising, each at least RECORD_SIZE_MIN long."""
        self._buffer = buffer
        self._int32s = byte_field(buffer, ">i4")
        self._int64s = byte_field(buffer, ">i8")
        self.expected = expected
        self.arrays = parse_records(buffer, starts, ends)
        self._properties: PropertyColumns | None = None

    @property
    def count(self) -> int:
        return len(self.arrays.starts)

    @property
    def store_ms(self) -> Int64Array:
        extra = hosts_extra(self.arrays.sys_flags)
        starts = self.arrays.starts if extra is None else self.arrays.starts + extra[0]
        return read_field(self._int64s, starts + STORE_TIMESTAMP_AT)

    def sound(self, *, check_bodies: bool, unchecked: BoolArray | None = None) -> BoolArray:
        """Which records have consistent lengths, the expected place in a queue, and an intact body.
        `unchecked`: records that may belong to other queues."""
        arrays = self.arrays
        queue_ids = read_field(self._int32s, arrays.starts + QUEUE_ID_AT)
        offsets = read_field(self._int64s, arrays.starts + QUEUE_OFFSET_AT)
        sound = queue_ids == self.expected.queue_ids
        sound &= offsets == self.expected.queue_offsets
        if unchecked is not None:
            sound |= unchecked
        sound &= arrays.legal
        if check_bodies:
            sound &= sound_bodies(self._buffer, arrays)
        return np.asarray(sound, np.bool_)

    def only(self, chosen: BoolArray) -> None:
        """Leave out all others."""
        if chosen.all():
            return
        self.arrays = self.arrays.only(chosen)
        self.expected = self.expected.only(chosen)
        self._properties = None

    def batch(self, columns: Columns) -> Any:
        """A pyarrow.RecordBatch of `columns.schema`; all records must be sound.

        Raises BodyCorrupt for a compressed body that cannot be decompressed.
        """
        made = [_MAKERS[name](self) for name in columns.names]
        return pa.RecordBatch.from_arrays(made, schema=columns.schema)

    @property
    def properties(self) -> PropertyColumns:
        """Of the remaining records."""
        if self._properties is None:
            view = memoryview(self._buffer)
            arrays = self.arrays
            self._properties = PropertyColumns(view, arrays.properties_starts, arrays.ends)
        return self._properties

    # ------------------------------------------------------------------------------ inside

    def _int32_column(self, at: int) -> Any:
        return pa.array(self._int32s[self.arrays.starts + at].astype(np.int32))

    def _int64_column(self, at: int) -> Any:
        return pa.array(read_field(self._int64s, self.arrays.starts + at))

    def _reconsume_times(self) -> Any:
        extra = hosts_extra(self.arrays.sys_flags)
        starts = self.arrays.starts if extra is None else self.arrays.starts + extra[1]
        return pa.array(self._int32s[starts + RECONSUME_TIMES_AT].astype(np.int32))

    def _bodies(self) -> Any:
        arrays = self.arrays
        stored = gather(memoryview(self._buffer), arrays.body_starts, arrays.body_ends)
        compressed = np.flatnonzero(arrays.sys_flags & SYSFLAG_COMPRESSED)
        if not len(compressed):
            return stored
        bodies = stored.take(pa.array(compressed)).to_pylist()
        flags = arrays.sys_flags[compressed].tolist()
        plain = [decompress(body, flag) for body, flag in zip(bodies, flags, strict=True)]
        order = np.arange(self.count)
        order[compressed] = self.count + np.arange(len(plain))
        return pa.concat_arrays([stored, pa.array(plain, pa.binary())]).take(pa.array(order))

    def decompressible(self) -> BoolArray:
        """Which records have a body that `batch` can give."""
        fine = np.ones(self.count, np.bool_)
        arrays = self.arrays
        view = memoryview(self._buffer)
        for index in np.flatnonzero(arrays.sys_flags & SYSFLAG_COMPRESSED).tolist():
            body = bytes(view[int(arrays.body_starts[index]) : int(arrays.body_ends[index])])
            try:
                decompress(body, int(arrays.sys_flags[index]))
            except BodyCorrupt:
                fine[index] = False
        return fine

    def _message_ids(self) -> Any:
        unique_keys = self.properties.text(b"UNIQ_KEY")
        if unique_keys.null_count == 0:
            return unique_keys
        return pc.coalesce(unique_keys, offset_message_ids(self._buffer, self.arrays))


def _numbers(values: Int64Array | int, count: int, kind: type[np.signedinteger[Any]]) -> Any:
    if isinstance(values, int):
        return pa.array(np.full(count, values, kind))
    column: npt.NDArray[Any] = values.astype(kind)
    return pa.array(column)


_MAKERS: Mapping[str, Callable[[RecordColumns], Any]] = {
    "topic": lambda records: records.expected.topic_column(records.count),
    "broker_name": lambda records: constant(records.expected.broker_name, records.count),
    "queue_id": lambda records: _numbers(records.expected.queue_ids, records.count, np.int32),
    "queue_offset": lambda records: pa.array(records.expected.queue_offsets),
    "physical_offset": lambda records: records._int64_column(PHYSICAL_OFFSET_AT),
    "born_ms": lambda records: records._int64_column(BORN_TIMESTAMP_AT),
    "store_ms": lambda records: pa.array(records.store_ms),
    "born_host": lambda records: born_hosts(records._buffer, records.arrays),
    "tags": lambda records: records.properties.text(b"TAGS"),
    "keys": lambda records: records.properties.words(b"KEYS"),
    "unique_key": lambda records: records.properties.text(b"UNIQ_KEY"),
    "flag": lambda records: records._int32_column(FLAG_AT),
    "sys_flag": lambda records: _numbers(records.arrays.sys_flags, records.count, np.int32),
    "reconsume_times": lambda records: records._reconsume_times(),
    "message_id": lambda records: records._message_ids(),
    PROPERTIES: lambda records: records.properties.map,
    BODY: lambda records: records._bodies(),
}
"""How each column is made, only when it is asked for."""
