"""Waiting messages as rows of an array, ordered by due time.

A *key* is (due time, queue offset). Keys are unique within the timer queue, so the order is total;
an interval of keys is always (low, high]: excluding its low end, including its high one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

PENDING_DTYPE: Final = np.dtype(
    [
        ("due_ms", "<i8"),  # the first millisecond in which it may be delivered
        ("offset", "<i8"),  # in the timer queue
        ("position", "<i8"),  # in the log
        ("key_hash", "<i8"),  # hash of the name used in a recall
        ("size", "<i4"),  # of its record, bytes
        ("topic_hash", "<i4"),  # of the topic it goes to
    ]
)
NUMBER_MAX: Final = (1 << 63) - 1

Rows = npt.NDArray[np.void]
"""Rows of PENDING_DTYPE."""
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Key(NamedTuple):
    """A place in time order."""

    due_ms: int
    offset: int


FIRST: Final = Key(-1, -1)
"""Before every message."""
LAST: Final = Key(NUMBER_MAX, NUMBER_MAX)


def no_rows() -> Rows:
    return np.empty(0, PENDING_DTYPE)


def make_rows(
    due_ms: npt.ArrayLike,
    offsets: npt.ArrayLike,
    positions: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    topic_hashes: npt.ArrayLike = 0,
    key_hashes: npt.ArrayLike = 0,
) -> Rows:
    """Rows of columns of equal length, in the columns' order."""
    due = np.asarray(due_ms, np.int64)
    rows = np.empty(len(due), PENDING_DTYPE)
    rows["due_ms"] = due
    rows["offset"] = offsets
    rows["position"] = positions
    rows["size"] = sizes
    rows["topic_hash"] = topic_hashes
    rows["key_hash"] = key_hashes
    return rows


def key_of(row: Any) -> Key:
    """Of one row."""
    return Key(int(row["due_ms"]), int(row["offset"]))


def rank(rows: Rows, key: Key) -> int:
    """How many of the sorted rows are at or before `key`."""
    # Plain bisection: numpy's would copy the column, which is not contiguous.
    due: Any = rows["due_ms"]
    low = bisect_left(due, key.due_ms)
    high = bisect_right(due, key.due_ms, low)
    offsets: Any = rows["offset"]
    return bisect_right(offsets, key.offset, low, high)


class OfTopic(NamedTuple):
    """How many rows belong to one topic, and when the first of them is due."""

    topic_hash: int
    messages: int
    first_due_ms: int


def by_topic(rows: Rows) -> list[OfTopic]:
    """For sorted rows. Takes 0.1 s for a million: not on the loop."""
    hashes, firsts, counts = np.unique(rows["topic_hash"], return_index=True, return_counts=True)
    due_ms = rows["due_ms"][firsts]
    columns = (hashes.tolist(), counts.tolist(), due_ms.tolist())
    return [OfTopic(*each) for each in zip(*columns, strict=True)]


def in_order(parts: Sequence[Rows]) -> Rows:
    """All rows of the parts, sorted by key."""
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    due = np.ascontiguousarray(rows["due_ms"])
    order = np.argsort(due, kind="stable")  # merges runs that are already sorted
    found = rows[order]
    ties = np.diff(found["due_ms"]) == 0
    if (ties & (np.diff(found["offset"]) < 0)).any():
        found = rows[np.lexsort((rows["offset"], due))]
    return found
