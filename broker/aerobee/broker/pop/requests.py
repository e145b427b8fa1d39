"""What is asked of a queue that POP consumes, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from aerobee.broker.pop.entries import PopEntry
from aerobee.runtime.errors import Busy


@dataclass(frozen=True, slots=True)
class PopLimits:
    """Of one queue of a group."""

    flights_max: int = 10_000
    """Messages that a client has, or that wait to be redelivered."""
    waiting_max: int = 4_096
    """Messages that were read and wait for an older one of their message group."""
    aside_max: int = 10_000
    """Messages of a retry topic that were read and wait for a poll for their own topic. Beyond,
    those after them wait, too."""
    span_max: int = 1_000_000
    """Messages after the oldest unfinished one. Beyond, it goes to the retry topic when its time
    has come, unless order counts: it would hold the log."""
    repeated_ms: int = 60_000
    """How long a poll may be repeated."""
    unsure_ms: int = 10_000
    """What a master handed out in this time before its end may not have reached its client."""
    unsure_held_ms: int = 60_000
    """This long after that a client that said no time has it, for the next master."""


@dataclass(frozen=True, slots=True)
class Poll:
    """What a client asks for. `invisible_ms` None: while the client is heard of."""

    client_id: str
    count: int
    invisible_ms: int | None = None
    attempt_id: str = ""
    """A client that repeats a poll under the same id gets the same messages."""
    attempts_max: int = 17
    """Deliveries of a message. After that it is dead."""
    topic: str = ""
    """What it is for. Of the group's retry topic it gets what came from this one; "": all."""

    def origin(self, topic: str) -> str:
        """What the messages that it gets of a queue of this topic have to come from; "": from
        anywhere."""
        return "" if self.topic == topic else self.topic

    def with_count(self, count: int) -> Poll:
        """The same of one queue, for what is left of the poll."""
        return replace(self, count=count)


class Delivery(NamedTuple):
    """A message in the hands of a client. `serial` names this delivery; `visible_ms` 0: as long as
    the client is heard of."""

    offset: int
    serial: int
    attempt: int
    visible_ms: int


class MoveReason(StrEnum):
    """Why a copy of a message takes its place."""

    DEAD = "dead"  # delivered as often as it may be
    FORWARDED = "forwarded"  # its receiver gives it up
    LATE = "late"  # it holds too much: it continues by the retry topic


class Move(NamedTuple):
    """The caller has a copy take the message's place, exactly once, and calls `moved`; or `kept`.
    Until then nobody gets the message, and no serial of it is good."""

    offset: int
    reason: MoveReason
    attempts: int


class Wanted(NamedTuple):
    """What to read for a poll: messages that come again, or whose turn it is now, in rising order;
    then `room` messages from `begin` on that nobody has had."""

    again: Sequence[int]
    begin: int
    room: int
    moves: Sequence[Move]
    refusal: Busy | None
    """Why `room` is 0, if it is not for what was asked."""


@dataclass(frozen=True, slots=True)
class Read:
    """What was read. Whatever was read, is the poll's, and is not in `messages`, does not pass its
    filter, and is finished."""

    messages: Mapping[int, int]
    """Offset to lane, in rising order; the lane counts only where order does."""
    again: Sequence[int] = ()
    begin: int = 0
    end: int = 0
    """From `begin` up to, not including, `end`."""
    origins: Mapping[int, str] = field(default_factory=dict)
    """Of messages of a retry topic: which topic they came from. Those of another one than the
    poll's are not in `messages`, and stay for others."""
    failures: Mapping[int, int] = field(default_factory=dict)
    """How often messages were delivered before they came to the retry topic."""


@dataclass(slots=True)
class Taken:
    """What a poll gets of one queue once `entries` are confirmed."""

    entries: list[PopEntry] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)


class Handled(StrEnum):
    """What became of a request for one delivery."""

    DONE = "done"
    FINISHED = "finished"  # before; told once the journal's newest entry is confirmed
    STALE = "stale"  # it is not the message's newest delivery; nothing changed


class Changed(NamedTuple):
    """`delivery` takes the place of the one that was changed."""

    handled: Handled
    delivery: Delivery | None = None
    entries: Sequence[PopEntry] = ()


class Acknowledged(NamedTuple):
    """One result for each delivery, in the order asked for."""

    handled: list[Handled]
    entries: Sequence[PopEntry] = ()
