"""Requests to a queue that POP consumes, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from aerobee.broker.pop.entries import PopEntry
from aerobee.runtime.errors import Busy


@dataclass(frozen=True, slots=True)
class PopLimits:
    """Limits for one queue of a group."""

    flights_max: int = 10_000
    """Messages that clients have or that wait to be redelivered."""
    waiting_max: int = 4_096
    """Messages that were read and wait for an older one of their message group."""
    aside_max: int = 10_000
    """Messages of a retry topic that were read and wait for a poll of their own topic. Above this
    limit, later messages wait, too."""
    span_max: int = 1_000_000
    """Messages after the oldest unfinished one. Above this limit, that one goes to the retry topic
    when its time is up, unless order matters: otherwise it would hold the log."""
    repeated_ms: int = 60_000
    """How long a poll may be repeated."""
    unsure_ms: int = 10_000
    """What a master handed out this long before its end may not have reached its client."""
    unsure_held_ms: int = 60_000
    """For this long after that, the next master assumes that a client which set no time has it."""


@dataclass(frozen=True, slots=True)
class Poll:
    """What a client asks for. `invisible_ms` None: while the client is alive."""

    client_id: str
    """The key of a client: unique among all users, not shown to anyone."""
    count: int
    invisible_ms: int | None = None
    attempt_id: str = ""
    """A client that repeats a poll under the same id gets the same messages."""
    attempts_max: int = 17
    """Deliveries of a message; after that it becomes a dead letter."""
    topic: str = ""
    """The poll's topic. From the group's retry topic it gets what came from this topic; "": all."""
    begins_at_first: bool = False
    """A new group begins at the first message that there is."""
    takes_runs: bool = False
    """Where order matters, it also gets what follows a message of the same message group: its
    client handles them one after the other. The next poll gets nothing of that message group until
    all of them are finished, or the first unfinished one comes again."""

    def origin(self, topic: str) -> str:
        """The origin required of messages from a queue of this topic; "": any."""
        return "" if self.topic == topic else self.topic

    def with_count(self, count: int) -> Poll:
        """The same poll for one queue, for the remaining count."""
        return replace(self, count=count)


class Delivery(NamedTuple):
    """A message held by a client. `serial` identifies this delivery; `visible_ms` 0: while the
    client is alive."""

    offset: int
    serial: int
    attempt: int
    visible_ms: int


class MoveReason(StrEnum):
    """Why a message is replaced by a copy."""

    DEAD = "dead"  # delivered as often as it may be
    FORWARDED = "forwarded"  # its receiver gives it up
    LATE = "late"  # it holds too much: it continues by the retry topic


class Move(NamedTuple):
    """The caller replaces the message with a copy, exactly once, and calls `moved`; or else `kept`.
    Until then nobody gets the message, and no serial of it is valid."""

    offset: int
    reason: MoveReason
    attempts: int


class ToRead(NamedTuple):
    """What to read for a poll: messages due for redelivery or whose turn it is now, in ascending
    order; then `room` messages from `begin` on that were never handed out."""

    again: Sequence[int]
    begin: int
    room: int
    moves: Sequence[Move]
    refusal: Busy | None
    """Why `room` is 0, unless because of what was asked."""


@dataclass(frozen=True, slots=True)
class Read:
    """What was read. A message that was read, is for this poll, and is not in `messages` does not
    pass its filter, and is finished."""

    messages: Mapping[int, int]
    """Offset to lane, in ascending order; lanes matter only where order does."""
    again: Sequence[int] = ()
    begin: int = 0
    end: int = 0
    """The end of [begin, end)."""
    origins: Mapping[int, str] = field(default_factory=dict)
    """For messages of a retry topic: the topic they came from. Those from a topic other than the
    poll's are not in `messages`, and stay for others."""
    failures: Mapping[int, int] = field(default_factory=dict)
    """How often messages were delivered before they came to the retry topic."""


@dataclass(slots=True)
class Taken:
    """What a poll gets from one queue once `entries` are confirmed."""

    entries: list[PopEntry] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)


class Handled(StrEnum):
    """The outcome of a request for one delivery."""

    DONE = "done"
    FINISHED = "finished"  # earlier; report it once the journal's newest entry is confirmed
    STALE = "stale"  # it is not the message's newest delivery; nothing changed


class Changed(NamedTuple):
    """`delivery` replaces the one that was changed."""

    handled: Handled
    delivery: Delivery | None = None
    entries: Sequence[PopEntry] = ()


class Acknowledged(NamedTuple):
    """One result per delivery, in the order of the request."""

    handled: list[Handled]
    entries: Sequence[PopEntry] = ()
