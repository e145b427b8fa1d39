"""Who waits for the log to be safe on disk up to a position.

Owns: the waiters of SYNC_FLUSH, in log order, with their deadlines, and those of back-pressure.
On the loop: the flush thread's progress arrives as `on_flushed`, time as `on_time`.
Invariants: waiters are told in the order of their positions, each exactly once; `flushed_end`
never falls. Nobody learns that bytes are on disk before `on_flushed` said so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

FlushOutcome = Callable[[bool], None]
"""Told True when flushed, False when the deadline came first."""


@dataclass(slots=True)
class _Waiter:
    end: int
    deadline_s: float
    told: FlushOutcome | None


class FlushWaiters:
    """Callbacks waiting for `flushed_end` to reach their end."""

    def __init__(self, flushed_end: int, *, on_deadline_set: Callable[[float], None]) -> None:
        """`on_deadline_set` is told the monotonic second at which `on_time` must be called; the
        earliest of those told counts."""
        self._flushed_end = flushed_end
        self._on_deadline_set = on_deadline_set
        self._waiters: deque[_Waiter] = deque()
        self._timer_s = float("inf")
        self._progress: asyncio.Event = asyncio.Event()

    def __repr__(self) -> str:
        return f"FlushWaiters(flushed_end={self._flushed_end}, waiting={len(self._waiters)})"

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def flushed_end(self) -> int:
        return self._flushed_end

    def add(self, end: int, deadline_s: float, told: FlushOutcome) -> None:
        """Wait for `end`, an exclusive log position that was just appended."""
        if end <= self._flushed_end:
            told(True)
            return
        assert not self._waiters or self._waiters[-1].end <= end, "appends have rising ends"
        self._waiters.append(_Waiter(end, deadline_s, told))
        self._arm(deadline_s)

    def on_flushed(self, flushed_end: int) -> None:
        """The disk holds everything below `flushed_end`."""
        assert flushed_end >= self._flushed_end, "flushed bytes do not become unflushed"
        self._flushed_end = flushed_end
        waiters = self._waiters
        while waiters and waiters[0].end <= flushed_end:
            told = waiters.popleft().told
            if told is not None:
                told(True)
        self._progress.set()
        self._progress = asyncio.Event()

    def on_time(self, now_s: float) -> None:
        """Give up on the waiters whose deadline has come."""
        self._timer_s = float("inf")
        earliest_s = float("inf")
        for waiter in self._waiters:
            if waiter.told is None:
                continue
            if waiter.deadline_s <= now_s:
                # It stays in its place, spent, until the log gets there: removing from the middle
                # of a deque is slow, and a disk that late has few waiters.
                told, waiter.told = waiter.told, None
                told(False)
            else:
                earliest_s = min(earliest_s, waiter.deadline_s)
        if earliest_s < float("inf"):
            self._arm(earliest_s)

    async def wait_progress(self) -> None:
        """Until the next flush, whatever it covered."""
        await self._progress.wait()

    def _arm(self, deadline_s: float) -> None:
        if deadline_s < self._timer_s:
            self._timer_s = deadline_s
            self._on_deadline_set(deadline_s)
