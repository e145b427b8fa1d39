"""Fields of parsed records as Arrow columns, each made only when it is asked for, for all of them
at once. Texts and bodies are copied once, by Arrow, from the buffer that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aerobee.offset_audit.sources.messages.hosts import born_hosts, store_hosts
from aerobee.offset_audit.sources.messages.pieces import gather
from aerobee.offset_audit.sources.messages.property_columns import PropertyColumns
from aerobee.store.format.compression import BodyCorrupt, decompress
from aerobee.store.format.record_arrays import (
    Int64Array,
    RecordArrays,
    byte_field,
    hosts_extra,
    read_field,
)
from aerobee.store.format.record_layout import (
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    PHYSICAL_OFFSET_AT,
    RECONSUME_TIMES_AT,
    STORE_TIMESTAMP_AT,
    SYSFLAG_COMPRESSED,
)


class RecordFields:
    """Legal records of one buffer."""

    def __init__(self, buffer: bytes | memoryview, arrays: RecordArrays) -> None:
        self.buffer = buffer
        self.arrays = arrays
        self._int32s = byte_field(buffer, ">i4")
        self._int64s = byte_field(buffer, ">i8")
        self._properties: PropertyColumns | None = None

    @property
    def count(self) -> int:
        return len(self.arrays.starts)

    def int32s(self, at: int) -> Int64Array:
        """A field at the same place in all records, however long their hosts are."""
        return read_field(self._int32s, self.arrays.starts + at)

    def int64s(self, at: int) -> Int64Array:
        return read_field(self._int64s, self.arrays.starts + at)

    @property
    def store_ms(self) -> Int64Array:
        return read_field(self._int64s, self._moved(0) + STORE_TIMESTAMP_AT)

    @property
    def reconsume_times(self) -> Int64Array:
        return read_field(self._int32s, self.behind_hosts + RECONSUME_TIMES_AT)

    @property
    def behind_hosts(self) -> Int64Array:
        """Where each record would begin if its hosts were IPv4: for the fields after them."""
        return self._moved(1)

    def int64s_behind_hosts(self, at: int) -> Int64Array:
        return read_field(self._int64s, self.behind_hosts + at)

    def _moved(self, hosts: int) -> Int64Array:
        extra = hosts_extra(self.arrays.sys_flags)
        return self.arrays.starts if extra is None else self.arrays.starts + extra[hosts]

    @property
    def properties(self) -> PropertyColumns:
        if self._properties is None:
            arrays = self.arrays
            view = memoryview(self.buffer)
            self._properties = PropertyColumns(view, arrays.properties_starts, arrays.ends)
        return self._properties

    @property
    def stored_bodies(self) -> Any:
        return gather(memoryview(self.buffer), self.arrays.body_starts, self.arrays.body_ends)


def plain_bodies(
    stored: Any, sys_flags: Int64Array, bytes_max: int | None = None
) -> Iterator[tuple[int, int, Any]]:
    """Bodies [begin, end) as before compression, null where that is impossible: all of them, or a
    few at a time, once those decompressed have `bytes_max`."""
    begin, size = 0, 0
    places: list[int] = []
    plain: list[bytes | None] = []
    for row in np.flatnonzero(sys_flags & SYSFLAG_COMPRESSED).tolist():
        body = _plain(stored[row].as_py(), int(sys_flags[row]))
        places.append(row - begin)
        plain.append(body)
        size += len(body or b"")
        if bytes_max is not None and size >= bytes_max:
            yield begin, row + 1, _replaced(stored.slice(begin, row + 1 - begin), places, plain)
            begin, size, places, plain = row + 1, 0, [], []
    if begin < len(stored):
        yield begin, len(stored), _replaced(stored.slice(begin), places, plain)


def _replaced(stored: Any, places: list[int], plain: list[bytes | None]) -> Any:
    if not places:
        return stored
    order = np.arange(len(stored))
    order[places] = len(stored) + np.arange(len(plain))
    return pa.concat_arrays([stored, pa.array(plain, pa.binary())]).take(pa.array(order))


def _plain(body: bytes, sys_flag: int) -> bytes | None:
    try:
        return decompress(body, sys_flag)
    except BodyCorrupt:
        return None


def int32_column(values: Int64Array) -> Any:
    return pa.array(values.astype(np.int32))


FIELDS: Final[Mapping[str, Callable[[RecordFields], Any]]] = {
    "physical_offset": lambda records: pa.array(records.int64s(PHYSICAL_OFFSET_AT)),
    "born_ms": lambda records: pa.array(records.int64s(BORN_TIMESTAMP_AT)),
    "born_host": lambda records: born_hosts(records.buffer, records.arrays),
    "store_ms": lambda records: pa.array(records.store_ms),
    "store_host": lambda records: store_hosts(records.buffer, records.arrays),
    "flag": lambda records: int32_column(records.int32s(FLAG_AT)),
    "sys_flag": lambda records: int32_column(records.arrays.sys_flags),
    "reconsume_times": lambda records: int32_column(records.reconsume_times),
    "tags": lambda records: records.properties.text(b"TAGS"),
    "keys": lambda records: records.properties.words(b"KEYS"),
    "unique_key": lambda records: records.properties.text(b"UNIQ_KEY"),
    "properties": lambda records: records.properties.map,
}
"""By the columns' names, which are the same wherever records are read."""
