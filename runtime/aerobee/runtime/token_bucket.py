"""How often something may happen: a number at once, and after that so many a second."""

from __future__ import annotations


class TokenBucket:
    """Pure: the caller passes the monotonic time."""

    __slots__ = ("_burst", "_filled_s", "_per_s", "_tokens")

    def __init__(self, *, per_s: float, burst: int, now_s: float) -> None:
        assert per_s > 0, per_s
        assert burst >= 1, burst
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._filled_s = now_s

    def take(self, now_s: float) -> float:
        """Take one; returns 0, or in how many seconds there will be one: then nothing was taken."""
        self._tokens = min(
            self._burst, self._tokens + max(0.0, now_s - self._filled_s) * self._per_s
        )
        self._filled_s = now_s
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_s
