"""The entries of the timer journal and their JSON.

    {"kind":"move", "timestamp":…, "first":7, "sources":[…], "marks":[…]}   also "roll", "retime"
    {"kind":"acted", "through":9}
    {"kind":"givenUp", "timestamp":…, "number":8, "reason":"…"}
    {"kind":"removed", "timestamp":…, "sources":[…], "reason":"…"}
    {"kind":"marks", "marks":[…]}

A source is a message in one of the waiting queues: queue 0 is for arbitrary times, queue n for
delay level n. Adjacent sources of one queue are one object: {"queue":0, "offsets":[…], "due":[…]},
each list with its first number and then the differences. A mark is [queue, offset] of a level, or
[low due, low offset, high due, high offset, end].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple

from aerobee.broker.journal.records import text_of, whole_of
from aerobee.broker.timers.frontier import Region
from aerobee.broker.timers.pending import NUMBER_MAX, Key

TIMER_JOURNAL_TOPIC: Final = "AEROBEE_TIMER_JOURNAL"
TIMER_QUEUE: Final = 0
"""The queue of arbitrary times, as a number among those of the delay levels."""


class Source(NamedTuple):
    """A waiting message."""

    queue: int
    offset: int
    due_ms: int


class Floor(NamedTuple):
    """All messages of a queue below this offset are done."""

    queue: int
    offset: int


Mark = Floor | Region
"""What is done as a whole; a Region applies to the timer queue."""


class IntentKind(StrEnum):
    """What is done with the sources."""

    MOVE = "move"  # to the topic and queue that each one names
    ROLL = "roll"  # to the timer queue again, due at the same time
    RETIME = "retime"  # to the timer queue again, due at another time


@dataclass(frozen=True, slots=True)
class Intent:
    """One copy of each source will be appended, under the numbers from `first_number` on; the
    sources themselves and everything that `marks` names are done from now on."""

    kind: IntentKind
    first_number: int
    sources: tuple[Source, ...]
    marks: tuple[Mark, ...] = ()
    new_due_ms: int = 0
    """For RETIME."""
    timestamp_ms: int = 0

    @property
    def end_number(self) -> int:
        """The number after its last one."""
        return self.first_number + len(self.sources)


@dataclass(frozen=True, slots=True)
class Acted:
    """Every act with a number below `through` is in the log, or was given up."""

    through: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """This act will not be done: the message is set aside, for people who read the journal."""

    number: int
    reason: str
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Removed:
    """These messages will not be delivered: they were recalled, or are not valid messages."""

    sources: tuple[Source, ...]
    reason: str = ""
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Marked:
    """Everything that these marks name is done."""

    marks: tuple[Mark, ...]


TimerEntry = Intent | Acted | GivenUp | Removed | Marked

_INTENT_KINDS: Final = frozenset(IntentKind)


def entry_text(entry: TimerEntry) -> str:
    """One entry as JSON."""
    document: dict[str, object]
    if isinstance(entry, Intent):
        document = {
            "kind": entry.kind,
            "timestamp": entry.timestamp_ms,
            "first": entry.first_number,
            "sources": _sources_object(entry.sources),
        }
        if entry.marks:
            document["marks"] = _marks_object(entry.marks)
        if entry.kind is IntentKind.RETIME:
            document["newDue"] = entry.new_due_ms
    elif isinstance(entry, Acted):
        document = {"kind": "acted", "through": entry.through}
    elif isinstance(entry, GivenUp):
        document = {
            "kind": "givenUp",
            "timestamp": entry.timestamp_ms,
            "number": entry.number,
            "reason": entry.reason,
        }
    elif isinstance(entry, Removed):
        document = {
            "kind": "removed",
            "timestamp": entry.timestamp_ms,
            "sources": _sources_object(entry.sources),
            "reason": entry.reason,
        }
    else:
        document = {"kind": "marks", "marks": _marks_object(entry.marks)}
    return json.dumps(document, separators=(",", ":"))


def decode_entry(value: dict[str, Any]) -> TimerEntry | None:
    """The entry in a JSON object; None: its kind is unknown. Raises KeyError, TypeError,
    AttributeError or ValueError if it is not an entry."""
    kind = value["kind"]
    if kind in _INTENT_KINDS:
        return Intent(
            IntentKind(kind),
            whole_of(value["first"]),
            _sources_of(value["sources"]),
            _marks_of(value.get("marks", [])),
            whole_of(value.get("newDue", 0)),
            whole_of(value["timestamp"]),
        )
    if kind == "acted":
        return Acted(whole_of(value["through"]))
    if kind == "givenUp":
        return GivenUp(
            whole_of(value["number"]), text_of(value["reason"]), whole_of(value["timestamp"])
        )
    if kind == "removed":
        return Removed(
            _sources_of(value["sources"]), text_of(value["reason"]), whole_of(value["timestamp"])
        )
    if kind == "marks":
        return Marked(_marks_of(value["marks"]))
    return None


def _sources_object(sources: Sequence[Source]) -> list[dict[str, object]]:
    return [
        {
            "queue": queue,
            "offsets": _differences([source.offset for source in members]),
            "due": _differences([source.due_ms for source in members]),
        }
        for queue, members in (
            (queue, list(members)) for queue, members in groupby(sources, attrgetter("queue"))
        )
    ]


def _sources_of(groups: Iterable[dict[str, Any]]) -> tuple[Source, ...]:
    found: list[Source] = []
    for group in groups:
        queue = whole_of(group["queue"])
        offsets, due = _sums(group["offsets"]), _sums(group["due"])
        found += [Source(queue, *each) for each in zip(offsets, due, strict=True)]
    return tuple(found)


def _differences(numbers: list[int]) -> list[int]:
    return numbers[:1] + [after - before for before, after in pairwise(numbers)]


def _sums(differences: list[int]) -> list[int]:
    if any(type(each) is not int for each in differences):
        raise ValueError("a source's numbers are whole numbers")
    sums = list(accumulate(differences))
    if sums and not 0 <= min(sums) <= max(sums) <= NUMBER_MAX:
        raise ValueError("a source's number is out of range")
    return sums


def _marks_object(marks: Iterable[Mark]) -> list[list[int]]:
    return [
        [mark.queue, mark.offset] if isinstance(mark, Floor) else [*mark.low, *mark.high, mark.end]
        for mark in marks
    ]


def _marks_of(value: Iterable[list[int]]) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    for numbers in value:
        if any(type(each) is not int for each in numbers):
            raise ValueError("a mark has whole numbers")
        if len(numbers) == 2:
            marks.append(Floor(*numbers))
        else:
            low_ms, low_offset, high_ms, high_offset, end = numbers
            marks.append(Region(Key(low_ms, low_offset), Key(high_ms, high_offset), end))
    return tuple(marks)
