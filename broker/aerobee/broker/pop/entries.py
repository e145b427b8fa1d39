"""The entries of POP's journal and their JSON; docs/internals/pop-journal.md lists their members.

There are many per second, so one entry has everything that a poll took from a queue, or that a call
acknowledged there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.records import text_of, whole_of
from aerobee.store.engine.tables.finished_ranges import Range

POP_JOURNAL_TOPIC: Final = "AEROBEE_POP_JOURNAL"

OFFSETS_MAX: Final = 100_000
"""Most messages that one entry may hand out; more make it invalid."""
NO_LANE: Final = -1
"""For a message handed out without regard to order."""


class InvisibleKind(StrEnum):
    """Why messages are invisible."""

    TAKEN = "taken"  # a poll got them
    CHANGED = "changed"  # their receiver set another time
    RETURNED = "returned"  # they are redelivered as if they had not been delivered


class Begun(NamedTuple):
    """The group consumes the queue from this offset on; earlier state is void."""

    key: GroupQueue
    offset: int
    serial: int
    """The first serial used from now on."""
    at_ms: int


class Invisible(NamedTuple):
    """These messages, in ascending order, are with a client. Their serials are consecutive."""

    kind: InvisibleKind
    key: GroupQueue
    offsets: tuple[int, ...]
    serial: int
    """The serial of the first message."""
    at_ms: int
    visible_ms: int
    """When they are redelivered; 0: once `holder` is no longer alive."""
    holder: str = ""
    attempts: tuple[int, ...] = ()
    """How often each was delivered, including this time. Empty: each once."""
    lanes: tuple[int, ...] = ()
    """For groups in which order matters: see `lanes.lane_of`. Empty: NO_LANE."""


class Finished(NamedTuple):
    """The group is done with these messages."""

    key: GroupQueue
    ranges: tuple[Range, ...]
    at_ms: int


class Ended(NamedTuple):
    """POP no longer consumes the queue."""

    key: GroupQueue
    at_ms: int


class Flight(NamedTuple):
    """A message that was handed out and is not finished."""

    serial: int
    attempt: int
    taken_ms: int
    visible_ms: int
    holder: str
    lane: int
    is_counted: bool
    """Whether `attempt` includes this delivery."""


@dataclass(frozen=True, slots=True)
class QueueImage:
    """A part of the state of a queue. All parts together are the whole state."""

    key: GroupQueue
    committed: int
    next_serial: int
    finished: tuple[Range, ...]
    flights: tuple[tuple[int, Flight], ...]
    at_ms: int


PopEntry = Begun | Invisible | Finished | Ended | QueueImage

_KINDS: Final = frozenset(InvisibleKind)


def entry_text(entry: PopEntry) -> str:
    """One entry as JSON."""
    kind, document = _members(entry)
    group, topic, queue_id = entry.key
    head = {"kind": kind, "group": group, "topic": topic, "queueId": queue_id}
    return json.dumps({**head, **document, "timestamp": entry.at_ms}, separators=(",", ":"))


def _members(entry: PopEntry) -> tuple[str, dict[str, object]]:
    if isinstance(entry, Invisible):
        document: dict[str, object] = {
            "messages": _bounds(ranges_of(entry.offsets)),
            "serial": entry.serial,
        }
        if entry.holder:
            document["holder"] = entry.holder
        else:
            document["visible"] = entry.visible_ms
        if entry.attempts:
            document["attempts"] = entry.attempts
        if entry.lanes:
            document["lanes"] = entry.lanes
        return entry.kind, document
    if isinstance(entry, Finished):
        return "finished", {"messages": _bounds(entry.ranges)}
    if isinstance(entry, Begun):
        return "begun", {"offset": entry.offset, "serial": entry.serial}
    if isinstance(entry, Ended):
        return "ended", {}
    return "image", {
        "offset": entry.committed,
        "serial": entry.next_serial,
        "finished": _bounds(entry.finished),
        "flights": [[offset, *flight] for offset, flight in entry.flights],
    }


def decode_entry(value: dict[str, Any]) -> PopEntry | None:
    """The entry in a JSON object; None: its kind is unknown. Raises KeyError, TypeError,
    AttributeError or ValueError if it is not an entry."""
    kind = value["kind"]
    if kind not in _KINDS and kind not in ("finished", "begun", "ended", "image"):
        return None
    key = GroupQueue(text_of(value["group"]), text_of(value["topic"]), whole_of(value["queueId"]))
    at_ms = whole_of(value["timestamp"])
    if kind == "finished":
        return Finished(key, _ranges(value["messages"]), at_ms)
    if kind == "begun":
        return Begun(key, whole_of(value["offset"]), whole_of(value["serial"]), at_ms)
    if kind == "ended":
        return Ended(key, at_ms)
    if kind == "image":
        return QueueImage(
            key,
            whole_of(value["offset"]),
            whole_of(value["serial"]),
            _ranges(value["finished"]),
            tuple(_flight_of(*each) for each in value["flights"]),
            at_ms,
        )
    return _invisible_of(InvisibleKind(kind), key, at_ms, value)


def _invisible_of(
    kind: InvisibleKind, key: GroupQueue, at_ms: int, value: dict[str, Any]
) -> Invisible:
    ranges = _ranges(value["messages"])
    count = sum(end - begin for begin, end in ranges)
    if count > OFFSETS_MAX:
        raise ValueError(f"an entry does not hand out {count} messages")
    holder = text_of(value.get("holder", ""))
    attempts = tuple(whole_of(each) for each in value.get("attempts", ()))
    lanes = tuple(whole_of(each) for each in value.get("lanes", ()))
    if len(attempts) not in (0, count) or len(lanes) not in (0, count):
        raise ValueError("attempts and lanes are one for each message")
    return Invisible(
        kind,
        key,
        tuple(offset for each in ranges for offset in range(*each)),
        whole_of(value["serial"]),
        at_ms,
        0 if holder else whole_of(value["visible"]),
        holder,
        attempts,
        lanes,
    )


def _flight_of(
    offset: int,
    serial: int,
    attempt: int,
    taken_ms: int,
    visible_ms: int,
    holder: str,
    lane: int,
    is_counted: bool,
) -> tuple[int, Flight]:
    return whole_of(offset), Flight(
        whole_of(serial),
        whole_of(attempt),
        whole_of(taken_ms),
        whole_of(visible_ms),
        text_of(holder),
        lane if lane == NO_LANE else whole_of(lane),
        is_counted is True,
    )


def ranges_of(offsets: Iterable[int]) -> tuple[Range, ...]:
    """Ascending offsets as ranges."""
    found: list[Range] = []
    begin = end = -1
    for offset in offsets:
        if offset != end:
            if end > begin:
                found.append(Range(begin, end))
            begin = offset
        end = offset + 1
    if end > begin:
        found.append(Range(begin, end))
    return tuple(found)


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Ascending ranges, with adjacent ones joined."""
    found: list[Range] = []
    for begin, end in ranges:
        if found and found[-1].end == begin:
            found[-1] = Range(found[-1].begin, end)
        else:
            found.append(Range(begin, end))
    return tuple(found)


def _bounds(ranges: Iterable[Range]) -> list[int]:
    return [bound for each in ranges for bound in each]


def _ranges(bounds: Sequence[object]) -> tuple[Range, ...]:
    numbers = [whole_of(each) for each in bounds]
    if len(numbers) % 2 or any(after <= before for before, after in pairwise(numbers)):
        raise ValueError("ranges are rising pairs of offsets")
    return tuple(Range(*numbers[at : at + 2]) for at in range(0, len(numbers), 2))
