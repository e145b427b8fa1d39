"""Time and chance, as parameters.

Owns: the only places of the product that read a clock or make a Random. Everything else takes a
Clock, so that tests decide what time it is.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Protocol

LOOP_CLOCK = "aerobee_clock"
"""The attribute of an event loop by which it says what time it is in it."""


class Clock(Protocol):
    """What time it is, on two scales that must not be mixed."""

    def now_ms(self) -> int:
        """Unix milliseconds. May step back or forward; for timestamps that people and files see."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never steps back. For leases, timeouts and rates."""
        ...


class SystemClock:
    """The machine's clocks.

    The monotonic one goes on while the machine sleeps, where the system has such a clock: a laptop
    that wakes up must not believe that its leases still hold.
    """

    __slots__ = ()

    _MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.clock_gettime(self._MONOTONIC)


def clock_here() -> Clock:
    """The machine's clocks; in a loop that a test runs in virtual time, the loop's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return SystemClock()
    own: Clock | None = getattr(loop, LOOP_CLOCK, None)
    return SystemClock() if own is None else own


def thread_busy_s() -> float:
    """For how long the calling thread has worked, in seconds of CPU time."""
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
        """Move the wall clock alone, back or forward, as an operator or NTP would."""
        self._now_ms += step_ms


def system_random() -> random.Random:
    """A Random seeded by the operating system."""
    return random.Random()
