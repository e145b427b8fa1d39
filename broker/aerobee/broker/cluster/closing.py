"""Whether the broker group is closed: after a grace period, clients' new messages are refused.

Producers learn of it from their routes. Until the grace period ends, those that have not yet may
continue, so that a message whose key maps to a queue here is not refused in flight.
"""

from __future__ import annotations

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotWritable


class Closing:
    """What this process has learned of it; on the loop."""

    def __init__(self, clock: Clock, *, broker_name: str, grace_ms: int) -> None:
        self._clock = clock
        self._broker_name = broker_name
        self._grace_s = grace_ms / 1_000
        self._refuses_s: float | None = None

    def hear(self, *, is_closed: bool) -> None:
        """Take over what the broker group's record says."""
        if not is_closed:
            self._refuses_s = None
        elif self._refuses_s is None:
            self._refuses_s = self._clock.monotonic_s() + self._grace_s

    @property
    def refuses(self) -> bool:
        """Whether the group is closed and the grace period over."""
        return self._refuses_s is not None and self._clock.monotonic_s() >= self._refuses_s

    @property
    def refuses_in_ms(self) -> int:
        """For a closed group: the time until new messages are refused."""
        if self._refuses_s is None:
            return 0
        return max(0, round((self._refuses_s - self._clock.monotonic_s()) * 1_000))

    def check(self) -> None:
        """Raises NotWritable: new messages belong elsewhere."""
        if self.refuses:
            raise NotWritable(
                f"broker group {self._broker_name} is closed and takes no new messages: send to a "
                "queue of another one"
            )
