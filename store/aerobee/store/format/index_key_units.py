"""Hashes of keys that are not ASCII or very long, for many at once.

Java hashes UTF-16 units. The keys are joined with a byte that none contains, decoded and encoded in
one go, and hashed as differences of one running sum: 31 is odd, so it has an inverse modulo 2^32,
and no key needs a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from aerobee.store.format.index_key_spans import KeySpans

UInt8Array = npt.NDArray[np.uint8]
UInt32Array = npt.NDArray[np.uint32]

_BLOCK_BYTES: Final = 1 << 16
"""A small amount at a time: this bounds the memory, and other threads wait while an array is
processed."""
_INVERSE_OF_31: Final = pow(31, -1, 1 << 32)
_BETWEEN: Final = b"\x02"
"""Ends a property's value, so no key contains it; it also ends an incomplete UTF-8 sequence."""


def hash_units(data: UInt8Array, keys: KeySpans, prefixes: UInt32Array) -> UInt32Array:
    """The hash of each key, continuing its prefix's; bytes that are not UTF-8 count as U+FFFD."""
    values = np.empty(len(keys.starts), np.uint32)
    for first, end in _blocks(keys):
        chosen = slice(first, end)
        pieces = zip(keys.starts[chosen].tolist(), keys.ends[chosen].tolist(), strict=True)
        text = _BETWEEN.join([data[start:stop].tobytes() for start, stop in pieces]) + _BETWEEN
        encoded = text.decode("utf-8", "replace").encode("utf-16-le")
        values[chosen] = _hash_block(np.frombuffer(encoded, "<u2"), prefixes[chosen])
    return values


def _blocks(keys: KeySpans) -> Iterator[tuple[int, int]]:
    """Ranges of keys with few bytes in total, each with at least one key."""
    ends = np.cumsum(keys.ends - keys.starts)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, before + _BLOCK_BYTES, side="right"))
        end = max(end, first + 1)
        yield first, end
        first = end


def _hash_block(units: npt.NDArray[np.uint16], prefixes: UInt32Array) -> UInt32Array:
    """For keys in UTF-16, each followed by the separator unit."""
    ends = np.flatnonzero(units == _BETWEEN[0])
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    powers = _powers(31, len(units))
    sums = np.empty(len(units) + 1, np.uint32)
    sums[0] = 0
    # sums[n] is the sum of unit i times 31^-i, for every i < n.
    np.cumsum(units * _powers(_INVERSE_OF_31, len(units)), dtype=np.uint32, out=sums[1:])
    values = np.zeros(len(ends), np.uint32)
    used = ends > starts
    values[used] = (sums[ends[used]] - sums[starts[used]]) * powers[ends[used] - 1]
    np.add(values, prefixes * powers[ends - starts], out=values)
    return values


def _powers(base: int, count: int) -> UInt32Array:
    """base^0 up to base^(count - 1), modulo 2^32."""
    factors = np.full(count, base, np.uint32)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint32)
