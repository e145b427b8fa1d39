"""PURE: which of the waiting messages are done, and which acts may be missing.

A message at (queue, offset), due at some time, is done if and only if one of these holds:

    offset < floor of its queue          all before were moved, removed or rolled
    offset < frontier's end at its key   the timer queue only: moved in its turn
    offset in `loose` of its queue       moved, removed or rolled out of turn

Nothing here is ever undone, so applying a record twice changes nothing, and an image repeats the
same facts. Bounded: the floor and the frontier are a few numbers; loose members are dropped as
these pass them, and removals above LOOSE_MAX are refused before they are written, except those
requested through Apache's broker, which are as many as it has left.

Intents are carried out one after another: the first number of one implies that all before it has
been acted. So at most one is open, `open`, and a new master has to look only for its acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from aerobee.broker.timers.entries import (
    TIMER_QUEUE,
    Acted,
    Floor,
    GivenUp,
    Intent,
    Mark,
    Marked,
    Removed,
    Source,
    TimerEntry,
)
from aerobee.broker.timers.frontier import Frontier, Region
from aerobee.broker.timers.pending import BoolArray, Int64Array, Key, Rows

LOOSE_MAX: Final = 200_000
_PRUNED_MIN: Final = 1_000
_SOURCES_PER_ENTRY: Final = 2_000
"""Per entry of an image: about 20 KiB of JSON."""


@dataclass(slots=True)
class QueueProgress:
    """The progress of one waiting queue."""

    floor: int = 0
    frontier: Frontier = field(default_factory=Frontier)
    loose: dict[int, int] = field(default_factory=dict)
    """Queue offset -> due time."""
    prune_at: int = _PRUNED_MIN

    def is_done(self, offset: int, due_ms: int) -> bool:
        return self.is_passed(offset, due_ms) or offset in self.loose

    def is_passed(self, offset: int, due_ms: int) -> bool:
        """Whether it is done according to floor or frontier."""
        return offset < self.floor or offset < self.frontier.end_at(Key(due_ms, offset))

    def raise_floor(self, offset: int) -> None:
        self.floor = max(self.floor, offset)
        self._prune()

    def raise_frontier(self, region: Region) -> None:
        self.frontier = self.frontier.raised(*region)
        self._prune()

    def add_loose(self, source: Source) -> None:
        if not self.is_passed(source.offset, source.due_ms):
            self.loose[source.offset] = source.due_ms
            self._prune()

    def _prune(self) -> None:
        """Only now and then, so that the cost per member does not depend on their number."""
        if len(self.loose) < self.prune_at:
            return
        self.loose = {
            offset: due_ms
            for offset, due_ms in self.loose.items()
            if not self.is_passed(offset, due_ms)
        }
        self.prune_at = max(_PRUNED_MIN, 2 * len(self.loose))

    def copy(self) -> QueueProgress:
        return QueueProgress(self.floor, self.frontier, dict(self.loose), self.prune_at)


@dataclass(frozen=True, slots=True)
class DoneView:
    """Which messages of the timer queue were done at one moment; for other threads."""

    floor: int
    frontier: Frontier
    loose: Int64Array
    """Sorted."""

    def pending(self, rows: Rows) -> BoolArray:
        """Which of the rows are not done."""
        due_ms, offsets = rows["due_ms"], rows["offset"]
        done = (offsets < self.floor) | self.frontier.done(due_ms, offsets)
        if len(self.loose):
            at = np.searchsorted(self.loose, offsets)
            at[at == len(self.loose)] = 0
            done |= self.loose[at] == offsets
        return ~done


class TimerProgress:
    """The combined state of the journal's entries."""

    def __init__(self) -> None:
        self._queues: dict[int, QueueProgress] = {}
        self.next_number = 0
        """The number of the next act."""
        self.acted_number = 0
        """All acts below are in the log or given up."""
        self.open: Intent | None = None
        """The newest intent, unless it is known to have been carried out."""
        self.given_up: set[int] = set()
        """Numbers within the open intent."""

    def __repr__(self) -> str:
        return f"TimerProgress(next={self.next_number}, open={self.open is not None})"

    def of(self, queue: int) -> QueueProgress:
        """Do not modify."""
        found = self._queues.get(queue)
        return QueueProgress() if found is None else found

    def is_done(self, source: Source) -> bool:
        found = self._queues.get(source.queue)
        return found is not None and found.is_done(source.offset, source.due_ms)

    @property
    def loose_count(self) -> int:
        return sum(len(queue.loose) for queue in self._queues.values())

    def would_learn(self, entry: Marked | Removed) -> bool:
        """Whether anything in it is not known here."""
        if isinstance(entry, Removed):
            return not all(map(self.is_done, entry.sources))
        frontier = self.of(TIMER_QUEUE).frontier
        return any(
            mark.offset > self.of(mark.queue).floor
            if isinstance(mark, Floor)
            else frontier.raised(*mark) != frontier
            for mark in entry.marks
        )

    def view(self) -> DoneView:
        """For the timer queue. Its cost is proportional to the number of loose members."""
        timers = self.of(TIMER_QUEUE)
        loose = np.fromiter(timers.loose, np.int64, len(timers.loose))
        loose.sort()
        return DoneView(timers.floor, timers.frontier, loose)

    # ------------------------------------------------------------------------------ changing

    def apply(self, entries: Iterable[TimerEntry]) -> None:
        """Apply entries in journal order."""
        for entry in entries:
            if isinstance(entry, Intent):
                self._mark(entry.marks)
                self._loosen(entry.sources)
                self._open(entry)
            elif isinstance(entry, Acted):
                self._close(entry.through)
            elif isinstance(entry, GivenUp):
                if entry.number >= self.acted_number:
                    self.given_up.add(entry.number)
            elif isinstance(entry, Removed):
                self._loosen(entry.sources)
            else:
                self._mark(entry.marks)

    def _open(self, intent: Intent) -> None:
        if intent.end_number <= self.next_number:
            return  # repeated
        self._close(intent.first_number)
        self.next_number = intent.end_number
        self.open = intent

    def _close(self, through: int) -> None:
        if through <= self.acted_number:
            return
        self.acted_number = through
        self.next_number = max(self.next_number, through)
        self.given_up = {number for number in self.given_up if number >= through}
        if self.open is not None and self.open.end_number <= through:
            self.open = None

    def _mark(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            if isinstance(mark, Floor):
                self._queue(mark.queue).raise_floor(mark.offset)
            else:
                self._queue(TIMER_QUEUE).raise_frontier(mark)

    def _loosen(self, sources: Iterable[Source]) -> None:
        for source in sources:
            self._queue(source.queue).add_loose(source)

    def _queue(self, number: int) -> QueueProgress:
        found = self._queues.get(number)
        if found is None:
            found = self._queues[number] = QueueProgress()
        return found

    # ------------------------------------------------------------------------------ saying again

    def copy(self) -> TimerProgress:
        copy = TimerProgress()
        copy._queues = {number: queue.copy() for number, queue in self._queues.items()}
        copy.next_number, copy.acted_number = self.next_number, self.acted_number
        copy.open, copy.given_up = self.open, set(self.given_up)
        return copy

    def image(self) -> Iterator[TimerEntry]:
        """Everything again; other entries may come in between."""
        for number in sorted(self._queues):
            queue = self._queues[number]
            marks: list[Mark] = [Floor(number, queue.floor)]
            if number == TIMER_QUEUE:
                marks += [region for region in queue.frontier.regions() if region.end]
            yield Marked(tuple(marks))
            loose = [Source(number, *member) for member in queue.loose.items()]
            for first in range(0, len(loose), _SOURCES_PER_ENTRY):
                yield Removed(tuple(loose[first : first + _SOURCES_PER_ENTRY]), "image")
        yield Acted(self.acted_number)
        if self.open is not None:
            yield self.open
            for given_up in sorted(self.given_up):
                yield GivenUp(given_up, "image")


def missing_sources(progress: TimerProgress, sources: Sequence[Source]) -> list[Source]:
    """Those that are not done."""
    return [source for source in sources if not progress.is_done(source)]
