"""Whether the disk answers: how long the oldest flush or file write has been under way.

A disk that fails says so; one that hangs says nothing, and the thread that asked it waits. So the
loop, which goes on, notes what it handed out and looks at its age.

Owns: what is under way, and whether the disk counts as hung. That begins when something is under
way for longer than allowed, and ends when somebody has seen the disk answer and says so.
"""

from __future__ import annotations

import asyncio
import itertools

from aerobee.runtime.clock import Clock

STEP_MAX_S = 2.0
"""What one look adds at most to an age: while the process itself stood still nobody waited."""


class DiskWatch:
    """On the loop. `look` is to be called about once per second."""

    def __init__(self, clock: Clock, *, hung_after_s: float) -> None:
        """`hung_after_s` 0: no disk counts as hung."""
        self._clock = clock
        self._hung_after_s = hung_after_s
        self._numbers = itertools.count()
        self._began_s: dict[int, float] = {}
        self._waited_s: dict[int, float] = {}
        self._looked_s = clock.monotonic_s()
        self._hangs = asyncio.Event()

    def begin(self) -> int:
        """The disk is asked for something; the answer is what `end` takes."""
        number = next(self._numbers)
        self._began_s[number] = self._clock.monotonic_s()
        return number

    def end(self, number: int) -> None:
        """It has answered, be it with an error."""
        del self._began_s[number]
        self._waited_s.pop(number, None)

    @property
    def oldest_s(self) -> float:
        """How long the oldest of what is under way takes already; 0 if nothing is."""
        if not self._began_s:
            return 0.0
        return self._clock.monotonic_s() - min(self._began_s.values())

    @property
    def is_hung(self) -> bool:
        return self._hangs.is_set()

    @property
    def why(self) -> str:
        """Empty while the disk answers."""
        if not self.is_hung:
            return ""
        if self.is_waiting:
            return f"the disk has not answered for {self.oldest_s:.0f} s"
        return "the disk did not answer, and has to show that it does again"

    @property
    def is_waiting(self) -> bool:
        """Whether something is under way for longer than allowed, as of the last look."""
        return any(waited_s >= self._hung_after_s for waited_s in self._waited_s.values())

    def look(self) -> None:
        """Some time has passed."""
        now_s = self._clock.monotonic_s()
        for number, began_s in self._began_s.items():
            step_s = min(now_s - max(began_s, self._looked_s), STEP_MAX_S)
            self._waited_s[number] = self._waited_s.get(number, 0.0) + step_s
        self._looked_s = now_s
        if self._hung_after_s > 0 and self.is_waiting:
            self._hangs.set()

    async def until_hung(self) -> None:
        await self._hangs.wait()

    def answered(self) -> None:
        """The disk does what it is asked for."""
        self._hangs.clear()
