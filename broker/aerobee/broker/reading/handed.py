"""PURE: what a master has just appended to a queue, for the follower of that queue.

Owns: what it would read there. The follower takes it once it is confirmed, and needs not read and
parse the record. Where something is missing, it reads the log; both give the same.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Handed(NamedTuple, Generic[T]):
    offset: int
    end: int
    """Of its record, in the log."""
    value: T


class Handed(Generic[T]):
    """In the order of the queue; bounded by what is appended and not confirmed yet."""

    def __init__(self) -> None:
        self._handed: deque[_Handed[T]] = deque()

    def __len__(self) -> int:
        return len(self._handed)

    @property
    def first_offset(self) -> int | None:
        """Of the first record here."""
        return self._handed[0].offset if self._handed else None

    def append(self, offset: int, end: int, value: T) -> None:
        """The record at this offset of the queue, which ends here in the log, says this."""
        self._handed.append(_Handed(offset, end, value))

    def begins_after(self, next_offset: int) -> int | None:
        """How many records must be read from this offset on, before the first one here; None:
        nothing is here."""
        handed = self._handed
        while handed and handed[0].offset < next_offset:
            handed.popleft()  # it was read
        return handed[0].offset - next_offset if handed else None

    def take(self, next_offset: int, confirmed_end: int) -> T | None:
        """What the record at an offset says. None: it is not confirmed, or must be read."""
        if self.begins_after(next_offset) != 0 or self._handed[0].end > confirmed_end:
            return None
        return self._handed.popleft().value

    def clear(self) -> None:
        """The term is over: what is not confirmed may never be."""
        self._handed.clear()
