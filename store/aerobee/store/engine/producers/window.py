"""PURE: which of one producer's records one queue has, as far back as is remembered.

A producer numbers its records to a queue from 0. Records with consecutive numbers at consecutive
queue offsets form one interval; batch boundaries within it are unknown, as the log does not contain
them either. So a window follows from the log alone, on every replica and however the log is split
into chunks: master, slave and recovery remember the same.

Invariant: between `floor` and the newest record, a number in no interval was never stored. Below
`floor` nothing is known.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

INTERVALS_MAX: Final = 128
"""A batch is in one interval, so at least this many batches are remembered."""

_FIRST, _END, _OFFSET, _WIDTH = 0, 1, 2, 3


class AlreadyStored(NamedTuple):
    """How many records of a batch, from its first on, are stored, and where the first one is."""

    stored_count: int = 0
    queue_offset: int = 0


NEW: Final = AlreadyStored()


class ProducerWindow:
    """One producer on one queue: which of its records are stored, and where."""

    __slots__ = ("floor", "intervals", "timestamp_ms")

    def __init__(
        self, floor: int = 0, timestamp_ms: int = 0, intervals: array[int] | None = None
    ) -> None:
        self.floor = floor
        # Time of its newest record.
        self.timestamp_ms = timestamp_ms
        # For each interval in ascending order: first number, the one after the last, queue offset
        # of the first. One flat array, as there may be very many windows.
        self.intervals: array[int] = array("q") if intervals is None else intervals

    def __repr__(self) -> str:
        flat = self.intervals
        parts = [f"{flat[at]}..{flat[at + 1]}@{flat[at + 2]}" for at in range(0, len(flat), _WIDTH)]
        return f"ProducerWindow(floor={self.floor}, {', '.join(parts)})"

    def __len__(self) -> int:
        """The number of intervals."""
        return len(self.intervals) // _WIDTH

    def standing(self, sequence: int, count: int) -> AlreadyStored | None:
        """The state of records `sequence` to `sequence` + `count`; None if they cannot be placed:
        they reach back too far, or records after the first of them are stored and the first is
        not."""
        flat = self.intervals
        if sequence >= flat[-2]:
            return NEW
        if sequence < self.floor:
            return None
        at = self._interval_before(sequence)
        end = sequence + count
        next_at = at + _WIDTH
        next_first = flat[next_at] if next_at < len(flat) else end
        if at < 0 or flat[at + _END] <= sequence:
            return NEW if next_first >= end else None
        stored = min(end, flat[at + _END]) - sequence
        if stored < count and next_first < end:
            return None
        return AlreadyStored(stored, flat[at + _OFFSET] + sequence - flat[at])

    def add(self, sequence: int, count: int, queue_offset: int) -> int:
        """Add appended records; returns by how much the number of intervals changed."""
        flat = self.intervals
        end = sequence + count
        if flat and flat[-2] == sequence and flat[-1] + sequence - flat[-3] == queue_offset:
            flat[-2] = end
            return 0
        if not flat or sequence >= flat[-2]:
            flat.extend((sequence, end, queue_offset))
        else:
            at = self._interval_before(sequence)
            if (
                at >= 0
                and flat[at + _END] == sequence
                and flat[at + _OFFSET] + sequence - flat[at] == queue_offset
            ):
                flat[at + _END] = end
                return 0
            at += _WIDTH
            flat[at:at] = array("q", (sequence, end, queue_offset))
        if len(flat) <= INTERVALS_MAX * _WIDTH:
            return 1
        self.floor = flat[_END]
        del flat[:_WIDTH]
        return 0

    def cut(self, queue_end: int) -> None:
        """Drop the records that the queue has lost: those at and after `queue_end`."""
        flat = self.intervals
        kept = array("q")
        for at in range(0, len(flat), _WIDTH):
            first, end, offset = flat[at : at + _WIDTH]
            end = min(end, first + queue_end - offset)
            if first < end:
                kept.extend((first, end, offset))
        self.intervals = kept

    def _interval_before(self, sequence: int) -> int:
        """The position of the last interval that begins at or before `sequence`; negative: none."""
        flat = self.intervals
        low, high = 0, len(flat) // _WIDTH
        while low < high:
            middle = (low + high) // 2
            if flat[middle * _WIDTH] <= sequence:
                low = middle + 1
            else:
                high = middle
        return (low - 1) * _WIDTH
