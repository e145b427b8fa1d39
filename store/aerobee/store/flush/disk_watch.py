"""Whether the disk responds: how long the oldest flush or file write has been under way.

A failing disk reports an error; a hung one reports nothing, and the calling thread blocks. So every
request is noted, and the loop, which keeps running, checks its age.

Owns: the requests under way, and whether the disk counts as hung. It does from when a request takes
longer than allowed until `answered` is called, after the disk was seen to respond.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass

from aerobee.runtime.clock import Clock

STEP_MAX_S = 2.0
"""The most that one look adds to an age: while the process itself was frozen nobody waited."""
SLOW_BYTES_PER_S = 16 * 1024 * 1024
"""A disk that takes a large flush at this rate is slow, not hung."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to the disk, and the extra time that it may take."""

    began_s: float
    extra_s: float


class DiskWatch:
    """`begin` and `end` on any thread, the rest on the loop; `look` about once per second."""

    def __init__(self, clock: Clock, *, hung_after_s: float) -> None:
        """`hung_after_s` 0: the disk never counts as hung."""
        self._clock = clock
        self._hung_after_s = hung_after_s
        self._numbers = itertools.count()
        self._asked: dict[int, Asked] = {}
        """Under way. Threads add and remove one atomically; the loop reads copies."""
        self._waited_s: dict[int, float] = {}
        """Their ages as of the last look."""
        self._looked_s = clock.monotonic_s()
        self._hangs = asyncio.Event()

    def begin(self, *, size_bytes: int = 0) -> int:
        """[any thread] The disk is asked to take this much; pass the result to `end`."""
        number = next(self._numbers)
        self._asked[number] = Asked(self._clock.monotonic_s(), size_bytes / SLOW_BYTES_PER_S)
        return number

    def end(self, number: int) -> None:
        """[any thread] It has responded, possibly with an error."""
        del self._asked[number]

    @property
    def oldest_s(self) -> float:
        """The age of the oldest request under way; 0 if there is none."""
        asked = tuple(self._asked.values())
        began_s = min((each.began_s for each in asked), default=None)
        return 0.0 if began_s is None else self._clock.monotonic_s() - began_s

    @property
    def is_hung(self) -> bool:
        return self._hangs.is_set()

    @property
    def why(self) -> str:
        """Empty while the disk responds."""
        if not self.is_hung:
            return ""
        if self.is_waiting:
            return f"the disk has not answered for {self.oldest_s:.0f} s"
        return "the disk did not answer, and has not yet shown that it does again"

    @property
    def is_waiting(self) -> bool:
        """Whether a request is taking longer than allowed, as of the last look."""
        asked = dict(self._asked)
        return any(
            number in asked and waited_s >= self._hung_after_s + asked[number].extra_s
            for number, waited_s in self._waited_s.items()
        )

    def look(self) -> None:
        """Age the requests by the time since the last look."""
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
        """The disk does what it is asked to do."""
        self._hangs.clear()
