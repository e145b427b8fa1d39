"""PURE: what groups have finished after their committed offsets, queue by queue.

A committed offset says that everything below it is finished. A message that is finished before an
older one, such as a sent-back message, is in a range here, and reads for the group skip it. A range
is dropped as soon as the committed offset has passed it.

Owns: the ranges by group, topic and queue, and the record of the offset journal in which each queue
last changed. Invariant: the ranges of a queue neither overlap nor touch. Callers bound their
number.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from aerobee.store.format.json_config import JsonValue, render_text

_OFFSET_END = 1 << 63


class Range(NamedTuple):
    """Offsets in [begin, end)."""

    begin: int
    end: int


class FinishedRanges:
    """The ranges of one group on one queue."""

    __slots__ = ("_begins", "_ends", "record")

    def __init__(self, ranges: Sequence[Range] = (), record: int = 0) -> None:
        """`record`: the number of the journal record that last changed them."""
        self._begins = array("q", [each.begin for each in ranges])
        self._ends = array("q", [each.end for each in ranges])
        self.record = record

    def __repr__(self) -> str:
        return f"FinishedRanges({', '.join(f'{each.begin}..{each.end}' for each in self)})"

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._begins)

    def __iter__(self) -> Iterator[Range]:
        return map(Range, self._begins, self._ends)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._begins, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def covers(self, begin: int, end: int) -> bool:
        """Whether all of these offsets are finished."""
        at = bisect_right(self._begins, begin) - 1
        return at >= 0 and end <= self._ends[at]

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether any of these offsets is finished."""
        at = bisect_right(self._ends, begin)
        return at < len(self._begins) and self._begins[at] < end

    def first_outside(self, offset: int) -> int:
        """The first offset at or after this one that is not in a range."""
        at = bisect_right(self._begins, offset) - 1
        return self._ends[at] if at >= 0 and offset < self._ends[at] else offset

    def after(self, offset: int) -> Iterator[Range]:
        """The ranges that begin here or later."""
        first = bisect_left(self._begins, offset)
        return map(Range, self._begins[first:], self._ends[first:])

    def add(self, begin: int, end: int) -> None:
        """Mark these as finished; some of them may already be."""
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = array("q", (begin,))
        self._ends[first:last] = array("q", (end,))

    def drop_below(self, offset: int) -> bool:
        """The committed offset now covers these; returns whether anything changed."""
        passed = bisect_right(self._ends, offset)
        del self._begins[:passed]
        del self._ends[:passed]
        if self._begins and self._begins[0] < offset:
            self._begins[0] = offset
            return True
        return passed > 0

    def copy(self) -> FinishedRanges:
        copy = FinishedRanges(record=self.record)
        copy._begins, copy._ends = self._begins[:], self._ends[:]
        return copy

    def as_json(self) -> list[int]:
        """The record, then begins and ends alternating."""
        flat = [self.record]
        for each in self:
            flat += each
        return flat

    @classmethod
    def from_json(cls, flat: JsonValue) -> FinishedRanges:
        """Raises ValueError for anything that `as_json` does not produce."""
        if not isinstance(flat, list) or len(flat) % 2 == 0:
            raise ValueError("finished ranges are a record's number and pairs of offsets")
        numbers: list[int] = []
        for number in flat:
            if type(number) is not int or not 0 <= number < _OFFSET_END:
                raise ValueError(f"{number!r:.40} is not an offset")
            numbers.append(number)
        bounds = numbers[1:]
        if any(after <= before for before, after in pairwise(bounds)):
            raise ValueError("finished ranges overlap")
        return cls([Range(*bounds[at : at + 2]) for at in range(0, len(bounds), 2)], numbers[0])


class QueueKey(NamedTuple):
    """A queue as read by one group."""

    group: str
    topic: str
    queue_id: int


class FinishedTable:
    """All groups' ranges. It has no queues without ranges."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str, int], FinishedRanges] = {}

    def __len__(self) -> int:
        """How many queues of groups have ranges."""
        return len(self._queues)

    def of(self, group: str, topic: str, queue_id: int) -> FinishedRanges | None:
        """Do not modify; None: there are none."""
        return self._queues.get((group, topic, queue_id))

    def items(self) -> Iterator[tuple[QueueKey, FinishedRanges]]:
        for key, ranges in self._queues.items():
            yield QueueKey(*key), ranges

    def add(
        self, group: str, topic: str, queue_id: int, begin: int, end: int, *, record: int
    ) -> None:
        """Add what a journal record has finished."""
        key = group, topic, queue_id
        ranges = self._queues.get(key)
        if ranges is None:
            ranges = self._queues[key] = FinishedRanges()
        if not ranges.covers(begin, end):
            ranges.add(begin, end)
            ranges.record = record

    def drop_below(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group has committed this offset."""
        ranges = self._queues.get((group, topic, queue_id))
        if ranges is not None:
            ranges.drop_below(offset)
            if not len(ranges):
                del self._queues[group, topic, queue_id]

    def forget(self, group: str | None, topic: str | None, queue_id: int | None) -> bool:
        """Remove what is selected; None selects all. Returns whether there was any."""
        selected = [
            key
            for key in self._queues
            if group in (None, key[0]) and topic in (None, key[1]) and queue_id in (None, key[2])
        ]
        for key in selected:
            del self._queues[key]
        return bool(selected)

    def cut(self, journal_end: int) -> None:
        """The journal has lost its records from this one on, so what they finished is not finished.
        Other ranges of these queues are dropped, too, since it is unknown which of them come from
        older records: their messages may be delivered twice, but none is lost."""
        for key in [key for key, each in self._queues.items() if each.record >= journal_end]:
            del self._queues[key]

    # ------------------------------------------------------------------------------ the file

    def taken(self) -> list[tuple[QueueKey, FinishedRanges]]:
        """A copy, for a thread to render."""
        return [(key, ranges.copy()) for key, ranges in self.items()]

    def load(self, member: dict[str, JsonValue]) -> None:
        """Raises ValueError."""
        for key, queues in member.items():
            topic, _, group = key.partition("@")
            if not isinstance(queues, dict) or not topic or not group:
                raise ValueError(f"the finished ranges of {key!r:.40} are not by queue id")
            for queue_id, flat in queues.items():
                if not (isinstance(queue_id, str) and queue_id.isascii() and queue_id.isdigit()):
                    raise ValueError(f"{queue_id!r:.40} is not a queue id")
                self._queues[group, topic, int(queue_id)] = FinishedRanges.from_json(flat)


def render_finished(taken: Sequence[tuple[QueueKey, FinishedRanges]]) -> str:
    """The ranges as in the file."""
    by_name: dict[str, dict[str, list[int]]] = {}
    for (group, topic, queue_id), ranges in taken:
        by_name.setdefault(f"{topic}@{group}", {})[str(queue_id)] = ranges.as_json()
    return render_text(by_name)
