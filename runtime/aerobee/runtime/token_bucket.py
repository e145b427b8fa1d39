"""How often something may happen: a number at once, and after that this many a second."""

from __future__ import annotations

from typing import Final

_TOLERANCE: Final = 1e-6
"""Who comes at the very time that it was told must not be a rounding error too early."""


class TokenBucket:
    """Pure: the caller passes the monotonic time.

    What costs more than the burst waits for a full bucket, and what comes next until it is paid.
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
        """Take this much in any case; returns in how many seconds it may be used. Who asks first is
        served first, so nobody waits for those who come later. A negative cost gives back."""
        wait_s = self.wait_s(now_s, cost)
        self._tokens -= cost
        return wait_s

    def take(self, now_s: float) -> float:
        """Take one; returns 0, or in how many seconds there will be one: then nothing was taken."""
        wait_s = self.wait_s(now_s)
        if wait_s == 0:
            self._tokens -= 1
        return wait_s
