"""Properties of many records at once: the map, the tag, the keys, the unique key.

Separators are found in all properties together, and names are told apart by their bytes. The
results equal those of `store_format.properties` for each record: a property without a name or a
value does not exist, if one is set twice the last counts, and bytes that are not UTF-8 become
U+FFFD.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.offset_audit.sources.messages.pieces import (
    Buffer,
    content,
    gather,
    is_last_of_record,
    spread,
)
from aerobee.store.format.record_arrays import BoolArray, Int64Array, byte_field

MAP = pa.map_(pa.string(), pa.string())
TEXTS = pa.list_(pa.field("element", pa.string()))

_NUMBERED_NAMES_MAX = 62
"""This many different names fit into one bit each."""


class PropertyColumns:
    """The properties of records, found once; each column is made when it is asked for."""

    def __init__(self, buffer: Buffer, starts: Int64Array, ends: Int64Array) -> None:
        """Those of record n are at [starts[n], ends[n]) of `buffer`, rising."""
        self._count = len(starts)
        gathered = gather(buffer, starts, ends, is_text=True)
        try:
            gathered.validate(full=True)
        except pa.ArrowInvalid:
            gathered = _repaired(gathered)
        self._data, borders = content(gathered)
        self._split(borders)

    @property
    def map(self) -> Any:
        """All properties of each record."""
        chosen = self._last_of_each_name()
        names = gather(self._data.data, self._starts[chosen], self._name_ends[chosen], is_text=True)
        values = gather(
            self._data.data, self._name_ends[chosen] + 1, self._ends[chosen], is_text=True
        )
        counts = np.bincount(self._records[chosen], minlength=self._count)
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        return pa.MapArray.from_arrays(pa.array(offsets), names, values, type=MAP)

    def text(self, name: bytes) -> Any:
        """One property, null where it is not set."""
        found = self._find(name)
        values = gather(
            self._data.data, self._name_ends[found] + 1, self._ends[found], is_text=True
        )
        return spread(values, self._records[found], self._count)

    def words(self, name: bytes) -> Any:
        """The parts between spaces of one property; an empty list where there is none."""
        texts = pc.split_pattern(self.text(name), " ")
        words, offsets = texts.flatten(), texts.offsets
        if texts.null_count == 0 and not pc.any(pc.equal(words, "")).as_py():
            return pa.ListArray.from_arrays(offsets, words, type=TEXTS)
        records = pc.list_parent_indices(texts).to_numpy(zero_copy_only=False).astype(np.int64)
        is_word = pc.not_equal(words, "").to_numpy(zero_copy_only=False)
        borders = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(records[is_word], minlength=self._count), out=borders[1:])
        return pa.ListArray.from_arrays(
            pa.array(borders), words.filter(pa.array(is_word)), type=TEXTS
        )

    # ------------------------------------------------------------------------------ inside

    def _split(self, borders: Int64Array) -> None:
        """Finds each property: its start, the end of its name, its end, its record."""
        data = self._data
        separators = np.flatnonzero((data - np.uint8(1)) < 2)
        is_value_end = data[separators] == 2
        value_ends, name_ends = separators[is_value_end], separators[~is_value_end]
        begins, stops = borders[:-1], borders[1:]
        if _is_plain(data, begins, stops, is_value_end):
            starts = np.zeros(len(value_ends), np.int64)
            starts[1:] = value_ends[:-1] + 1
            ends = value_ends
        else:
            # Every record is a sequence of segments, each ended by a separator or the record's end.
            starts = np.sort(np.concatenate((begins, value_ends + 1)), kind="stable")
            ends = np.sort(np.concatenate((value_ends, stops)), kind="stable")
            following = np.searchsorted(name_ends, starts)
            has_name = following < len(name_ends)
            starts, ends, following = starts[has_name], ends[has_name], following[has_name]
            name_ends = name_ends[following]
            inside = name_ends < ends
            starts, name_ends, ends = starts[inside], name_ends[inside], ends[inside]
        is_set = (name_ends > starts) & (ends > name_ends + 1)
        if not is_set.all():
            starts, name_ends, ends = starts[is_set], name_ends[is_set], ends[is_set]
        self._starts, self._name_ends, self._ends = starts, name_ends, ends
        self._records = np.searchsorted(stops, starts, side="right")

    def _find(self, name: bytes) -> Int64Array:
        """The properties of this name that count, at most one of each record."""
        width = len(name)
        found = np.flatnonzero(self._name_ends - self._starts == width)
        found = found[_equals(self._data, self._starts[found], name)]
        return found[is_last_of_record(self._records[found])]

    def _last_of_each_name(self) -> slice | Int64Array:
        """All properties but those that a later one of the same record replaces."""
        names = gather(self._data.data, self._starts, self._name_ends).dictionary_encode()
        codes = names.indices.to_numpy().astype(np.int64)
        if not len(codes):
            return slice(None)
        if len(names.dictionary) <= _NUMBERED_NAMES_MAX:
            first = np.flatnonzero(np.diff(self._records, prepend=-1))
            bits = np.left_shift(1, codes)
            # A sum without a carry: no bit comes twice.
            if (np.bitwise_or.reduceat(bits, first) == np.add.reduceat(bits, first)).all():
                return slice(None)
        places = self._records * len(names.dictionary) + codes
        # The first place of each, counted from the end.
        _, last = np.unique(places[::-1], return_index=True)
        return np.sort(len(places) - 1 - last)


def _is_plain(
    data: npt.NDArray[np.uint8], begins: Int64Array, stops: Int64Array, is_value_end: BoolArray
) -> bool:
    """Whether everything is `name 0x01 value 0x02` repeated, and each record ends with it."""
    if len(is_value_end) % 2 or is_value_end[::2].any() or not is_value_end[1::2].all():
        return False
    filled = stops[stops > begins]
    return bool((data[filled - 1] == 2).all())


def _equals(data: npt.NDArray[np.uint8], starts: Int64Array, name: bytes) -> BoolArray:
    width = len(name)
    if not len(starts):
        return np.zeros(0, np.bool_)
    if width == 4:
        found = byte_field(data.data, ">i4")[starts] == int.from_bytes(name, "big")
    elif width == 8:
        found = byte_field(data.data, ">i8")[starts] == int.from_bytes(name, "big")
    else:
        rows = data[starts[:, None] + np.arange(width)]
        found = (rows == np.frombuffer(name, np.uint8)).all(axis=1)
    return np.asarray(found, np.bool_)


def _repaired(gathered: Any) -> Any:
    """As readers see properties that are not entirely UTF-8: rare, so one by one."""
    data, borders = content(gathered)
    whole = data.tobytes()
    return pa.array(
        [
            whole[begin:end].decode("utf-8", "replace")
            for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
        ],
        pa.string(),
    )
