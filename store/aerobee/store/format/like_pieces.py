"""Similar pieces of a buffer: the topics, properties and tags of neighbouring records.

Most neighbours share a topic and a tag and have properties of one layout: the same names and
separators in the same places, and only different values. Then what is known of one is known of all,
without a loop. All answers are exact; pieces that are not similar take the slow way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aerobee.store.format.record_arrays import BoolArray, Int64Array

UInt8Array = npt.NDArray[np.uint8]

# How many times the first remaining piece is compared with all others that remain, and what share
# of those (one in this many) must match for this to continue.
_PASSES_MAX: Final = 24
_LIKE_SHARE_MIN: Final = 32
_FEW: Final = 256
"""Up to this many pieces, numbering them one by one is faster."""
_WIDTHS_MAX: Final = 16


def pieces_of(
    buffer: bytes | bytearray | memoryview, starts: Int64Array, width: int
) -> npt.NDArray[np.void]:
    """The `width` bytes, at least one, at each of `starts`."""
    shape = (max(0, len(buffer) - width + 1),)
    every: npt.NDArray[Any] = np.ndarray(shape, f"V{width}", buffer, 0, (1,))
    return every[starts]


def number_pieces(
    buffer: bytes | bytearray | memoryview, starts: Int64Array, ends: Int64Array
) -> tuple[Int64Array, list[bytes]]:
    """For each piece, the number of its content; contents are numbered by first appearance."""
    is_first = _begins_run(buffer, starts, ends - starts)
    firsts = np.flatnonzero(is_first)
    codes, values = _number_each(buffer, starts[firsts], ends[firsts])
    return codes[np.cumsum(is_first) - 1], values


def _begins_run(
    buffer: bytes | bytearray | memoryview, starts: Int64Array, widths: Int64Array
) -> BoolArray:
    """Which pieces are not known to equal the piece before: neighbours mostly came in one batch."""
    begins = np.ones(len(starts), np.bool_)
    if not len(starts):
        return begins
    if int(widths.min()) == int(widths.max()):
        begins[1:] = ~_equal_neighbours(buffer, starts, int(widths[0]))
        return begins
    different = np.flatnonzero(np.bincount(widths))
    if len(different) > _WIDTHS_MAX:
        return begins
    for width in different.tolist():
        rows = np.flatnonzero(widths == width)
        equal = _equal_neighbours(buffer, starts[rows], width) & (np.diff(rows) == 1)
        begins[rows[1:][equal]] = False
    return begins


def _equal_neighbours(
    buffer: bytes | bytearray | memoryview, starts: Int64Array, width: int
) -> BoolArray:
    """Which pieces, all of one width, equal the one before; the first is undefined."""
    if not width:
        return np.ones(len(starts) - 1, np.bool_)
    # Compared as texts, which ignores trailing zeros: with equal widths that makes no difference.
    texts = pieces_of(buffer, starts, width).view(f"S{width}")
    return np.asarray(texts[1:] == texts[:-1], np.bool_)


def _number_each(
    buffer: bytes | bytearray | memoryview, starts: Int64Array, ends: Int64Array
) -> tuple[Int64Array, list[bytes]]:
    """The same for pieces that seldom equal their neighbours."""
    widths = ends - starts
    codes = np.zeros(len(starts), np.int64)
    values: list[bytes] = []
    left = np.arange(len(starts))
    while len(left) > _FEW and len(values) < _PASSES_MAX:
        first = int(left[0])
        value = bytes(buffer[int(starts[first]) : int(ends[first])])
        equal = _equal_to(buffer, starts[left], widths[left], value)
        codes[left[equal]] = len(values)
        values.append(value)
        is_worth_it = int(equal.sum()) * _LIKE_SHARE_MIN >= len(left)
        left = left[~equal]
        if not is_worth_it:
            break
    if len(left):
        known = {value: code for code, value in enumerate(values)}
        spans = zip(starts[left].tolist(), ends[left].tolist(), strict=True)
        # bytes() of bytes is the same object; slices of other buffers become hashable.
        codes[left] = [
            known.setdefault(bytes(buffer[start:end]), len(known)) for start, end in spans
        ]
        values = list(known)
    return codes, values


def _equal_to(
    buffer: bytes | bytearray | memoryview, starts: Int64Array, widths: Int64Array, value: bytes
) -> BoolArray:
    equal: BoolArray = widths == len(value)
    if not value:
        return equal
    same_width = np.flatnonzero(equal)
    pieces = pieces_of(buffer, starts[same_width], len(value))
    if pieces.tobytes() == value * len(same_width):
        return equal
    rows = pieces.view(np.uint8).reshape(len(same_width), len(value))
    equal[same_width] = (rows == np.frombuffer(value, np.uint8)).all(axis=1)
    return equal


@dataclass(frozen=True, slots=True)
class LikeProperties:
    """Records whose properties have one layout: that of the record to which `first` belongs."""

    records: Int64Array
    first: bytes

    def span_of(self, name: bytes) -> tuple[int, int] | None:
        """Where in each record's properties the value of `name` is; None if it is not set."""
        span = None
        at = 0
        for segment in self.first.split(b"\x02"):
            found, _, value = segment.partition(b"\x01")
            if found == name and value:
                span = at + len(found) + 1, at + len(segment)
            at += len(segment) + 1
        return span


def group_properties(
    buffer: bytes | bytearray | memoryview, starts: Int64Array, ends: Int64Array
) -> tuple[list[LikeProperties], Int64Array]:
    """Groups of records with properties of one layout, and the records in no group."""
    widths = ends - starts
    groups: list[LikeProperties] = []
    left = np.arange(len(starts))
    candidate = 0
    while len(left) and len(groups) < _PASSES_MAX:
        start, end = int(starts[left[candidate]]), int(ends[left[candidate]])
        first = bytes(buffer[start:end])
        alike = widths[left] == end - start
        if first:
            same_width = np.flatnonzero(alike)
            rows = pieces_of(buffer, starts[left[same_width]], end - start)
            alike[same_width] = _are_like(rows.view(np.uint8).reshape(-1, end - start), first)
        count = int(alike.sum())
        if count * _LIKE_SHARE_MIN < len(left):
            common = _of_most_common_width(widths[left])
            if int(widths[left[common]]) == end - start:
                break
            candidate = common
            continue
        groups.append(LikeProperties(left[alike], first))
        left = left[~alike]
        candidate = 0
    return groups, left


def _of_most_common_width(widths: Int64Array) -> int:
    """The first piece with the most common width."""
    return int(np.argmax(widths == int(np.bincount(widths).argmax())))


def _are_like(rows: UInt8Array, first: bytes) -> BoolArray:
    """Which rows have names and separators exactly where `first` has them, and no separators in
    their values.

    All false if `first` contains bytes that no writer puts there: 0, or 1 in a value.
    """
    lowest = np.frombuffer(first, np.uint8).copy()
    span = np.ones(len(first), np.uint8)
    at = 0
    for segment in first.split(b"\x02"):
        name, _, value = segment.partition(b"\x01")
        if name and value:
            # Anything but a separator.
            start = at + len(name) + 1
            lowest[start : start + len(value)] = 3
            span[start : start + len(value)] = 253
        at += len(segment) + 1
    like = (rows - lowest) < span
    if like.all():
        return np.ones(len(rows), np.bool_)
    return np.asarray(like.all(axis=1), np.bool_)
