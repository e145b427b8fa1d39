"""How long to wait before the next attempt to connect. Pure."""

from __future__ import annotations

from random import Random


class Backoff:
    """Longer after each failure, up to a limit, and randomised, so that clients do not retry in
    step."""

    __slots__ = ("_delay_s", "_factor", "_first_s", "_jitter", "_max_s", "_random")

    def __init__(
        self, first_s: float, max_s: float, random: Random, *, factor: float = 1.6,
        jitter: float = 0.2,
    ) -> None:  # fmt: skip
        """`jitter`: how far a delay may vary, as a fraction of it."""
        self._first_s = self._delay_s = first_s
        self._max_s = max_s
        self._factor = factor
        self._jitter = jitter
        self._random = random

    def next_s(self) -> float:
        """The delay after one more failure; at most `max_s`."""
        delay_s = self._delay_s
        self._delay_s = min(self._max_s, delay_s * self._factor)
        spread = self._random.uniform(1 - self._jitter, 1 + self._jitter)
        return min(self._max_s, delay_s * spread)

    def reset(self) -> None:
        """An attempt succeeded."""
        self._delay_s = self._first_s
