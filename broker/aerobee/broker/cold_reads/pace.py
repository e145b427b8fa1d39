"""How fast something may go while others are to be spared: a number of bytes per second.

Pure: time is passed in, and it returns how long to wait.
"""

from __future__ import annotations

BURST_S = 0.02
"""The most sent at once, as time at the full rate; short, so that no reader waits for a burst."""
SAMPLE_S = 0.1
LATE_MS = 5.0
RISE, FALL = 2.0, 0.5
RISE_MAX = 4.0
"""At most this multiple of the floor: a single send must still get through."""


class Pace:
    """Bytes are counted when they start; the next may start once the count is paid off.

    `bytes_per_s` may be changed at any time and applies to what starts from then on; 0: no limit.
    """

    __slots__ = ("_paid_s", "bytes_per_s")

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._paid_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """How long until the next may start; 0: it may start now."""
        if self.bytes_per_s == 0:
            return 0.0
        return max(0.0, self._paid_s - BURST_S - now_s)

    def start(self, now_s: float, size: int) -> None:
        """`size` bytes start now."""
        if self.bytes_per_s:
            self._paid_s = max(self._paid_s, now_s) + size / self.bytes_per_s

    def clear(self) -> None:
        """No load needs to be spared: forget what was counted."""
        self._paid_s = 0.0


class LatenessLimit:
    """A rate that may rise while something that shares the processor stays on time.

    Starting at `floor` per second, it doubles with each punctual sample and halves with each late
    one. Pure: lateness is passed in.
    """

    __slots__ = ("_due_s", "floor", "per_s")

    def __init__(self, floor: float) -> None:
        self.floor = floor
        self.per_s = floor
        self._due_s = 0.0

    def observe(self, now_s: float, late_ms: float) -> None:
        """Take in a sample; one is used every `SAMPLE_S`."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + SAMPLE_S
        change = RISE if late_ms <= LATE_MS else FALL
        self.per_s = min(max(self.floor, self.per_s * change), self.floor * RISE_MAX)

    def reset(self) -> None:
        """Restart at the floor."""
        self.per_s = self.floor


class Rate:
    """How fast a total grows, measured about every `interval_s`."""

    __slots__ = ("_interval_s", "_since_s", "_total", "per_s")

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._since_s = 0.0
        self._total = 0
        self.per_s = 0.0

    def observe(self, now_s: float, total: int) -> None:
        """Take in the present total."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= self._interval_s:
            self.per_s = (total - self._total) / elapsed_s
            self._since_s = now_s
            self._total = total
