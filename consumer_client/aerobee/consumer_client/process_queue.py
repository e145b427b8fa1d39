"""The messages of one queue between fetching and finishing. PURE: no tasks, no clock, no sockets.

Owns: what was fetched and not yet finished, in queue order, and the safe offset: everything below
it is finished, so that it may be committed.
Invariants: `safe_offset` is the lowest unfinished offset, or `fetched_end` when nothing is
unfinished; it never passes an unfinished message, whatever the order of finishing; an offset is
held once, so a message that is fetched again while held is dropped as a duplicate.

    fetched  5 6 7 8 9 | 10        waiting: 8 9    running: 5 7    finished: 6
             ^ safe_offset = 5     ^ fetched_end = 10              span = 9 - 5
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

Entry = tuple[int, int, T]
"""Queue offset, size in bytes, message."""


class ProcessQueue(Generic[T]):
    """One owned queue's window: fetched, running, finished."""

    __slots__ = (
        "_finished_early",
        "_unfinished",
        "_waiting",
        "cached_bytes",
        "cached_count",
        "duplicates_total",
        "fetched_end",
    )

    def __init__(self, start_offset: int) -> None:
        self.fetched_end = start_offset
        """The offset to fetch next."""
        self.cached_count = 0
        """Unfinished messages, waiting or running."""
        self.cached_bytes = 0
        """Their size."""
        self._waiting: deque[Entry[T]] = deque()
        # Offsets in queue order from the lowest unfinished one; those that finished before it did
        # stand in _finished_early until it does.
        self._unfinished: deque[int] = deque()
        self._finished_early: set[int] = set()
        self.duplicates_total = 0
        """Messages that came again while they were held."""

    def __repr__(self) -> str:
        return (
            f"ProcessQueue(safe_offset={self.safe_offset}, waiting={len(self._waiting)}, "
            f"unfinished={self.cached_count}, fetched_end={self.fetched_end})"
        )

    # ------------------------------------------------------------------------------ fetching

    def add(self, entries: Sequence[Entry[T]], next_offset: int) -> int:
        """Take what was fetched, in rising offsets; `next_offset` is where fetching goes on.

        `next_offset` may lie beyond the last entry (the filter left messages out). Entries below
        `fetched_end` came a second time and are dropped; returns how many.
        """
        duplicates = 0
        if entries and entries[0][0] < self.fetched_end:
            fresh = [entry for entry in entries if entry[0] >= self.fetched_end]
            duplicates = len(entries) - len(fresh)
            self.duplicates_total += duplicates
            entries = fresh
        if entries:
            assert entries[-1][0] < next_offset, "fetching goes on after the last message"
            self._waiting.extend(entries)
            self._unfinished.extend([entry[0] for entry in entries])
            self.cached_count += len(entries)
            self.cached_bytes += sum([entry[1] for entry in entries])
        self.fetched_end = max(self.fetched_end, next_offset)
        return duplicates

    # ------------------------------------------------------------------------------ processing

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        """Taken and neither finished nor given back."""
        return self.cached_count - len(self._waiting)

    def take(self, count_max: int) -> list[Entry[T]]:
        """The next waiting messages, now running; at most `count_max`, none if none wait."""
        waiting = self._waiting
        if count_max == 1:
            return [waiting.popleft()] if waiting else []
        return [waiting.popleft() for _ in range(min(count_max, len(waiting)))]

    def finish(self, entries: Iterable[Entry[T]]) -> None:
        """These running messages are done, each exactly once."""
        unfinished = self._unfinished
        early = self._finished_early
        for offset, size, _ in entries:
            self.cached_count -= 1
            self.cached_bytes -= size
            if offset != unfinished[0]:
                early.add(offset)
                continue
            unfinished.popleft()
            while early and unfinished[0] in early:
                early.remove(unfinished.popleft())

    @property
    def safe_offset(self) -> int:
        """The lowest unfinished offset; all below it may be committed."""
        return self._unfinished[0] if self._unfinished else self.fetched_end

    @property
    def span(self) -> int:
        """How far the last fetched message is ahead of the lowest unfinished one."""
        return self._unfinished[-1] - self._unfinished[0] if self._unfinished else 0
