"""Digests that do not depend on order or division: sums of a 64-bit mix, kept exact.

A sum of 64-bit numbers modulo 2^64 would do for comparing, but sums of such sums, made elsewhere in
exact decimals, would no longer be comparable. So sums here are exact: the upper and the lower
halves are summed separately, and 2^63 messages still fit into 38 decimal digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

_OFFSET_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_POSITION_FACTOR: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_SIZE_FACTOR: Final = np.uint64(0x165667B19E3779F9)
_TAGS_FACTOR: Final = np.uint64(0xD6E8FEB86659FD93)
_LAST_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_LOWER_HALF: Final = np.uint64(0xFFFF_FFFF)
_HALF_BITS: Final = np.uint64(32)
_SHIFT: Final = np.uint64(29)

DIGEST_TYPE: Final = pa.decimal128(38, 0)


@dataclass(frozen=True, slots=True)
class Sums:
    """Exact sums as two columns: each is `upper * 2^32 + lower`."""

    upper: UInt64Array
    lower: UInt64Array

    def __len__(self) -> int:
        return len(self.upper)

    def __getitem__(self, index: int) -> int:
        return (int(self.upper[index]) << 32) + int(self.lower[index])

    def to_arrow(self) -> Any:
        """Decimals of 38 digits, made from their 16 little-endian bytes."""
        words = np.empty((len(self), 2), "<u8")
        words[:, 0] = (self.upper << _HALF_BITS) + self.lower
        carried = words[:, 0] < self.lower
        words[:, 1] = (self.upper >> _HALF_BITS) + carried
        return pa.Array.from_buffers(DIGEST_TYPE, len(self), [None, pa.py_buffer(words.tobytes())])


def mix_messages(
    queue_offsets: Int64Array, positions: Int64Array, sizes: Int64Array, tags_codes: Int64Array
) -> UInt64Array:
    """A number for each message that depends on all four columns; equal rows give equal numbers."""
    mixed = queue_offsets.astype(np.uint64)
    mixed *= _OFFSET_FACTOR
    mixed ^= positions.astype(np.uint64) * _POSITION_FACTOR
    mixed = _stir(mixed, _LAST_FACTOR)
    mixed += sizes.astype(np.uint64) * _SIZE_FACTOR
    mixed ^= tags_codes.astype(np.uint64) * _TAGS_FACTOR
    return _stir(_stir(mixed, _POSITION_FACTOR), _LAST_FACTOR)


def mix_keys(key_hashes: npt.NDArray[Any], positions: Int64Array) -> UInt64Array:
    """The same for a key and the place of its record."""
    mixed = positions.astype(np.uint64) * _POSITION_FACTOR
    mixed ^= key_hashes.astype(np.uint64) * _OFFSET_FACTOR
    return _stir(_stir(mixed, _LAST_FACTOR), _OFFSET_FACTOR)


def sum_groups(mixed: UInt64Array, starts: Int64Array) -> Sums:
    """The sum of each group of neighbours; `starts` are where groups begin, the first one 0."""
    if not len(starts):
        return Sums(np.empty(0, np.uint64), np.empty(0, np.uint64))
    upper = np.add.reduceat(mixed >> _HALF_BITS, starts)
    lower = np.add.reduceat(mixed & _LOWER_HALF, starts)
    return Sums(upper, lower)


def group_starts(*keys: npt.NDArray[Any]) -> Int64Array:
    """Where, in columns of equal length, a row differs from the one before it."""
    count = len(keys[0])
    if not count:
        return np.empty(0, np.int64)
    differs = np.zeros(count, np.bool_)
    differs[0] = True
    for key in keys:
        differs[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(differs)


def _stir(mixed: UInt64Array, factor: np.uint64) -> UInt64Array:
    mixed ^= mixed >> _SHIFT
    mixed *= factor
    mixed ^= mixed >> _HALF_BITS
    return mixed
