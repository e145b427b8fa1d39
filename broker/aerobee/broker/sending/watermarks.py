"""Who waits for the log to be safe up to a position.

Owns: the waiters of one rising watermark (flushed, confirmed, acknowledged), in log order, with
their deadlines, soonest first. On the loop: progress arrives as `reached`, time as `on_time`, and
the cost of each is proportional to the waiters that it notifies.
Invariants: waiters are notified in the order of their positions, each exactly once; the watermark
never falls. Bytes are reported as safe only after `reached` was called for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from aerobee.runtime.clock import Clock
from aerobee.runtime.waiting import Waiters

_NEVER = float("inf")

Outcome = Callable[[bool], None]
"""Called with True when the position is reached; False: the deadline or term's end came first."""


STALE_DEADLINES_MAX = 64
"""Deadlines kept of waiters already notified, in addition to as many as there are waiters."""


@dataclass(slots=True)
class _Waiter:
    end: int
    deadline_s: float
    told: Outcome | None

    def __lt__(self, other: _Waiter) -> bool:
        return self.deadline_s < other.deadline_s


class EndWaiters:
    """Callbacks waiting for a watermark to reach their end."""

    def __init__(self, end: int, *, on_deadline_set: Callable[[float], None]) -> None:
        """`on_deadline_set` gets the monotonic second at which `on_time` must be called. It is
        called when an earlier time replaces the last one, or when the last one has passed."""
        self._end = end
        self._on_deadline_set = on_deadline_set
        self._waiters: deque[_Waiter] = deque()
        # A heap. Notified waiters stay in it until they are first, or too many accumulate.
        self._deadlines: list[_Waiter] = []
        self._timer_s = _NEVER
        self._progress = Waiters()
        self._afterwards: dict[Callable[[], None], None] = {}

    def __repr__(self) -> str:
        return f"EndWaiters(end={self._end}, waiting={len(self._waiters)})"

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def deadline_count(self) -> int:
        """Deadlines kept, including those of notified waiters."""
        return len(self._deadlines)

    @property
    def end(self) -> int:
        """The watermark: everything below is safe."""
        return self._end

    def add(self, end: int, deadline_s: float, told: Outcome) -> None:
        """Wait for `end`, an exclusive log position that was appended."""
        if end <= self._end:
            told(True)
            self._end_telling()
            return
        waiter = _Waiter(end, deadline_s, told)
        if self._waiters and self._waiters[-1].end > end:
            self._insert(waiter)  # a caller that asks for something older: rare
        else:
            self._waiters.append(waiter)
        if deadline_s < _NEVER:
            heappush(self._deadlines, waiter)
            if len(self._deadlines) > 2 * len(self._waiters) + STALE_DEADLINES_MAX:
                self._deadlines = [one for one in self._deadlines if one.told is not None]
                heapify(self._deadlines)
            self._arm(deadline_s)

    def afterwards(self, call: Callable[[], None]) -> None:
        """For waiters being notified: call this once all of the present ones have been notified;
        only once, however many of them request it."""
        self._afterwards[call] = None

    def _end_telling(self) -> None:
        if self._afterwards:
            calls, self._afterwards = self._afterwards, {}
            for call in calls:
                call()

    def _insert(self, waiter: _Waiter) -> None:
        place = len(self._waiters)
        while place and self._waiters[place - 1].end > waiter.end:
            place -= 1
        self._waiters.insert(place, waiter)

    def reached(self, end: int) -> None:
        """Everything below `end` is safe."""
        assert end >= self._end, "what was safe stays safe"
        self._end = end
        waiters = self._waiters
        while waiters and waiters[0].end <= end:
            waiter = waiters.popleft()
            told, waiter.told = waiter.told, None
            if told is not None:
                told(True)
        self._end_telling()
        self._progress.wake()

    def give_up(self) -> None:
        """Tell every waiter that its position was not reached."""
        waiting, self._waiters = self._waiters, deque()
        for waiter in waiting:
            told, waiter.told = waiter.told, None
            if told is not None:
                told(False)
        self._end_telling()
        self._progress.wake()

    def on_time(self, now_s: float) -> None:
        """Give up on the waiters whose deadline has passed."""
        self._timer_s = _NEVER
        deadlines = self._deadlines
        while deadlines and (deadlines[0].told is None or deadlines[0].deadline_s <= now_s):
            # The spent waiter stays in its place in log order until the log gets there: removing
            # from the middle of a deque is slow.
            waiter = heappop(deadlines)
            told, waiter.told = waiter.told, None
            if told is not None:
                told(False)
            deadlines = self._deadlines  # `told` may have added another
        self._end_telling()
        if deadlines:
            self._arm(deadlines[0].deadline_s)

    async def wait_progress(self) -> None:
        """Until the next `reached` or `give_up`, whatever position it covers."""
        await self._progress.wait()

    async def wait(self, end: int, deadline_s: float) -> bool:
        """Whether `end` was reached before the deadline."""
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def told(in_time: bool) -> None:
            if not reached.done():
                reached.set_result(in_time)

        self.add(end, deadline_s, told)
        return await reached

    def _arm(self, deadline_s: float) -> None:
        if deadline_s < self._timer_s:
            self._timer_s = deadline_s
            self._on_deadline_set(deadline_s)


def timed_waiters(clock: Clock) -> Callable[[int], EndWaiters]:
    """Makes waiters for a watermark starting at a given position; their deadlines are timers of
    this loop."""
    loop = asyncio.get_running_loop()

    def make(end: int) -> EndWaiters:
        timer: asyncio.TimerHandle | None = None

        def wake_at(deadline_s: float) -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
            delay_s = max(0.0, deadline_s - clock.monotonic_s())
            timer = loop.call_later(delay_s, lambda: waiters.on_time(clock.monotonic_s()))

        waiters = EndWaiters(end, on_deadline_set=wake_at)
        return waiters

    return make
