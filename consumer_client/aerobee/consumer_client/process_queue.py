"""The messages of one queue between fetching and finishing. PURE: no tasks, no clock, no sockets.

Owns: what was fetched and not yet finished, in queue order, and the safe offset: everything before
it is finished, so that it may be committed.
Invariants: `safe_offset` is the lowest unfinished offset, or `fetched_end` when nothing is
unfinished; it never passes an unfinished message, whatever the order of finishing; an offset is
held once, so a message that is fetched again while held is dropped as a duplicate.

    fetched  5 6 7 8 9 | 10        waiting: 8 9    running: 5 7    finished: 6
             ^ safe_offset = 5     ^ fetched_end = 10              span = 9 - 5
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

Entry = tuple[int, int, T]
"""Queue offset, size in bytes, message."""


class ProcessQueue(Generic[T]):
    """One owned queue's window: fetched, running, finished."""

    __slots__ = (
        "_last_offset",
        "_running",
        "cached_bytes",
        "duplicates_total",
        "fetched_end",
        "waiting",
    )

    def __init__(self, start_offset: int) -> None:
        self.fetched_end = start_offset
        """The offset to fetch next."""
        self._last_offset = start_offset
        self.cached_bytes = 0
        """Size of unfinished messages, waiting or running."""
        self.waiting: deque[Entry[T]] = deque()
        """Code that removes the first one when it is done, instead of calling `take`, calls
        `finish_first`."""
        # Offsets as they were taken, so in queue order.
        self._running: dict[int, Hashable] = {}
        self.duplicates_total = 0
        """Messages that arrived again while they were held."""

    def __repr__(self) -> str:
        return (
            f"ProcessQueue(safe_offset={self.safe_offset}, waiting={len(self.waiting)}, "
            f"unfinished={self.cached_count}, fetched_end={self.fetched_end})"
        )

    # ------------------------------------------------------------------------------ fetching

    def add(self, entries: Sequence[Entry[T]], next_offset: int) -> int:
        """Take what was fetched, in rising offsets; `next_offset` is where fetching continues.

        `next_offset` may be after the last entry (the filter left messages out). Entries before
        `fetched_end` arrived a second time and are dropped; returns how many.
        """
        duplicates = 0
        if entries and entries[0][0] < self.fetched_end:
            fresh = [entry for entry in entries if entry[0] >= self.fetched_end]
            duplicates = len(entries) - len(fresh)
            self.duplicates_total += duplicates
            entries = fresh
        if entries:
            assert entries[-1][0] < next_offset, "fetching goes on after the last message"
            self._last_offset = entries[-1][0]
            self.waiting.extend(entries)
            self.cached_bytes += sum([entry[1] for entry in entries])
        self.fetched_end = max(self.fetched_end, next_offset)
        return duplicates

    # ------------------------------------------------------------------------------ processing

    @property
    def cached_count(self) -> int:
        """Unfinished messages, waiting or running."""
        return len(self.waiting) + len(self._running)

    @property
    def running_count(self) -> int:
        """Taken and not finished."""
        return len(self._running)

    def take(self, count_max: int) -> list[Entry[T]]:
        """The next waiting messages, now running; at most `count_max`, none if none wait."""
        waiting = self.waiting
        taken = [waiting.popleft() for _ in range(min(count_max, len(waiting)))]
        for offset, _, _ in taken:
            self._running[offset] = None
        return taken

    def finish(self, entries: Iterable[Entry[T]]) -> None:
        """These running messages are done, each exactly once."""
        for offset, size, _ in entries:
            del self._running[offset]
            self.cached_bytes -= size

    def finish_first(self, size: int) -> None:
        """Messages of `size` bytes in total were removed from `waiting` when they were done."""
        self.cached_bytes -= size

    @property
    def safe_offset(self) -> int:
        """The lowest unfinished offset; everything before it may be committed."""
        if self._running:
            return next(iter(self._running))
        return self.waiting[0][0] if self.waiting else self.fetched_end

    @property
    def span(self) -> int:
        """How far the last fetched message is ahead of the lowest unfinished one."""
        return self._last_offset - self.safe_offset if self.cached_count else 0
