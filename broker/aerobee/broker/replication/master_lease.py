"""PURE: until when a master may rely on no other having been elected.

Owns: which heartbeats were sent when, and the lease that follows from the newest one that etcd has
confirmed. etcd's lease begins when etcd receives the heartbeat, never before it was sent: so a
lease counted from sending ends here first, and the margin covers clocks that run at different
rates. Times are seconds of a clock that never goes back and continues while the machine sleeps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

HEARTBEATS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class LeaseMargin:
    """What is subtracted from the lease."""

    share: float = 0.05
    """Share of its duration, for clocks that run at different rates."""
    seconds: float = 0.1
    """For the time between reading the clock and acting on it."""

    def length_s(self, lease_ms: int) -> float:
        return lease_ms / 1_000 * (1 - self.share) - self.seconds


class MasterLease:
    """One process's lease; not valid before the first confirmation."""

    def __init__(self, margin: LeaseMargin | None = None) -> None:
        self._margin = margin or LeaseMargin()
        self._sent: deque[tuple[int, float]] = deque(maxlen=HEARTBEATS_MAX)
        self.end_s = float("-inf")

    def __repr__(self) -> str:
        return f"MasterLease(end_s={self.end_s})"

    def sent(self, sequence: int, now_s: float) -> None:
        """A heartbeat is about to be sent."""
        assert not self._sent or self._sent[-1][0] < sequence, "sequences rise"
        self._sent.append((sequence, now_s))

    def renewed(self, sequence: int, lease_ms: int) -> None:
        """etcd has confirmed the renewal by this heartbeat; an unknown one changes nothing."""
        while self._sent and self._sent[0][0] < sequence:
            self._sent.popleft()
        if self._sent and self._sent[0][0] == sequence:
            self.end_s = max(self.end_s, self._sent[0][1] + self._margin.length_s(lease_ms))

    def is_valid(self, now_s: float) -> bool:
        return now_s < self.end_s
