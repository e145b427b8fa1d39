"""Keeps the garbage collector from pausing the loop over and over.

A full collection traverses everything in memory while nothing else runs: with ten thousand waiting
clients this takes more than a second. Python starts one whenever the objects created since the last
amount to a quarter of all, which happens several times a minute under a steady load.

Owns: this process's thresholds. Invariant: full collections take at most one hundredth of the time,
so reference cycles live a little longer. Younger generations are collected as usual.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Final

from aerobee.runtime.clock import Clock

_SHARE: Final = 100
_LOOK_S: Final = 1.0
_SHORT_S: Final = 0.01
"""A collection shorter than this is not worth a pause."""
_NEVER: Final = 1 << 30


class SparedCollector:
    """The collector of one process; collections may run on any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._young, self._middle, self._old = gc.get_threshold()
        self._began_s = 0.0
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._has_opened = False

    def begin(self) -> None:
        """On the running loop."""
        assert self._timer is None, "it has not begun"
        gc.callbacks.append(self._on_collection)
        self.look()

    def end(self) -> None:
        """Restore Python's own thresholds."""
        gc.callbacks.remove(self._on_collection)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gc.set_threshold(self._young, self._middle, self._old)

    def opened(self) -> None:
        """Objects that live as long as the process are no longer traversed: 80,000 queues would
        take tens of milliseconds each time."""
        if self._has_opened:
            gc.unfreeze()  # from a store that was closed and is opened again
            gc.collect()
        else:
            # Most older objects come from imports, and traversing them would cost the start more
            # than all of its garbage is worth.
            gc.collect(1)
        self._has_opened = True
        gc.freeze()

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < 2:
            return
        now_s = self._clock.monotonic_s()
        if phase == "start":
            self._began_s = now_s
        elif (took_s := now_s - self._began_s) > _SHORT_S:
            self._next_s = now_s + took_s * _SHARE
            gc.set_threshold(self._young, self._middle, _NEVER)

    def look(self) -> None:
        """Collect as usual again if it is time; runs once a second."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self.look)
        if self._clock.monotonic_s() >= self._next_s:
            gc.set_threshold(self._young, self._middle, self._old)
