"""Long work on the event loop, one piece per turn of the loop, for all callers together.

Each long job (a filtered scan, a listing, a request with thousands of elements) is cut into pieces
of some milliseconds. A job that only yields between its own pieces still delays everybody by the
pieces of all other jobs; here all jobs together get one piece per turn, the askers in rotation.
After a long piece, or while `is_busy`, the next one waits as long as the piece took, so that all of
them together never take more than about half of the loop.

Owns: the jobs that wait for their next piece.
Invariant: waiting, being granted and leaving cost O(1), however many wait.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from aerobee.runtime.clock import Clock

LISTINGS = "listings"
"""The asker of all that operators list and count."""
LONG_S = 0.005
"""A piece that takes longer is always followed by a pause."""
PIECE_ELEMENTS = 250
"""About three milliseconds of the cheapest work done per element."""
FEW_ELEMENTS = 50
"""Work on so few is not worth waiting for."""

T = TypeVar("T")
R = TypeVar("R")
Granted = asyncio.Future[None]


class LoopTurns:
    """Of one event loop."""

    def __init__(self, clock: Clock, is_busy: Callable[[], bool] = lambda: False) -> None:
        """`is_busy`: whether other work must not be delayed now."""
        self._clock = clock
        self._is_busy = is_busy
        # In rotation; each asker's jobs in order. Dictionaries, so that any job can leave.
        self._waiting: OrderedDict[str, dict[Granted, None]] = OrderedDict()
        self._is_taken = False
        self._began_s = 0.0
        self.pieces = 0
        """How many pieces have begun."""

    def __repr__(self) -> str:
        return f"LoopTurns(pieces={self.pieces}, askers={len(self._waiting)})"

    def begin(self) -> bool:
        """Whether a piece may run right now; if so, it is the one of this turn of the loop."""
        if self._is_taken:
            return False
        self._take()
        return True

    async def turn(self, asker: str) -> None:
        """Wait until a piece may run. It runs until the caller's next await."""
        if self.begin():
            return
        granted: Granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asker, {})[granted] = None
        try:
            await granted
        except asyncio.CancelledError:
            jobs = self._waiting.get(asker)
            if jobs is not None and jobs.pop(granted, granted) is None and not jobs:
                del self._waiting[asker]
            raise
        self._began_s = self._clock.monotonic_s()

    async def parts(self, asker: str, elements: Sequence[T]) -> AsyncIterator[Sequence[T]]:
        """`elements` in pieces, each in a turn of its own."""
        for start in range(0, len(elements), PIECE_ELEMENTS):
            if len(elements) > FEW_ELEMENTS:
                await self.turn(asker)
            yield elements[start : start + PIECE_ELEMENTS]

    async def each(self, asker: str, elements: Sequence[T]) -> AsyncIterator[T]:
        """One element at a time, in turns as in `parts`."""
        async for part in self.parts(asker, elements):
            for element in part:
                yield element

    async def map(self, asker: str, elements: Sequence[T], do: Callable[[T], R]) -> list[R]:
        """What `do` returns for each element, in turns as in `parts`; without the price of a
        generator for a few."""
        if len(elements) <= FEW_ELEMENTS:
            return [do(element) for element in elements]
        return [do(element) async for element in self.each(asker, elements)]

    # ---------------------------------------------------------------------- inside

    def _take(self) -> None:
        self._is_taken = True
        self.pieces += 1
        self._began_s = self._clock.monotonic_s()
        # After a granted job, whose wake-up was scheduled just before.
        asyncio.get_running_loop().call_soon(self._over)

    def _over(self) -> None:
        taken_s = self._clock.monotonic_s() - self._began_s
        if taken_s > LONG_S or (taken_s > 0 and self._is_busy()):
            asyncio.get_running_loop().call_later(taken_s, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._is_taken = False
        while self._waiting:
            asker, jobs = self._waiting.popitem(last=False)
            granted = next(iter(jobs))
            del jobs[granted]
            if jobs:
                self._waiting[asker] = jobs
            if not granted.done():  # its job may have been cancelled, and not know yet
                granted.set_result(None)
                self._take()
                return
