"""Entries of the offset journal about messages that groups finish out of order, and their JSON.

    {"kind":"sentBack", …, "offset":7, "number":12, "level":3}       also "deliverMs" or "dead"
    {"kind":"resent", …, "offset":7, "number":12, "toTopic":…, "toQueueId":…, "resendsMax":3}
    {"kind":"copied", "through":13, "timestamp":…}
    {"kind":"finished", …, "ranges":[7,8,12,20], "timestamp":…}
    {"kind":"tried", …, "offset":7, "attempts":2, "timestamp":…}

`sentBack` finishes the message for its group and at the same time says which copy replaces it. The
copy is appended under the entry's number, as a message of the broker's own producer. `copied` says
that all copies with lower numbers are in the log. `tried` finishes nothing: a message consumed in
order stays where it is, and the next owner of its queue continues the count.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.records import text_of, whole_of
from aerobee.store.engine.tables.consumer_offset_table import Tried
from aerobee.store.engine.tables.finished_ranges import Range
from aerobee.store.format.dead_letter_fields import Death
from aerobee.store.format.delayed_records import Delay

RANGES_PER_ENTRY: Final = 2_000
"""Per entry of an image: about 30 KiB of JSON."""


class Resend(NamedTuple):
    """A dead letter becomes an ordinary message of this queue again, unless that happened
    `resends_max` times before."""

    topic: str
    queue_id: int
    resends_max: int


Way = Delay | Death | Resend


@dataclass(frozen=True, slots=True)
class SentBack:
    """A message is finished for its group and replaced by a copy: one redelivered after a delay, a
    dead letter, or a resent dead letter."""

    key: GroupQueue
    offset: int
    number: int
    """The copy's number; see `retries.copies`."""
    way: Way
    timestamp_ms: int
    client_id: str = ""
    is_repeated: bool = False
    """Within an image: whether the copy exists is unknown; the `finished` entry says that the
    message is finished."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Every copy with a number below `through` is in the log, or was given up."""

    through: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class FinishedBeyond:
    """These offsets after the committed one are finished."""

    key: GroupQueue
    ranges: tuple[Range, ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TriedInOrder:
    """The first unfinished message of an ordered queue has failed this often."""

    key: GroupQueue
    tried: Tried
    timestamp_ms: int
    client_id: str = ""


OutOfTurn = SentBack | Copied | FinishedBeyond | TriedInOrder


def out_of_turn_document(entry: OutOfTurn) -> dict[str, object]:
    """The entry as a JSON object."""
    if isinstance(entry, Copied):
        return {"kind": "copied", "through": entry.through, "timestamp": entry.timestamp_ms}
    key = entry.key
    place: dict[str, object] = {"group": key.group, "topic": key.topic, "queueId": key.queue_id}
    if isinstance(entry, FinishedBeyond):
        bounds = [bound for each in entry.ranges for bound in each]
        return {
            "kind": "finished",
            **place,
            "ranges": bounds,
            "timestamp": entry.timestamp_ms,
        }
    if isinstance(entry, TriedInOrder):
        return {
            "kind": "tried",
            **place,
            "offset": entry.tried.offset,
            "attempts": entry.tried.attempts,
            "timestamp": entry.timestamp_ms,
            "clientId": entry.client_id,
        }
    document: dict[str, object] = {
        "kind": "resent" if isinstance(entry.way, Resend) else "sentBack",
        **place,
        "offset": entry.offset,
        "number": entry.number,
        **_way_object(entry.way),
        "timestamp": entry.timestamp_ms,
        "clientId": entry.client_id,
    }
    if entry.is_repeated:
        document["repeated"] = True
    return document


def _way_object(way: Way) -> dict[str, object]:
    if isinstance(way, Resend):
        topic, queue_id, resends_max = way
        return {"toTopic": topic, "toQueueId": queue_id, "resendsMax": resends_max}
    if isinstance(way, Death):
        return {
            "dead": {
                "attempts": way.attempts,
                "reasonClass": way.reason_class,
                "reason": way.reason,
                "member": way.member,
            }
        }
    return {"level": way.level} if way.level else {"deliverMs": way.deliver_ms}


def decode_out_of_turn(value: dict[str, Any]) -> OutOfTurn | None:
    """As `entries.decode_entry`."""
    kind = value["kind"]
    if kind == "copied":
        return Copied(whole_of(value["through"]), whole_of(value["timestamp"]))
    if kind not in ("sentBack", "resent", "finished", "tried"):
        return None
    key = GroupQueue(text_of(value["group"]), text_of(value["topic"]), whole_of(value["queueId"]))
    timestamp_ms = whole_of(value["timestamp"])
    if kind == "finished":
        bounds = [whole_of(each) for each in value["ranges"]]
        if len(bounds) % 2 or any(after <= before for before, after in pairwise(bounds)):
            raise ValueError("finished ranges are rising pairs of offsets")
        ranges = tuple(Range(*bounds[at : at + 2]) for at in range(0, len(bounds), 2))
        return FinishedBeyond(key, ranges, timestamp_ms)
    if kind == "tried":
        tried = Tried(whole_of(value["offset"]), whole_of(value["attempts"]))
        return TriedInOrder(key, tried, timestamp_ms, text_of(value["clientId"]))
    return SentBack(
        key,
        whole_of(value["offset"]),
        whole_of(value["number"]),
        _way_of(value, key.group, timestamp_ms),
        timestamp_ms,
        text_of(value["clientId"]),
        value.get("repeated") is True,
    )


def _way_of(value: dict[str, Any], group: str, timestamp_ms: int) -> Way:
    if value["kind"] == "resent":
        return Resend(
            text_of(value["toTopic"]), whole_of(value["toQueueId"]), whole_of(value["resendsMax"])
        )
    if "dead" not in value:
        level = whole_of(value.get("level", 0))
        return Delay(level=level) if level else Delay(deliver_ms=whole_of(value["deliverMs"]))
    dead = value["dead"]
    return Death(
        group,
        whole_of(dead["attempts"]),
        timestamp_ms,
        text_of(dead["reasonClass"]),
        text_of(dead["reason"]),
        text_of(dead["member"]),
    )
