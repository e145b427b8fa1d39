"""Whether the broker group is closed: then clients' new messages are refused, after a while.

Producers learn of it from their routes. Those that have not yet may go on for the grace, so that a
message that belongs to a queue here, because of its key, is not refused on its way.
"""

from __future__ import annotations

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotWritable


class Closing:
    """What this process has heard; on the loop."""

    def __init__(self, clock: Clock, *, broker_name: str, grace_ms: int) -> None:
        self._clock = clock
        self._broker_name = broker_name
        self._grace_s = grace_ms / 1_000
        self._refuses_s: float | None = None

    def hear(self, *, is_closed: bool) -> None:
        """As the group's record says."""
        if not is_closed:
            self._refuses_s = None
        elif self._refuses_s is None:
            self._refuses_s = self._clock.monotonic_s() + self._grace_s

    @property
    def refuses(self) -> bool:
        """The group is closed, and the grace is over."""
        return self._refuses_s is not None and self._clock.monotonic_s() >= self._refuses_s

    @property
    def refuses_in_ms(self) -> int:
        """Of a closed group: until new messages are refused."""
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
