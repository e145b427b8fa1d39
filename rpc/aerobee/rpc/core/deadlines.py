"""When calls run out of time: one timer for all of them.

Owns: the calls that have a deadline, in buckets of a few milliseconds. A separate timer for each
call would cost as much as the call's framing. A client watches its deadline itself, and the
server's only frees what the call holds, so it may be one bucket late.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final, Protocol

_BUCKETS_PER_S: Final = 100
_CALLS_PER_TURN: Final = 16
"""A peer may give the calls of many connections one deadline; others are served in between."""


class Overdue(Protocol):
    def on_deadline(self) -> None:
        """Its time is over."""
        ...


Bucket = set[Overdue]


class Deadlines:
    """The deadlines of all calls of one event loop."""

    __slots__ = ("_buckets", "_due", "_loop", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, Bucket] = {}
        self._due: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0

    def add(self, call: Overdue, timeout_s: float) -> Bucket:
        """Call `on_deadline` after `timeout_s`, at most 10 ms late. A call that ends earlier
        removes itself from the bucket."""
        at = int((self._loop.time() + timeout_s) * _BUCKETS_PER_S) + 1
        bucket = self._buckets.get(at)
        if bucket is None:
            bucket = self._buckets[at] = set()
            heapq.heappush(self._due, at)
            if self._timer is None or at < self._timer_at:
                self._set_timer()
        bucket.add(call)
        return bucket

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            self._timer_at = self._due[0]
            self._timer = self._loop.call_at(self._timer_at / _BUCKETS_PER_S, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time() * _BUCKETS_PER_S + 0.5  # a loop's clock may tick in milliseconds
        room = _CALLS_PER_TURN
        while room and self._due and self._due[0] <= now:
            bucket = self._buckets[self._due[0]]
            while room and bucket:
                room -= 1
                bucket.pop().on_deadline()
            if not bucket:
                del self._buckets[heapq.heappop(self._due)]
        self._set_timer()

    def close(self) -> None:
        """Forget all deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due.clear()
        self._buckets.clear()
