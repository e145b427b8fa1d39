"""Backoff as a value: how long to wait before the next attempt.

Owns: the arithmetic of delays. The caller decides what to retry and how often; the jitter comes
from a Random that the caller passes in.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from aerobee.runtime.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that grow by `factor` from `base_ms` up to `max_ms`.

    `jitter` is the share of each delay that randomness may take away, 0 (none) to 1 (all of it), so
    that clients that lost the same server do not return in step.
    """

    base_ms: int = 100
    max_ms: int = 5_000
    factor: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.base_ms <= self.max_ms:
            raise InvalidArgument(
                f"a back-off needs 0 < base_ms <= max_ms, not {self.base_ms} and {self.max_ms}"
            )
        if self.factor < 1 or not 0 <= self.jitter <= 1:
            raise InvalidArgument(
                f"a back-off needs factor >= 1 and 0 <= jitter <= 1, "
                f"not {self.factor} and {self.jitter}"
            )

    def delay_s(self, attempt: int, chance: random.Random) -> float:
        """Seconds to wait after the `attempt`-th failure in a row (the first is 1)."""
        # After 64 doublings every sensible backoff has reached its maximum.
        exponent = min(max(attempt, 1) - 1, 64)
        full_ms = min(float(self.max_ms), self.base_ms * self.factor**exponent)
        return (full_ms - full_ms * self.jitter * chance.random()) / 1_000

    def delays_s(self, chance: random.Random) -> Iterator[float]:
        """The endless sequence of delays after the first, second, ... failure."""
        attempt = 0
        while True:
            attempt += 1
            yield self.delay_s(attempt, chance)
