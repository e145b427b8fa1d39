"""How much one search may look at, so that it occupies a thread for a few seconds at most.

Millions of entries may share a key without any of their records being wanted. A search that runs
out of budget ends with what it has; the caller is told that there may be more.
"""

from __future__ import annotations

from typing import Final

from aerobee.runtime.clock import Clock

ENTRIES_MAX: Final = 1_000_000
RECORD_ENTRIES: Final = 100
"""Reading a record costs as much as this many entries."""
SEARCH_MAX_S: Final = 5.0

_CHECK_ENTRIES: Final = 256


class SearchBudget:
    """The budget of one search on one thread; only `cancel` may be called from another."""

    __slots__ = ("_clock", "_end_s", "_entries", "_entries_max", "_next_check", "is_spent")

    def __init__(self, clock: Clock | None, *, entries_max: int = ENTRIES_MAX) -> None:
        """Without a clock only `cancel` ends it: for tools."""
        self._clock = clock
        self._entries_max = entries_max
        self._entries = 0
        self._next_check = _CHECK_ENTRIES
        self._end_s: float | None = None
        self.is_spent = False
        """Whether the search ended, or must end, before it looked at everything."""

    @property
    def entries(self) -> int:
        """The number of entries looked at, including equivalents."""
        return self._entries

    def cancel(self) -> None:
        """The answer is no longer wanted."""
        self.is_spent = True

    def spend(self, entries: int = 1) -> bool:
        """Whether the search may continue after this many more entries."""
        self._entries += entries
        if self._entries < self._next_check:
            return not self.is_spent
        self._next_check = self._entries + _CHECK_ENTRIES
        if self._clock is None:
            return not self.is_spent
        now_s = self._clock.monotonic_s()
        if self._end_s is None:
            self._end_s = now_s + SEARCH_MAX_S
        if self._entries > self._entries_max or now_s > self._end_s:
            self.is_spent = True
        return not self.is_spent
