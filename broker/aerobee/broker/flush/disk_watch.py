"""Whether the disk answers: how long the oldest flush or file write has been under way.

A disk that fails says so; one that hangs says nothing, and the thread that asked it waits. So what
is asked is noted, and the loop, which continues, looks at its age.

Owns: what is under way, and whether the disk counts as hung. That begins when something is under
way for longer than allowed, and ends when somebody has seen the disk answer and says so.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass

from aerobee.runtime.clock import Clock

STEP_MAX_S = 2.0
"""What one look adds at most to an age: while the process itself stood still nobody waited."""
SLOW_BYTES_PER_S = 16 * 1024 * 1024
"""A disk that takes a large flush at this rate is slow, and does not hang."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Something that the disk was asked for, and what it may take longer than others."""

    began_s: float
    extra_s: float


class DiskWatch:
    """`begin` and `end` by any thread, the rest on the loop; `look` about once per second."""

    def __init__(self, clock: Clock, *, hung_after_s: float) -> None:
        """`hung_after_s` 0: no disk counts as hung."""
        self._clock = clock
        self._hung_after_s = hung_after_s
        self._numbers = itertools.count()
        self._asked: dict[int, Asked] = {}
        """Under way. Threads add and remove one in one step; the loop reads copies."""
        self._waited_s: dict[int, float] = {}
        """Of those as of the last look."""
        self._looked_s = clock.monotonic_s()
        self._hangs = asyncio.Event()

    def begin(self, *, size_bytes: int = 0) -> int:
        """[any thread] The disk is asked to take this much; the answer is what `end` takes."""
        number = next(self._numbers)
        self._asked[number] = Asked(self._clock.monotonic_s(), size_bytes / SLOW_BYTES_PER_S)
        return number

    def end(self, number: int) -> None:
        """[any thread] It has answered, be it with an error."""
        del self._asked[number]

    @property
    def oldest_s(self) -> float:
        """How long the oldest of what is under way takes already; 0 if nothing is."""
        asked = tuple(self._asked.values())
        began_s = min((each.began_s for each in asked), default=None)
        return 0.0 if began_s is None else self._clock.monotonic_s() - began_s

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
        return "the disk did not answer, and has not yet shown that it does again"

    @property
    def is_waiting(self) -> bool:
        """Whether something is under way for longer than allowed, as of the last look."""
        asked = dict(self._asked)
        return any(
            number in asked and waited_s >= self._hung_after_s + asked[number].extra_s
            for number, waited_s in self._waited_s.items()
        )

    def look(self) -> None:
        """Some time has passed."""
        now_s, before = self._clock.monotonic_s(), self._waited_s
        self._waited_s = {
            number: before.get(number, 0.0)
            + min(now_s - max(each.began_s, self._looked_s), STEP_MAX_S)
            for number, each in dict(self._asked).items()
        }
        self._looked_s = now_s
        if self._hung_after_s > 0 and self.is_waiting:
            self._hangs.set()

    async def until_hung(self) -> None:
        await self._hangs.wait()

    def answered(self) -> None:
        """The disk does what it is asked for."""
        self._hangs.clear()
