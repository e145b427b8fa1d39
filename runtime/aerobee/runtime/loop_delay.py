"""How late the event loop runs what is due, sampled ten times a second."""

from __future__ import annotations

import asyncio
from collections import deque

from aerobee.runtime.clock import Clock
from aerobee.runtime.metrics.histogram import LATENCY_S, Histogram


class LoopDelay:
    """Owns the samples of the last minute, and the counts of all."""

    __slots__ = ("_clock", "_interval_s", "_samples_ms", "histogram", "last_ms")

    def __init__(self, clock: Clock, *, interval_s: float = 0.1, samples_max: int = 600) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._samples_ms: deque[float] = deque(maxlen=samples_max)
        self.last_ms = 0.0
        self.histogram = Histogram(LATENCY_S)
        """In seconds, since the start."""

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            before_s = self._clock.monotonic_s()
            await asyncio.sleep(self._interval_s)
            late_s = max(0.0, self._clock.monotonic_s() - before_s - self._interval_s)
            self.last_ms = late_s * 1_000
            self._samples_ms.append(self.last_ms)
            self.histogram.observe(late_s)

    def p99_ms(self) -> float:
        """The delay that 99 of 100 samples of the last minute stay below."""
        if not self._samples_ms:
            return 0.0
        ordered = sorted(self._samples_ms)
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
