"""How often a peer may ask for things that cost us more than the peer."""

from __future__ import annotations


class Budget:
    """Tokens: `burst` at once, then `per_s` each second. Pure: the caller passes the time.

    `tokens` is public because the hot path changes it with one assignment. The clock is read only
    when tokens run out.
    """

    __slots__ = ("_filled_s", "_per_s", "burst", "tokens")

    def __init__(self, burst: int, per_s: float, now_s: float) -> None:
        self.burst = float(burst)
        self.tokens = float(burst)
        self._per_s = per_s
        self._filled_s = now_s

    def refill(self, now_s: float, extra: float = 0.0) -> bool:
        """Call it when the number of tokens is negative. False: the peer has exceeded its
        budget."""
        elapsed_s = max(0.0, now_s - self._filled_s)
        self.tokens = min(self.burst, self.tokens + elapsed_s * self._per_s + extra)
        self._filled_s = now_s
        return self.tokens >= 0
