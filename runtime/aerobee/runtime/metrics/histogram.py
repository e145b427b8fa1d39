"""A histogram as plain numbers, updated where something happens and copied when it is shown.

Owns: its counts. One thread updates it; others get a `copy`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

LATENCY_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Bounds, in seconds, for what should take milliseconds."""


class HistogramCounts(NamedTuple):
    """A histogram at one moment. `counts` has one more entry than `bounds`, for what exceeds them
    all."""

    bounds: Sequence[float]
    counts: tuple[int, ...]
    total: float
    """The sum of all values."""


class Histogram:
    """Counts values by upper bounds, which are inclusive."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds)), "bounds rise"
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def __repr__(self) -> str:
        return f"Histogram(count={sum(self._counts)}, total={self._total:g})"

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def copy(self) -> HistogramCounts:
        return HistogramCounts(self._bounds, tuple(self._counts), self._total)
