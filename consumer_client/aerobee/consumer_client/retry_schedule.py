"""When a message whose handling failed is handled again.

Owns: the delays (Apache RocketMQ's, from 10 s to 2 h, times a scale) and the messages waiting for
them. The number of waiting messages is bounded by the process queues to which they still belong.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from aerobee.client_core.defaults import check_whole_number
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument

W = TypeVar("W")

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
RETRY_DELAYS_MS = (
    10_000,
    30_000,
    *(minutes * MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    HOUR_MS,
    2 * HOUR_MS,
)
"""After the 1st, 2nd, ... failure; the last one repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and after which delays, a failed message is handled again."""

    attempts_max: int = 16
    """After this many failures the message is exhausted: `on_exhausted` decides."""
    delays_ms: tuple[int, ...] = RETRY_DELAYS_MS
    scale: float = 1.0
    """Multiplies every delay; small in tests and for quick listeners."""

    def __post_init__(self) -> None:
        check_whole_number("attempts_max", self.attempts_max, minimum=1)
        if not isinstance(self.delays_ms, tuple | list) or not self.delays_ms:
            raise InvalidArgument("a retry policy needs delays_ms, at least one, in a tuple")
        for delay_ms in self.delays_ms:
            check_whole_number("each of delays_ms", delay_ms, minimum=0)
        if not isinstance(self.scale, int | float) or self.scale < 0:
            raise InvalidArgument(f"the retry scale must be at least 0, not {self.scale}")

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row (the first is 1)."""
        index = min(max(failures, 1), len(self.delays_ms)) - 1
        return self.delays_ms[index] * self.scale / 1_000


class RetrySchedule(Generic[W]):
    """What waits for its time, soonest first; equal times in order of arrival."""

    __slots__ = ("_added", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, W]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_s: float, work: W) -> None:
        self._added += 1
        heapq.heappush(self._heap, (due_s, self._added, work))

    @property
    def next_due_s(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_s: float) -> list[W]:
        """Remove and return what is due."""
        due: list[W] = []
        while self._heap and self._heap[0][0] <= now_s:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def remove_if(self, condition: Callable[[W], bool]) -> int:
        """Forget matching entries (their queue was lost); returns how many."""
        kept = [item for item in self._heap if not condition(item[2])]
        removed = len(self._heap) - len(kept)
        heapq.heapify(kept)
        self._heap = kept
        return removed


class TimedRetries(RetrySchedule[W]):
    """A schedule that passes on what is due by itself, with one timer of the loop."""

    __slots__ = ("_clock", "_on_due", "_timer", "_timer_due_s")

    def __init__(self, clock: Clock, on_due: Callable[[W], None]) -> None:
        super().__init__()
        self._clock = clock
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0

    def add(self, due_s: float, work: W) -> None:
        super().add(due_s, work)
        self._arm()

    def close(self) -> None:
        """Nothing is passed on any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        due_s = self.next_due_s
        if due_s is None or (self._timer is not None and self._timer_due_s <= due_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        delay_s = max(0.0, due_s - self._clock.monotonic_s())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        for work in self.pop_due(self._clock.monotonic_s()):
            self._on_due(work)
        self._arm()
