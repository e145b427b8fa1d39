"""What waits next in the queue of one delay level.

A level's queue is its own index: all messages wait equally long, so they are due in order of
arrival, and leave in that order. This is a window of it, with bounded memory, filled from the
queue's entries: as they come, or from where the window ends.

Clocks step. A message that is due later than a message stored now would be (the clock was ahead, or
the level was longer) must not hold up those after it: once it is the first it is *ahead*, and must
wait elsewhere. Apache's broker delivers it at once, and so before its delay is over. One that is
due earlier than those before it waits for them, as with Apache's broker, but never longer than the
level's delay.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from aerobee.broker.timers.pending import Int64Array
from aerobee.broker.timers.progress import QueueProgress

WINDOW_ENTRIES: Final = 16_384


class Due(NamedTuple):
    """Messages of one queue that are due now, in order of delivery."""

    offsets: Int64Array
    due_ms: Int64Array
    """Ascending; for a message that waited for earlier ones, the time when those were due."""
    positions: Int64Array
    sizes: Int64Array


NOTHING_DUE: Final = Due(*(np.empty(0, np.int64) for _ in range(4)))


class LevelWindow:
    """On the loop."""

    def __init__(self, queue: int, delay_ms: int, *, begin: int) -> None:
        """`queue`: the level; `begin`: an offset below which everything is done."""
        self.queue = queue
        self._delay_ms = delay_ms
        self._begin = begin
        self._entries = np.empty((3, 0), np.int64)
        self.queue_end = begin
        """The end of the queue, as far as is known."""

    def __repr__(self) -> str:
        return f"LevelWindow({self.queue}, {self._begin}..{self._end} of {self.queue_end})"

    @property
    def _end(self) -> int:
        return self._begin + self._entries.shape[1]

    def wants(self, progress: QueueProgress) -> int | None:
        """The offset from which entries are wanted, at most WINDOW_ENTRIES; None: there are enough
        for now."""
        self._forget(progress)
        is_short = self._entries.shape[1] < WINDOW_ENTRIES // 2
        return self._end if is_short and self._end < self.queue_end else None

    def feed(
        self, begin: int, due_ms: Int64Array, positions: Int64Array, sizes: Int64Array
    ) -> None:
        """Entries of the queue, starting at `begin`; those that do not continue the window will be
        requested later."""
        self.queue_end = max(self.queue_end, begin + len(due_ms))
        first = self._end - begin
        room = WINDOW_ENTRIES - self._entries.shape[1]
        if 0 <= first < len(due_ms) and room > 0:
            chosen = slice(first, first + room)
            new = np.stack((due_ms[chosen], positions[chosen], sizes[chosen]))
            self._entries = np.concatenate((self._entries, new), axis=1)

    def skip_to(self, offset: int) -> None:
        """The queue begins after this window's end: retention has removed the rest."""
        if offset > self._end:
            self._begin, self._entries = offset, np.empty((3, 0), np.int64)
            self.queue_end = max(self.queue_end, offset)

    def due(self, now_ms: int, progress: QueueProgress, limit: int) -> Due:
        """The first messages, at most `limit`, that are due and not done."""
        found = self._first(now_ms + 1, progress, limit, are_before=True)
        return found._replace(due_ms=np.maximum.accumulate(found.due_ms))

    def ahead(self, now_ms: int, progress: QueueProgress, limit: int) -> Due:
        """The first messages, at most `limit`, that are ahead and not done; each with its own
        time."""
        return self._first(now_ms + self._delay_ms + 1, progress, limit, are_before=False)

    def _first(self, time_ms: int, progress: QueueProgress, limit: int, *, are_before: bool) -> Due:
        """Messages that are not done, up to the first one on the other side of a time."""
        self._forget(progress)
        if not self._entries.shape[1]:
            return NOTHING_DUE
        due_ms, positions, sizes = self._entries[:, : limit + len(progress.loose)]
        others = np.flatnonzero((due_ms < time_ms) != are_before).tolist()
        waiting = (at for at in others if self._begin + at not in progress.loose)
        count = next(waiting, len(due_ms))
        offsets = np.arange(self._begin, self._begin + count)
        found = Due(offsets, due_ms[:count], positions[:count], sizes[:count])
        if progress.loose:
            waits = [offset not in progress.loose for offset in offsets.tolist()]
            found = Due(*(column[waits] for column in found))
        return Due(*(column[:limit] for column in found))

    def next_due_ms(self, now_ms: int, progress: QueueProgress) -> int | None:
        """When the first message that is not done is due, or now if it is ahead; None: there is
        none in the window."""
        self._forget(progress)
        for at, due_ms in enumerate(self._entries[0].tolist()):
            if self._begin + at not in progress.loose:
                return now_ms if due_ms > now_ms + self._delay_ms else int(due_ms)
        return None

    def _forget(self, progress: QueueProgress) -> None:
        passed = min(progress.floor - self._begin, self._entries.shape[1])
        if passed > 0:
            self._begin += passed
            self._entries = self._entries[:, passed:]
        if progress.floor > self._begin:
            self._begin = progress.floor
            self.queue_end = max(self.queue_end, progress.floor)
