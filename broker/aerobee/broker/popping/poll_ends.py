"""Which polls have waited long enough: one timer for all of them, and a few ends in each turn.

Polls that came together end together, and their clients start them again at once. When thousands
ended in one turn of the event loop, everything else waited for seconds; and because they then also
started again together, the same happened a poll's length later, and again.

Owns: the polls that wait, in buckets of a few milliseconds. A timer for each would take more memory
than the rest of what a waiting poll has here.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Final, Protocol

ENDS_PER_TURN: Final = 4
"""Each takes about 0.4 ms, with the poll that follows it."""
_BUCKETS_PER_S: Final = 100


class WaitingPoll(Protocol):
    def wake(self) -> None:
        """Its time is over. Does nothing if it does not wait any more."""
        ...


Bucket = dict[WaitingPoll, None]


class PollEnds:
    """The ends of all waiting polls; on the loop."""

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        self._due: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0

    def add(self, poll: WaitingPoll, timeout_s: float) -> Bucket:
        """Wake the poll after `timeout_s`, or up to 10 ms later; and later still while many end. A
        poll that ends earlier removes itself from the bucket."""
        loop = asyncio.get_running_loop()
        at = int((loop.time() + timeout_s) * _BUCKETS_PER_S) + 1
        bucket = self._buckets.get(at)
        if bucket is None:
            bucket = self._buckets[at] = {}
            heapq.heappush(self._due, at)
            if self._timer is None or at < self._timer_at:
                self._set_timer(loop)
        bucket[poll] = None
        return bucket

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            self._timer_at = self._due[0]
            self._timer = loop.call_at(self._timer_at / _BUCKETS_PER_S, self._fire)

    def _fire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time() * _BUCKETS_PER_S + 0.5  # a loop's clock may tick in milliseconds
        room = ENDS_PER_TURN
        while room and self._due and self._due[0] <= now:
            bucket = self._buckets[self._due[0]]
            while room and bucket:
                room -= 1
                poll, _ = bucket.popitem()
                poll.wake()
            if not bucket:
                del self._buckets[heapq.heappop(self._due)]
        # If more are due, this is the loop's next turn.
        self._set_timer(loop)
