"""Long reads on the loop, in small steps."""

from __future__ import annotations

import asyncio

from aerobee.runtime.clock import Clock

STEP_S = 0.002


class Slices:
    """Lets the loop run whenever the current step has taken long enough."""

    __slots__ = ("_began_s", "_clock", "_step_s", "longest_s")

    def __init__(self, clock: Clock, *, step_s: float = STEP_S) -> None:
        self._clock = clock
        self._step_s = step_s
        self._began_s = clock.monotonic_s()
        self.longest_s = 0.0
        """The longest step so far, among those that ended with `breathe`."""

    async def breathe(self) -> None:
        """Do not call it between two related reads: what was read before the call may have changed
        after it."""
        taken_s = self._clock.monotonic_s() - self._began_s
        if taken_s >= self._step_s:
            self.longest_s = max(self.longest_s, taken_s)
            await asyncio.sleep(0)
            self._began_s = self._clock.monotonic_s()

    def begin(self) -> None:
        """The caller has waited for something else: a new step begins."""
        self._began_s = self._clock.monotonic_s()
