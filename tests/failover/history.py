"""What the clients of a cluster saw while it was harmed: the raw material of a verdict.

Owns: the log of sends, deliveries and committed offsets of one run. Written by the clients of
clients.py, judged by checker.py; nothing is judged here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BODY_SEPARATOR = b"|"


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    """What one producer sends to one queue: numbered, and in order."""

    producer: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message lies."""

    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A send that was answered with SEND_OK; `offset` is -1 of a message that arrives later."""

    lane: Lane
    number: int
    offset: int
    sent_s: float
    acknowledged_s: float


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a listener of the consumer group was given."""

    place: Place
    body: bytes
    at_s: float


@dataclass(frozen=True, slots=True)
class Committed:
    """The group's offset of one queue, as one broker told it.

    `answered_by` is the broker's id; `by_master` says that it was the group's master before and
    after it answered.
    """

    queue_id: int
    offset: int
    answered_by: int
    by_master: bool
    at_s: float


FAILURES = (0, 0, 0, 1, 1, 2, 2, 100)
"""How often messages of a lane that fails do, by their number."""
RETRIES_MAX = 3
"""More often than this none of them comes again."""


def failures_of(number: int) -> int:
    """How often the message fails."""
    return FAILURES[number % len(FAILURES)]


def is_failing(lane: Lane) -> bool:
    """Whether messages of this lane fail."""
    return lane.producer.endswith("-failing")


@dataclass(slots=True)
class History:
    """Times are of one monotonic clock, in seconds."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    """As they came: `acknowledged_s` never falls."""
    attempted: dict[Lane, int] = field(default_factory=dict)
    """How many messages each lane gave to its producer."""
    due_ms: dict[tuple[Lane, int], int] = field(default_factory=dict)
    """Of each message that is to arrive later: not before this Unix time."""
    failed: list[str] = field(default_factory=list)
    """Sends that ended without SEND_OK: a sentence each. They may be in the log, once, or not."""
    delivered: list[Delivered] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    handled: set[tuple[Lane, int]] = field(default_factory=set)
    """Messages that fail, once they have failed as often as they should."""
    attempts: dict[tuple[Lane, int], int] = field(default_factory=dict)
    """Of those: with how many attempts each was delivered, at most."""

    def pause_s(self, fault_s: float) -> float | None:
        """How long writes stood still: from the fault to the first acknowledgement of a message
        that was sent after it; None if there was none."""
        for index in range(self._first_since(fault_s), len(self.acknowledged)):
            one = self.acknowledged[index]
            if one.sent_s >= fault_s:
                return one.acknowledged_s - fault_s
        return None

    def gap_s(self, begin_s: float, end_s: float) -> float:
        """The longest time between `begin_s` and `end_s` without any acknowledgement."""
        edges = [begin_s]
        for index in range(self._first_since(begin_s), len(self.acknowledged)):
            if (at_s := self.acknowledged[index].acknowledged_s) > end_s:
                break
            edges.append(at_s)
        return max(after - before for before, after in pairwise([*edges, end_s]))

    def _first_since(self, moment_s: float) -> int:
        """Where acknowledgements of `moment_s` and later begin. Those who wait ask for it hundreds
        of times a second: looking at all that came before would keep the clients from sending."""
        return bisect_left(self.acknowledged, moment_s, key=_acknowledged_s)


def _acknowledged_s(one: Acknowledged) -> float:
    return one.acknowledged_s


def body_of(lane: Lane, number: int, filler: bytes) -> bytes:
    return BODY_SEPARATOR.join(
        (lane.producer.encode(), b"%d" % lane.queue_id, b"%d" % number, filler)
    )


def read_body(body: bytes) -> tuple[Lane, int]:
    """Raises ValueError for a body that no lane made."""
    parts: Sequence[bytes] = body.split(BODY_SEPARATOR, 3)
    if len(parts) != 4:
        raise ValueError(f"not a body of these tests: {body[:40]!r}")
    return Lane(parts[0].decode(), int(parts[1])), int(parts[2])
