"""PURE: how far the timer queue has been processed, in two dimensions at once.

Messages leave the queue ordered by time, and arrive ordered by offset. So what is done is described
by a queue offset for each time: of all messages with a key up to a step's `high` (and after the
previous step), those below the step's `end` are done.

    key   -------------- 10:00 ------------- 11:00 ------------->
    end          5,000          4,200               0

Here a message for 9:30 at offset 4,900 is done; one for 10:30 at offset 4,900 came when later ones
had already been moved, and waits for the next turn.

Ends only rise: what is done stays done. So two frontiers can be joined in any order, any number of
times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aerobee.broker.timers.pending import FIRST, LAST, BoolArray, Int64Array, Key


class Step(NamedTuple):
    """Everything up to this key and below this queue offset is done."""

    high: Key
    end: int


class Region(NamedTuple):
    """Keys in (low, high], of which those at offsets below `end` are done."""

    low: Key
    high: Key
    end: int


@dataclass(frozen=True, slots=True)
class Frontier:
    """Steps with ascending keys; after the last one nothing is done."""

    steps: tuple[Step, ...] = ()

    def end_at(self, key: Key) -> int:
        """The offset below which messages with this key are done."""
        for high, end in self.steps:
            if key <= high:
                return end
        return 0

    def regions(self) -> Iterator[Region]:
        """All keys, in ascending order."""
        low = FIRST
        for high, end in self.steps:
            yield Region(low, high, end)
            low = high
        if low < LAST:
            yield Region(low, LAST, 0)

    def raised(self, low: Key, high: Key, end: int) -> Frontier:
        """The frontier with everything below `end` done for the keys in (low, high]."""
        if low >= high:
            return self
        bounds = sorted({low, high, *(step.high for step in self.steps)} - {FIRST})
        steps: list[Step] = []
        for bound in bounds:
            reached = self.end_at(bound)
            if low < bound <= high:
                reached = max(reached, end)
            if steps and steps[-1].end == reached:
                steps.pop()
            steps.append(Step(bound, reached))
        while steps and steps[-1].end == 0:
            steps.pop()
        return Frontier(tuple(steps))

    def joined(self, steps: Iterable[Step]) -> Frontier:
        """What is done here or according to these steps."""
        joined, low = self, FIRST
        for high, end in steps:
            joined = joined.raised(low, high, end)
            low = high
        return joined

    def done(self, due_ms: Int64Array, offsets: Int64Array) -> BoolArray:
        """Which of many messages are done."""
        ends = np.zeros(len(offsets), np.int64)
        for (high_ms, high_offset), end in reversed(self.steps):
            is_below = (due_ms < high_ms) | ((due_ms == high_ms) & (offsets <= high_offset))
            ends[is_below] = end
        return offsets < ends
