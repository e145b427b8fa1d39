"""How long Python's garbage collector has stopped the process."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from aerobee.runtime.clock import Clock
from aerobee.runtime.metrics.families import AnyFamily, one_gauge


class CollectorPauses:
    """Owns the longest one since the start."""

    __slots__ = ("_began_s", "_clock", "longest_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = 0.0
        self.longest_s = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        gc.callbacks.append(self._on_collection)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        now_s = self._clock.monotonic_s()
        if phase == "start":
            self._began_s = now_s
        elif self._began_s:
            self.longest_s = max(self.longest_s, now_s - self._began_s)

    def family(self) -> AnyFamily:
        return one_gauge(
            "aerobee_garbage_collection_longest_seconds",
            "The longest time that Python's garbage collector has stopped the process since its "
            "start.",
            self.longest_s,
        )
