"""The columns of a message, and records turned into them: one Arrow batch from one buffer.

Only two things are done record by record: the checksum, a C call mapped over the bodies, and the
rare decompression of bodies. The caller says which topic and queue the records belong to; what is
found in the bytes is checked against that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.offset_audit.sources.messages.hosts import offset_message_ids
from aerobee.offset_audit.sources.messages.pieces import constant
from aerobee.offset_audit.sources.messages.property_columns import MAP, TEXTS
from aerobee.offset_audit.sources.messages.record_fields import (
    FIELDS,
    RecordFields,
    int32_column,
    plain_bodies,
)
from aerobee.store.format.body_checksums import sound_bodies
from aerobee.store.format.record_arrays import BoolArray, Int64Array, parse_records
from aerobee.store.format.record_layout import QUEUE_ID_AT, QUEUE_OFFSET_AT

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


class RecordColumns(RecordFields):
    """Records of one buffer: parsed once, then judged, filtered and turned into a batch."""

    def __init__(
        self, buffer: bytes | memoryview, starts: Int64Array, ends: Int64Array, expected: Expected
    ) -> None:
        """Records lie at [starts, ends), rising, each at least RECORD_SIZE_MIN long."""
        super().__init__(buffer, parse_records(buffer, starts, ends))
        self.expected = expected
        self._bodies: Any = None

    def sound(self, *, check_bodies: bool, unchecked: BoolArray | None = None) -> BoolArray:
        """Which records have consistent lengths, the expected place in a queue, and an intact body.
        `unchecked`: records that may belong to other queues."""
        sound = self.int32s(QUEUE_ID_AT) == self.expected.queue_ids
        sound &= self.int64s(QUEUE_OFFSET_AT) == self.expected.queue_offsets
        if unchecked is not None:
            sound |= unchecked
        sound &= self.arrays.legal
        if check_bodies:
            sound &= sound_bodies(self.buffer, self.arrays)
        return np.asarray(sound, np.bool_)

    def only(self, chosen: BoolArray) -> None:
        """Leave out all others."""
        if chosen.all():
            return
        self.arrays = self.arrays.only(chosen)
        self.expected = self.expected.only(chosen)
        self._properties = None
        self._bodies = None if self._bodies is None else self._bodies.filter(pa.array(chosen))

    def batch(self, columns: Columns) -> Any:
        """A pyarrow.RecordBatch of `columns.schema`; all records must be sound."""
        made = [_MAKERS[name](self) for name in columns.names]
        return pa.RecordBatch.from_arrays(made, schema=columns.schema)

    @property
    def bodies(self) -> Any:
        """Null where a compressed body cannot be decompressed."""
        if self._bodies is None:
            stored = self.stored_bodies
            found = [part for *_, part in plain_bodies(stored, self.arrays.sys_flags)]
            self._bodies = found[0] if found else stored
        return self._bodies

    def decompressible(self) -> BoolArray:
        """Which records have a body that `batch` can give."""
        return np.asarray(self.bodies.is_valid(), np.bool_)

    def message_ids(self) -> Any:
        unique_keys = self.properties.text(b"UNIQ_KEY")
        if unique_keys.null_count == 0:
            return unique_keys
        return pc.coalesce(unique_keys, offset_message_ids(self.buffer, self.arrays))

    def queue_ids(self) -> Any:
        queue_ids = self.expected.queue_ids
        whole = np.full(self.count, queue_ids) if isinstance(queue_ids, int) else queue_ids
        return int32_column(whole)


_MAKERS: Final[Mapping[str, Callable[[RecordColumns], Any]]] = {
    **FIELDS,
    "topic": lambda records: records.expected.topic_column(records.count),
    "broker_name": lambda records: constant(records.expected.broker_name, records.count),
    "queue_id": RecordColumns.queue_ids,
    "queue_offset": lambda records: pa.array(records.expected.queue_offsets),
    "message_id": RecordColumns.message_ids,
    BODY: lambda records: records.bodies,
}
"""How each column is made, only when it is asked for."""
