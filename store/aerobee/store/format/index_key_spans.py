"""Finds the keys in the properties of records of any kind, for many at once.

Names are found by comparing the numbers formed by their bytes. The unique key comes first, then the
parts of KEYS between spaces; if a property occurs several times, the last one with a value counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from aerobee.store.format.record_arrays import BoolArray, Int64Array, byte_field

UInt8Array = npt.NDArray[np.uint8]

FRONT_BYTES_MIN: Final = 8
"""Bytes required before the first record's properties, so that names can be compared there."""

_SPACE: Final = 0x20
_KEYS: Final = int.from_bytes(b"KEYS", "big")
_UNIQUE_KEY: Final = int.from_bytes(b"UNIQ_KEY", "big")


@dataclass(frozen=True, slots=True)
class KeySpans:
    """Pieces of a byte array, and the record that each belongs to."""

    starts: Int64Array
    ends: Int64Array
    records: Int64Array

    def only(self, chosen: BoolArray) -> KeySpans:
        return KeySpans(self.starts[chosen], self.ends[chosen], self.records[chosen])


def find_key_spans(data: UInt8Array, starts: Int64Array, ends: Int64Array) -> KeySpans:
    """All keys, by record, the unique key first.

    The properties of record n are at [starts[n], ends[n]) of `data`, in rising order; other bytes
    may be between and before them.
    """
    separators = np.flatnonzero((data - np.uint8(1)) < 2)
    is_value_end = data[separators] == 2
    value_ends = separators[is_value_end]
    name_ends = separators[~is_value_end]
    name_ends = name_ends[name_ends >= FRONT_BYTES_MIN]
    fields = data.data
    of_keys = name_ends[byte_field(fields, ">i4")[name_ends - 4] == _KEYS]
    of_unique = name_ends[byte_field(fields, ">i8")[name_ends - 8] == _UNIQUE_KEY]
    unique = _values(data, of_unique, 8, value_ends, starts, ends)
    several = _split(data, _values(data, of_keys, 4, value_ends, starts, ends))
    if not len(several.starts):
        return unique
    if not len(unique.starts):
        return several
    records = np.concatenate((unique.records, several.records))
    # Two sorted runs: a stable sort merges them and keeps the unique key first.
    order = np.argsort(records, kind="stable")
    return KeySpans(
        np.concatenate((unique.starts, several.starts))[order],
        np.concatenate((unique.ends, several.ends))[order],
        records[order],
    )


def _values(
    data: UInt8Array,
    name_ends: Int64Array,
    name_bytes: int,
    value_ends: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
) -> KeySpans:
    """For each record that has the property, the value that counts.

    `name_ends` are the positions of 0x01 after bytes that look like the name; other bytes may be
    before the first record's properties and between those of two records.
    """
    records = np.searchsorted(ends, name_ends, side="right")
    at = name_ends - name_bytes
    first = starts[records]
    # In the middle of a segment it is part of a longer name or of a value.
    chosen = (at == first) | ((at > first) & (data[at - 1] == 2))
    if len(value_ends):
        following = np.searchsorted(value_ends, name_ends)
        stops = value_ends[np.minimum(following, len(value_ends) - 1)]
        stops = np.where(
            following < len(value_ends), np.minimum(stops, ends[records]), ends[records]
        )
    else:
        stops = ends[records]
    chosen &= stops > name_ends + 1
    spans = KeySpans(name_ends + 1, stops, records).only(chosen)
    # Positions rise, so a record's last one is followed by another record's.
    is_last = np.empty(len(spans.records), np.bool_)
    is_last[-1:] = True
    np.not_equal(spans.records[1:], spans.records[:-1], out=is_last[:-1])
    return spans if is_last.all() else spans.only(is_last)


def _split(data: UInt8Array, spans: KeySpans) -> KeySpans:
    """The non-empty parts between spaces."""
    if not len(spans.starts):
        return spans
    spaces = np.flatnonzero(data == _SPACE)
    if not len(spaces):
        return spans
    owners = np.searchsorted(spans.starts, spaces, side="right") - 1
    inside = (owners >= 0) & (spaces < spans.ends[owners])
    if not inside.any():
        return spans
    spaces, owners = spaces[inside], owners[inside]
    # Pieces do not overlap, so the n-th start and the n-th end belong together.
    starts = np.concatenate((spans.starts, spaces + 1))
    order = np.argsort(starts, kind="stable")
    parts = KeySpans(
        starts[order],
        np.sort(np.concatenate((spans.ends, spaces)), kind="stable"),
        np.concatenate((spans.records, spans.records[owners]))[order],
    )
    return parts.only(parts.ends > parts.starts)
