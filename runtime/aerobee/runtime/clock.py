"""Time and randomness, as parameters.

Owns: the only places in the product that read a clock or make a Random. Everything else takes a
Clock, so that tests control the time.
"""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from typing import Protocol

LOOP_CLOCK = "aerobee_clock"
"""The event loop attribute that holds the loop's own clock."""


class Clock(Protocol):
    """The time, on two scales that must not be mixed."""

    def now_ms(self) -> int:
        """Unix milliseconds. May step back or forward; for timestamps seen by people and files."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never steps back. For leases, timeouts and rates."""
        ...


class SystemClock:
    """The machine's clocks.

    The monotonic clock also runs while the machine sleeps, if the system has such a clock: a laptop
    that wakes up must not believe that its leases are still valid.
    """

    __slots__ = ()

    # Called several times for each message: a partial saves a frame of Python each time.
    monotonic_s = staticmethod(
        partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    )

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def clock_here() -> Clock:
    """The machine's clocks or, in a loop that a test runs in virtual time, the loop's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return SystemClock()
    own: Clock | None = getattr(loop, LOOP_CLOCK, None)
    return SystemClock() if own is None else own


def thread_busy_s() -> float:
    """CPU time that the calling thread has used, in seconds."""
    return time.thread_time()


class ManualClock:
    """A clock that moves only when told to; for tests and simulations."""

    __slots__ = ("_monotonic_s", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_s: float = 1_000.0) -> None:
        self._now_ms = now_ms
        self._monotonic_s = monotonic_s

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance_ms(self, elapsed_ms: int) -> None:
        """Move both scales forward."""
        self._now_ms += elapsed_ms
        self._monotonic_s += elapsed_ms / 1_000

    def step_wall_ms(self, step_ms: int) -> None:
        """Step only the wall clock, back or forward, as an operator or NTP would."""
        self._now_ms += step_ms


def system_random() -> random.Random:
    """A Random seeded by the operating system."""
    return random.Random()
