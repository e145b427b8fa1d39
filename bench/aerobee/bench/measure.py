"""Latencies, rates and processor time, measured the same way by every benchmark."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles in microseconds."""

    count: int
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latencies:
        """From single measurements in seconds, at least one."""
        ordered = sorted(seconds)
        return cls(
            count=len(ordered),
            p50_us=_rank(ordered, 0.50) * 1e6,
            p99_us=_rank(ordered, 0.99) * 1e6,
            p999_us=_rank(ordered, 0.999) * 1e6,
            max_us=ordered[-1] * 1e6,
        )


@dataclass(frozen=True, slots=True)
class Throughput:
    """How much was processed in how long, and the broker's processor time."""

    messages: int
    bytes: int
    elapsed_s: float
    broker_cpu_s: float | None = None

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.elapsed_s

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.elapsed_s / 1e6

    @property
    def broker_cpu_s_per_million(self) -> float | None:
        if self.broker_cpu_s is None:
            return None
        return self.broker_cpu_s / self.messages * 1e6


class Stopwatch:
    """Seconds since it was created, from the clock with the finest resolution."""

    __slots__ = ("_now", "_start")

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._start = now()

    def elapsed_s(self) -> float:
        return self._now() - self._start


def _rank(ordered: Sequence[float], share: float) -> float:
    """Nearest-rank percentile."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]
