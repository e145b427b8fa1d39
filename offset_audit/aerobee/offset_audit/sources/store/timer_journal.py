"""What a store's timer journal says: which of the messages waiting for a time are done.

docs/internals/timer-journal.md has the rules. Entries only ever add to what is done, so an
unreadable one makes messages look as if they were waiting, and a later mark or image covers most of
them again.

Memory: what is named singly and not yet passed by a mark, and what was given up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias

from aerobee.offset_audit.sources.store.plain_values import int64

TIMER_JOURNAL_TOPIC: Final = "AEROBEE_TIMER_JOURNAL"
TIMER_QUEUE: Final = 0
"""The timer topic's queue, as the journal names it; n is that of delay level n."""

_PRUNED_MIN: Final = 1_000

Key: TypeAlias = tuple[int, int]
"""Time due and queue offset: a place in the timer queue's order."""


class DoneTimers:
    """Reads the journal record by record."""

    def __init__(self) -> None:
        self._floors: dict[int, int] = {}
        self._regions: list[tuple[Key, Key, int]] = []
        self._single: dict[tuple[int, int], int] = {}
        """Queue and offset -> time due."""
        self._prune_at = _PRUNED_MIN
        self._open: dict[tuple[int, int], int] = {}
        self._open_end = 0
        self._acts: list[tuple[tuple[int, int], int]] = []
        """Position and due time of what the newest intent names, by number; the last is the one
        before `_open_end`."""
        self.given_up: dict[tuple[int, int], tuple[int, str]] = {}
        """Queue and offset -> time due and reason, of messages that are set aside."""

    def __repr__(self) -> str:
        return f"DoneTimers(regions={len(self._regions)}, single={len(self._single)})"

    def begin(self, queue: int) -> int:
        """Anything before this offset of a queue is done and need not be examined."""
        opened = [offset for number, offset in self._open if number == queue]
        return min([self.floor(queue), *opened])

    def is_open(self, queue: int, offset: int) -> bool:
        """Whether a message is done although its copy is perhaps not in the log yet."""
        return (queue, offset) in self._open

    def floor(self, queue: int) -> int:
        """Everything before this offset of a queue is done."""
        return self._floors.get(queue, 0)

    def is_done(self, queue: int, offset: int, due_ms: int) -> bool:
        """Whether a message was delivered, put off, or removed."""
        return (queue, offset) in self._single or self._is_passed(queue, offset, due_ms)

    def take(self, body: bytes) -> None:
        """The next record."""
        try:
            entries = json.loads(body)
        except (ValueError, RecursionError):
            return
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                self._take_marks(entry.get("marks"))
                self._take_intent(entry.get("first"), self._take_sources(entry.get("sources")))
                if entry.get("kind") == "givenUp":
                    self._take_given_up(int64(entry.get("number")), entry.get("reason"))
                through = int64(entry.get("through"))
                if through is not None and through >= self._open_end:
                    self._open = {}
        if len(self._single) >= self._prune_at:
            self._single = {
                (queue, offset): due_ms
                for (queue, offset), due_ms in self._single.items()
                if not self._is_passed(queue, offset, due_ms)
            }
            self._prune_at = max(_PRUNED_MIN, 2 * len(self._single))

    def _take_marks(self, marks: object) -> None:
        for numbers in map(_whole_numbers, marks if isinstance(marks, list) else ()):
            if len(numbers) == 2:
                queue, offset = numbers
                self._floors[queue] = max(self.floor(queue), offset)
            elif len(numbers) == 5:
                low_ms, low_offset, high_ms, high_offset, end = numbers
                self._raise((low_ms, low_offset), (high_ms, high_offset), end)

    def _raise(self, low: Key, high: Key, end: int) -> None:
        """Gradually the broker's marks extend over each other: few remain."""
        self._regions = [
            region
            for region in self._regions
            if not (low <= region[0] and region[1] <= high and region[2] <= end)
        ]
        self._regions.append((low, high, end))

    def _take_intent(self, first: object, sources: dict[tuple[int, int], int]) -> None:
        """With the next intent, all acts of the previous one are in the log."""
        number = int64(first)
        if number is not None and number + len(sources) > self._open_end:
            self._open, self._open_end = sources, number + len(sources)
            self._acts = list(sources.items())

    def _take_given_up(self, number: int | None, reason: object) -> None:
        """An image repeats it, without the reason."""
        index = -1 if number is None else number - (self._open_end - len(self._acts))
        if 0 <= index < len(self._acts):
            place, due_ms = self._acts[index]
            self.given_up.setdefault(place, (due_ms, reason if isinstance(reason, str) else ""))

    def _take_sources(self, groups: object) -> dict[tuple[int, int], int]:
        taken: dict[tuple[int, int], int] = {}
        for group in groups if isinstance(groups, list) else ():
            if not isinstance(group, Mapping):
                continue
            queue = int64(group.get("queue"))
            offsets, due = _sums(group.get("offsets")), _sums(group.get("due"))
            if queue is None or len(offsets) != len(due):
                continue
            for offset, due_ms in zip(offsets, due, strict=True):
                taken[queue, offset] = due_ms
        self._single |= taken
        return taken

    def _is_passed(self, queue: int, offset: int, due_ms: int) -> bool:
        if offset < self.floor(queue):
            return True
        return queue == TIMER_QUEUE and any(
            offset < end and low < (due_ms, offset) <= high for low, high, end in self._regions
        )


def _whole_numbers(values: Any) -> Sequence[int]:
    """Empty if any of them is not an integer."""
    numbers = [int64(value) for value in values] if isinstance(values, list) else []
    known = [number for number in numbers if number is not None]
    return known if len(known) == len(numbers) else []


def _sums(values: object) -> list[int]:
    """The first number, then differences."""
    return list(accumulate(_whole_numbers(values)))
