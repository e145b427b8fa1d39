"""Keeps the garbage collector from pausing the loop.

A full collection traverses everything in memory while nothing else runs: with ten thousand waiting
clients this takes more than a second. But most of what a service holds stays for hours and is freed
by its reference counts. So the collector looks at each object three times while it is young, and
what is still there is frozen: no longer traversed, but freed as always once nothing refers to it.

Only a cycle that becomes garbage after it was frozen stays. Once the process holds half of the
memory that it may use, everything is looked through for those.

Owns: this process's thresholds, and what is frozen. Invariants: a collection traverses about 5,000
objects, as measured from the last; looking everything through takes at most one hundredth of the
time, and happens again only after memory has grown by a quarter.

Pythons whose collector is incremental, such as 3.14.0, bound its pauses themselves. There only what
the start has made is frozen.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, Final

from aerobee.runtime.beat import next_beat
from aerobee.runtime.clock import Clock
from aerobee.runtime.machine import private_bytes

THRESHOLDS: Final = (500, 1, 1)
"""A generation is collected after every third collection of the younger one: the oldest has at most
nine times as many objects as the youngest."""
_OLDEST: Final = 2
_FULL_SHARE: Final = 2
"""Of the memory that the process may use."""
_GROWTH: Final = 1.25
_TIME_SHARE: Final = 100
_LOOK_S: Final = 1.0


class SparedCollector:
    """The collector of one process; collections may run on any thread."""

    def __init__(
        self, clock: Clock, memory_bytes: int, *, used_bytes: Callable[[], int] = private_bytes
    ) -> None:
        """`memory_bytes`: what the process may use."""
        self._clock = clock
        self._used_bytes = used_bytes
        self._full_bytes = self._half_bytes = memory_bytes // _FULL_SHARE
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._has_opened = False
        self._thresholds = gc.get_threshold()
        # An incremental collector has no third generation.
        self._is_incremental = self._thresholds[_OLDEST] == 0

    def begin(self) -> None:
        """On the running loop."""
        assert self._timer is None, "it has not begun"
        if not self._is_incremental:
            gc.callbacks.append(self._on_collection)
            gc.set_threshold(*THRESHOLDS)
            self.look()

    def end(self) -> None:
        """Restore Python's own thresholds, and let it traverse everything again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._on_collection)
            gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def opened(self) -> None:
        """Freeze what lives as long as the process: 80,000 queues would take tens of milliseconds
        each time."""
        if self._has_opened:
            gc.unfreeze()  # from a store that was closed and is opened again
            gc.collect()
        else:
            # Most older objects come from imports, and traversing them would cost the start more
            # than all of its garbage is worth.
            gc.collect(1)
        self._has_opened = True
        gc.freeze()
        gc.collect()  # of nothing: Python delays full collections by the size of the last one

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST:
            gc.freeze()

    def look(self) -> None:
        """Look everything through if memory is short; runs once a second."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(next_beat(loop.time(), _LOOK_S), self.look)
        began_s = self._clock.monotonic_s()
        if began_s < self._next_s or self._used_bytes() < self._full_bytes:
            return
        gc.unfreeze()
        gc.collect()
        now_s = self._clock.monotonic_s()
        self._next_s = now_s + (now_s - began_s) * _TIME_SHARE
        self._full_bytes = max(self._half_bytes, int(self._used_bytes() * _GROWTH))
