"""How often something may happen: a burst at once, and after that so many per second."""

from __future__ import annotations

from typing import Final

_TOLERANCE: Final = 1e-6
"""A caller that returns exactly when it was told to must not be too early by a rounding error."""


class TokenBucket:
    """Pure: the caller passes the monotonic time.

    Something that costs more than the burst waits for a full bucket, and whatever follows waits
    until it is paid for.
    """

    __slots__ = ("_burst", "_filled_s", "_per_s", "_tokens")

    def __init__(self, *, per_s: float, burst: float, now_s: float) -> None:
        assert per_s > 0, per_s
        assert burst >= 1, burst
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._filled_s = now_s

    @property
    def burst(self) -> float:
        return self._burst

    def wait_s(self, now_s: float, cost: float = 1) -> float:
        """In how many seconds this much may be taken; 0: now."""
        elapsed_s = now_s - self._filled_s
        if elapsed_s > 0:
            self._tokens = min(self._burst, self._tokens + elapsed_s * self._per_s)
            self._filled_s = now_s
        missing = min(cost, self._burst) - self._tokens
        return missing / self._per_s if missing > _TOLERANCE else 0.0

    def spend(self, now_s: float, cost: float) -> float:
        """Take this much unconditionally; returns in how many seconds it may be used. First come,
        first served, so nobody waits for later callers. A negative cost is a refund."""
        wait_s = self.wait_s(now_s, cost)
        self._tokens -= cost
        return wait_s

    def take(self, now_s: float) -> float:
        """Take one; returns 0, or in how many seconds there will be one, in which case nothing was
        taken."""
        wait_s = self.wait_s(now_s)
        if wait_s == 0:
            self._tokens -= 1
        return wait_s
