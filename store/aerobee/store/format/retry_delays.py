"""After which delays a group's failed messages are redelivered, as Apache's `groupRetryPolicy`
says.

Brokers wait this long by themselves; clients are given the same delays and ask for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_STEPS_SKIPPED: Final = 2
"""Apache's broker skips the first two delays of a list, as it does with its levels."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """Waits `initial_ms` after the first failure, and `multiplier` times longer after each further
    one, but never longer than `max_ms`."""

    initial_ms: int = 5_000
    max_ms: int = 7_200_000
    multiplier: int = 2

    def delay_ms(self, times: int) -> int:
        """The delay after the failure of a message that has been redelivered `times` times."""
        # 64 doublings exceed any maximum; more would only create huge numbers.
        factor: int = self.multiplier ** min(times, 64)
        return min(self.max_ms, self.initial_ms * factor)


IN_ORDER: Final = Exponential(1_000, 60_000)
"""For a failed message that holds up its queue, unless its group has exponential delays of its own:
it is tried again soon after an outage, whether that took seconds or hours."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Waits the delays of a list, then repeats the last one."""

    delays_ms: tuple[int, ...]

    @property
    def all_ms(self) -> tuple[int, ...]:
        """After the first failure, the second and so on."""
        return self.delays_ms[_STEPS_SKIPPED:] or self.delays_ms[-1:]

    def delay_ms(self, times: int) -> int:
        """As `Exponential.delay_ms`."""
        return self.all_ms[min(times, len(self.all_ms) - 1)]
