"""What the judge of POP knows: who is there, the log's records, and what clients were told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.requests import (
    Delivery,
    MoveReason,
    PopLimits,
)
from tests.simulation.journalled import Journalled, Written

PLAIN = GroupQueue("plain", "orders", 0)
ORDERED = GroupQueue("ordered", "orders", 0)
GROUPS = (PLAIN, ORDERED)
CLIENTS = ("ada", "bob", "cy")
ATTEMPTS_MAX = 4
SILENCE_MS = 6_000
RELEASED_MS = 100
HELD_MS_MAX = 30_000
LIMITS = PopLimits(
    flights_max=12,
    waiting_max=6,
    span_max=25,
    repeated_ms=5_000,
    unsure_ms=1_000,
    unsure_held_ms=3_000,
)


class At(NamedTuple):
    """A message of the queue, for one of the groups."""

    key: GroupQueue
    offset: int

    def __str__(self) -> str:
        return f"message {self.offset} for {self.key.group}"


@dataclass(frozen=True, slots=True)
class Message:
    """In the queue; groups want those that are `wanted`."""

    lane: int
    wanted: bool


@dataclass(frozen=True, slots=True)
class Replaced:
    """A copy is owed for the message, which this finishes: a dead letter, or one in the retry
    topic. As `sentBack` in the offset journal."""

    key: GroupQueue
    offset: int
    reason: MoveReason


@dataclass(slots=True)
class Told:
    """A delivery known to a client."""

    client_id: str
    key: GroupQueue
    delivery: Delivery
    at_ms: int
    end: int
    """The log's end after its entry."""


@dataclass(slots=True)
class Pending:
    """An answer waiting for its record. `tell` sends the answer."""

    done: Written
    tell: Callable[[int], None]


@dataclass(slots=True)
class Knowledge:
    """The judge's knowledge of one message for one group."""

    told: list[Told] = field(default_factory=list)
    taken_serial: int = 0
    """The serial of the newest delivery, told or not."""
    uncounted: int = 0
    """Deliveries that were undone on a client's request."""
    earliest_ms: int = 0
    """The earliest time at which it may be redelivered."""
    may_be_finished: list[Written] = field(default_factory=list)
    """Accepted acknowledgements, told or not."""
    finished_end: int = 0
    """The log's end after an acknowledgement that was told."""


def place_of(record: Message | Replaced | Journalled) -> object:
    """The queue of a record."""
    if isinstance(record, Journalled):
        return "journal"
    return "orders" if isinstance(record, Message) else "copies"
