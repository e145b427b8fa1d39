"""How late the event loop runs what is due.

Sampled ten times a second while the loop is working or was recently late, and every 2 s while it
only waits: an idle process should not wake up to find that out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aerobee.runtime.clock import Clock, thread_busy_s
from aerobee.runtime.metrics.histogram import LATENCY_S, Histogram

INTERVAL_S = 0.1
IDLE_INTERVAL_S = 2.0
IDLE_SHARE = 0.02
"""A loop that works less of the time than this is idle."""
WATCHED_S = 5.0
"""A loop that was late is sampled often for this long, whatever it does."""
KEPT_S = 60.0


class LoopDelay:
    """Owns the samples of the last minute, and the total counts."""

    __slots__ = ("_busy_s", "_clock", "_late", "_samples", "histogram", "last_ms")

    def __init__(self, clock: Clock, *, busy_s: Callable[[], float] = thread_busy_s) -> None:
        """`busy_s` gives the CPU time of the loop's thread."""
        self._clock = clock
        self._busy_s = busy_s
        # When it was taken, and how late in milliseconds.
        self._samples: deque[tuple[float, float]] = deque()
        self._late: list[tuple[float, Callable[[], None]]] = []
        self.last_ms = 0.0
        self.histogram = Histogram(LATENCY_S)
        """In seconds, since the start."""

    def on_late(self, late_s: float, told: Callable[[], None]) -> None:
        """Call this whenever something ran late."""
        self._late.append((late_s, told))

    async def run(self) -> None:
        """Sample until cancelled."""
        interval_s, was_late_s = INTERVAL_S, float("-inf")
        while True:
            before_s, busy_before_s = self._clock.monotonic_s(), self._busy_s()
            await asyncio.sleep(interval_s)
            now_s = self._clock.monotonic_s()
            late_s = max(0.0, now_s - before_s - interval_s)
            self.take(now_s, late_s)
            if late_s >= INTERVAL_S:
                was_late_s = now_s
            # A loop that is kept from running works as little as an idle one.
            has_worked = self._busy_s() - busy_before_s >= IDLE_SHARE * interval_s
            is_idle = not has_worked and now_s - was_late_s >= WATCHED_S
            interval_s = IDLE_INTERVAL_S if is_idle else INTERVAL_S

    def take(self, now_s: float, late_s: float) -> None:
        """The loop was late by `late_s` seconds."""
        self.last_ms = late_s * 1_000
        self._samples.append((now_s, self.last_ms))
        while self._samples[0][0] < now_s - KEPT_S:
            self._samples.popleft()
        self.histogram.observe(late_s)
        for bound_s, told in self._late:
            if late_s >= bound_s:
                told()

    def late_share(self, late_s: float, window_s: float) -> float:
        """The share of the time during which something was late by `late_s` or more."""
        since_s = self._clock.monotonic_s() - window_s
        late_ms = sum(ms for at_s, ms in self._samples if at_s > since_s and ms >= late_s * 1_000)
        return min(1.0, late_ms / 1_000 / window_s)

    def p99_ms(self) -> float:
        """The 99th percentile of the delays in the last minute."""
        if not self._samples:
            return 0.0
        ordered = sorted(late_ms for _, late_ms in self._samples)
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
