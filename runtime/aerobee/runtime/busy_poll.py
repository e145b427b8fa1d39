"""Polling the network without sleeping, while packets follow each other closely.

A process that sleeps between one request and the next pays for it twice: the kernel has to wake it,
and its caches are cold. While packets arrive within a short window of each other, the event loop
therefore goes round without sleeping. It sleeps as soon as the window passes without a packet, so
an idle process uses no CPU time, and a steady trickle of requests costs what it did.

It needs a core of its own: the kernel counts how often it took the core away from a thread that
wanted to go on, and polling rests when that number grows.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from typing import Final

from aerobee.runtime.clock import LOOP_CLOCK
from aerobee.runtime.machine import usable_cores

BUSY_POLL_US_MAX: Final = 1_000
CLOSE_PACKETS: Final = 8
"""How many packets have to follow each other within the window before polling begins."""
CHECK_S: Final = 0.005
REST_FIRST_S: Final = 0.1
REST_MAX_S: Final = 5.0
FORGIVENESS: Final = 0.99
"""What remains of the next rest after each check at which the core was not lost."""
CORES_MIN: Final = 2


class BusyPoll:
    """On one event loop."""

    __slots__ = (
        "_checked_s",
        "_close",
        "_heard_s",
        "_is_polling",
        "_loop",
        "_now",
        "_preempted",
        "_preemptions",
        "_rest_s",
        "_rests_until_s",
        "_window_s",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        window_s: float,
        now: Callable[[], float],
        preemptions: Callable[[], int],
    ) -> None:
        """`preemptions`: how often the calling thread has lost its core to another one."""
        self._loop = loop
        self._window_s = window_s
        self._now = now
        self._preemptions = preemptions
        self._heard_s = float("-inf")
        self._close = 0
        self._is_polling = False
        self._checked_s = 0.0
        self._preempted = 0
        self._rest_s = REST_FIRST_S
        self._rests_until_s = float("-inf")

    def __repr__(self) -> str:
        return f"BusyPoll(window={self._window_s:.6f} s, polling={self._is_polling})"

    def heard(self) -> None:
        """A packet has arrived."""
        now_s = self._now()
        is_close = now_s - self._heard_s <= self._window_s
        self._heard_s = now_s
        if not is_close:
            self._close = 0
        elif self._close < CLOSE_PACKETS:
            self._close += 1
        elif not self._is_polling and now_s >= self._rests_until_s:
            self._is_polling = True
            self._checked_s = now_s
            self._preempted = self._preemptions()
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        now_s = self._now()
        if now_s - self._heard_s > self._window_s:
            self._is_polling = False
        elif now_s - self._checked_s > CHECK_S and self._has_lost_core(now_s):
            self._is_polling = False
            self._rests_until_s = now_s + self._rest_s
            self._rest_s = min(2 * self._rest_s, REST_MAX_S)
        else:
            self._loop.call_soon(self._poll)

    def _has_lost_core(self, now_s: float) -> bool:
        before, self._preempted = self._preempted, self._preemptions()
        self._checked_s = now_s
        if self._preempted != before:
            return True
        self._rest_s = max(REST_FIRST_S, self._rest_s * FORGIVENESS)
        return False


def busy_poll(window_us: int) -> BusyPoll | None:
    """For the running event loop; None if `window_us` is 0, this process may not use two cores, so
    that polling would keep others from theirs, or the loop runs in virtual time."""
    loop = asyncio.get_running_loop()
    if not window_us or hasattr(loop, LOOP_CLOCK) or usable_cores() < CORES_MIN:
        return None
    return BusyPoll(
        loop,
        window_s=window_us / 1_000_000,
        # Not the service's clock: what is measured is this machine.
        now=time.perf_counter,
        preemptions=_preemptions,
    )


def _preemptions() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
