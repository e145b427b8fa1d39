"""The keys under which the key index files a record, and their hashes, for many records at once.

A record is filed under its unique key, then under each part of its keys, split at single spaces; if
a property occurs twice, the last one counts. The hashed text is `topic#key`.

`hash_keys` has no loop over records. If the properties of one producer have the same layout, their
keys are columns; otherwise properties are gathered into one array, names are found by comparing the
numbers formed by their bytes, and keys of similar length are hashed together, each as a row of a
matrix times the powers of 31. The results equal those of `record_keys` and `index_key_hash`, the
plain versions for one record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.ma  # The first np.unique would load it in a turn of the loop.
import numpy.typing as npt

from aerobee.store.format.index_key_layout import hash_columns
from aerobee.store.format.index_key_spans import KeySpans, find_key_spans
from aerobee.store.format.index_key_units import hash_units
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.properties import find_property
from aerobee.store.format.record_arrays import Int64Array

Int32Array = npt.NDArray[np.int32]
UInt8Array = npt.NDArray[np.uint8]
UInt32Array = npt.NDArray[np.uint32]

# Longer keys are hashed differently. Also the space before the first property, so that a row of any
# width may end at any key.
_ROW_BYTES_MAX: Final = 512
_PAD: Final = _ROW_BYTES_MAX
# Gathering rows as wide as the widest record may cost this many times the needed bytes.
_WASTE_MAX: Final = 4

# With fewer records, or with many widths, checking for a common layout is not worthwhile.
_LIKE_RECORDS_MIN: Final = 24
_LIKE_WIDTHS_MAX: Final = 4
_LIKE_BYTES_MAX: Final = 1_024

# _POWERS[n] = 31^n modulo 2^32.
_POWERS: Final[UInt32Array] = np.concatenate(
    ([np.uint32(1)], np.cumprod(np.full(_ROW_BYTES_MAX, 31, np.uint32), dtype=np.uint32))
)


@dataclass(frozen=True, slots=True)
class KeyHashes:
    """One row per key, in the order in which the index takes them.

    `hashes` are never negative; `records` says which record each key belongs to, in rising order.
    """

    hashes: Int32Array
    records: Int64Array


def record_keys(properties: bytes | bytearray) -> list[str]:
    """The keys of one record, given its properties."""
    end = len(properties)
    keys = []
    unique_key = find_property(properties, 0, end, b"UNIQ_KEY")
    if unique_key is not None:
        keys.append(unique_key.decode("utf-8", "replace"))
    several = find_property(properties, 0, end, b"KEYS")
    if several is not None:
        keys.extend(key for key in several.decode("utf-8", "replace").split(" ") if key)
    return keys


def topic_hash(topic: str) -> int:
    """The hash of the prefix of a topic's keys, as an unsigned 32-bit number."""
    return java_string_hash(f"{topic}#") & 0xFFFF_FFFF


def hash_keys(
    buffer: bytes | bytearray | memoryview,
    properties_starts: Int64Array,
    properties_ends: Int64Array,
    topic_hashes: int | UInt32Array,
) -> KeyHashes:
    """The keys of the records whose properties are at these positions in `buffer`.

    `topic_hashes` is the `topic_hash` of all records or of each.
    """
    widths = properties_ends - properties_starts
    width_max = int(widths.max(initial=0))
    if width_max == 0:
        return KeyHashes(np.empty(0, np.int32), np.empty(0, np.int64))
    alike = hash_alike(buffer, properties_starts, properties_ends, topic_hashes)
    if alike is not None:
        return alike
    # Each record's properties end at the end of their row, so rows may differ in what precedes
    # them.
    if int(properties_ends.min()) >= width_max and (
        len(widths) * width_max <= _WASTE_MAX * int(widths.sum())
    ):
        data = np.empty(_PAD + len(widths) * width_max, np.uint8)
        data[:_PAD] = 0
        data[_PAD:].view(f"V{width_max}")[:] = _rows_of(buffer, width_max, properties_ends)
        ends = np.arange(_PAD + width_max, len(data) + 1, width_max)
    else:
        data = np.frombuffer(
            bytes(_PAD) + gather_pieces(buffer, properties_starts, properties_ends), np.uint8
        )
        ends = _PAD + np.cumsum(widths)
    keys = find_key_spans(data, ends - widths, ends)
    if isinstance(topic_hashes, int):
        prefixes = np.broadcast_to(np.uint32(topic_hashes), (len(keys.starts),))
    else:
        prefixes = topic_hashes[keys.records]
    return KeyHashes(_hash_spans(data, keys, prefixes), keys.records)


def hash_alike(
    buffer: bytes | bytearray | memoryview,
    properties_starts: Int64Array,
    properties_ends: Int64Array,
    topic_hashes: int | UInt32Array,
) -> KeyHashes | None:
    """The same, cheaply, if all records of one width have the same layout, with few widths and few
    keys each."""
    widths, ends = properties_ends - properties_starts, properties_ends
    if len(widths) < _LIKE_RECORDS_MIN or not 0 < int(widths.max()) <= _LIKE_BYTES_MAX:
        return None
    hashes: list[UInt32Array] = []
    records: list[Int64Array] = []
    different = [int(widths[0])]
    if int(widths.min()) < int(widths.max()):
        different = np.unique(widths).tolist()
        if len(different) > _LIKE_WIDTHS_MAX:
            return None
    for width in different:
        if width == 0:
            continue
        chosen = np.arange(len(widths)) if len(different) == 1 else np.flatnonzero(widths == width)
        rows = _rows_of(buffer, width, ends[chosen]).view(np.uint8).reshape(len(chosen), width)
        prefixes = topic_hashes if isinstance(topic_hashes, int) else topic_hashes[chosen]
        found = hash_columns(rows, prefixes)
        if found is None:
            return None
        hashes.append(found.ravel())
        records.append(np.repeat(chosen, found.shape[1]))
    if len(hashes) == 1:
        return KeyHashes(_index_hashes(hashes[0]), records[0])
    # A record's keys are already adjacent.
    columns = np.concatenate(records)
    order = np.argsort(columns, kind="stable")
    return KeyHashes(_index_hashes(np.concatenate(hashes)[order]), columns[order])


def _rows_of(
    buffer: bytes | bytearray | memoryview | UInt8Array, width: int, ends: Int64Array
) -> npt.NDArray[np.void]:
    """The `width` bytes before each of `ends`."""
    every: npt.NDArray[np.void] = np.ndarray(
        (len(buffer) - width + 1,), f"V{width}", buffer, 0, (1,)
    )
    return every[ends - width]


def gather_pieces(
    buffer: bytes | bytearray | memoryview, starts: Int64Array, ends: Int64Array
) -> bytes:
    """The bytes [starts[n], ends[n]) for all n, end to end."""
    view = memoryview(buffer)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return b"".join([view[start:end] for start, end in spans])


# ---------------------------------------------------------------------------------- hashing


def _hash_spans(data: UInt8Array, keys: KeySpans, prefixes: UInt32Array) -> Int32Array:
    lengths = keys.ends - keys.starts
    values = np.empty(len(lengths), np.uint32)
    longest = int(lengths.max(initial=0))
    width = 0
    while width < min(longest, _ROW_BYTES_MAX):
        # Keys of up to 64 bytes share one matrix; longer ones are grouped by powers of two.
        narrower, width = width, max(64, width * 2)
        if longest <= width and narrower == 0:
            _hash_rows(data, keys, slice(None), longest, values, prefixes)
            break
        chosen = np.flatnonzero((lengths > narrower) & (lengths <= width))
        if len(chosen):
            _hash_rows(data, keys, chosen, min(width, longest), values, prefixes)
    if longest > _ROW_BYTES_MAX:
        _hash_others(data, keys, np.flatnonzero(lengths > _ROW_BYTES_MAX), values, prefixes)
    return _index_hashes(values)


def _index_hashes(values: UInt32Array) -> Int32Array:
    """In the index's form; reuses the memory."""
    hashes = values.view(np.int32)
    np.abs(hashes, out=hashes)
    # -2^31 has no positive counterpart.
    np.maximum(hashes, 0, out=hashes)
    return hashes


def _hash_rows(
    data: UInt8Array,
    keys: KeySpans,
    chosen: slice | Int64Array,
    width: int,
    values: UInt32Array,
    prefixes: UInt32Array,
) -> None:
    """Hash keys of at most `width` bytes, which are at the right ends of their rows."""
    ends = keys.ends[chosen]
    lengths = ends - keys.starts[chosen]
    matrix = _rows_of(data, width, ends).view(np.uint8).reshape(len(ends), width)
    if int(lengths.min()) < width:
        matrix *= np.arange(width) >= (width - lengths)[:, None]
    sums = matrix.astype(np.uint32) @ _POWERS[width - 1 :: -1]
    values[chosen] = sums + prefixes[chosen] * _POWERS[lengths]
    if int(matrix.max()) >= 0x80:
        # Java hashes UTF-16 units.
        others = np.flatnonzero((matrix >= 0x80).any(axis=1))
        indexes = others if isinstance(chosen, slice) else chosen[others]
        _hash_others(data, keys, indexes, values, prefixes)


def _hash_others(
    data: UInt8Array,
    keys: KeySpans,
    indexes: Int64Array,
    values: UInt32Array,
    prefixes: UInt32Array,
) -> None:
    """Keys that are not rows of ASCII."""
    chosen = KeySpans(keys.starts[indexes], keys.ends[indexes], keys.records[indexes])
    values[indexes] = hash_units(data, chosen, prefixes[indexes])
