"""How long to wait before another try. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling delays between two bounds, each shortened by up to a half at random.

    The random part keeps clients that failed together from coming back together.

    >>> Backoff(base_ms=100, max_ms=2_000).bound_ms(3)
    800
    """

    base_ms: int = 100
    max_ms: int = 2_000

    def bound_ms(self, failures: int) -> int:
        """The longest delay after `failures` earlier failures in a row."""
        return min(self.max_ms, self.base_ms << min(failures, 16))

    def delay_s(self, failures: int, chance: random.Random) -> float:
        """Seconds to wait after `failures` earlier failures in a row."""
        return self.bound_ms(failures) * (0.5 + 0.5 * chance.random()) / 1_000
