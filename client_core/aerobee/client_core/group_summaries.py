"""All consumer groups at a glance: `AdminClient.groups.summaries`, one question to each broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aerobee.domain.names import is_system_group
from aerobee.v1 import broker_pb2


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group on all brokers that answered."""

    name: str
    members: int
    topics: int
    """That it reads at one broker, without its retry topic: of the broker where it reads most."""
    unread_min: int
    """At least so many messages are unread."""
    unread: int | None
    """Exactly so many. None: unknown, because a broker did not answer, or cannot know where members
    that have not committed yet will begin."""
    in_flight: int | None
    """Of the unread ones: handed out and not finished. None: unknown."""
    oldest_age_ms: int | None
    """Age of the oldest unread message; 0: there is none. None: unknown."""
    dead_letters: int
    """Nobody resent or dropped them; at the brokers that answered."""


@dataclass(frozen=True, slots=True)
class GroupSummaries:
    """All groups, by name."""

    groups: tuple[GroupSummary, ...]
    unanswered: tuple[str, ...]
    """Broker groups that could not be asked; their part is missing here."""
    age_ms: int
    """How old the oldest part is: brokers read this at most once in a while."""


@dataclass(slots=True)
class _Sum:
    """One group over brokers."""

    members: set[int] = field(default_factory=set)
    topics: int = 0
    unread_min: int = 0
    unread: int | None = 0
    in_flight: int | None = 0
    oldest_age_ms: int | None = 0
    dead_letters: int = 0


def summaries_of(
    answers: Mapping[str, broker_pb2.GroupLagRows], unanswered: tuple[str, ...], *, with_own: bool
) -> GroupSummaries:
    """From the answers of brokers."""
    sums: dict[str, _Sum] = {}
    for rows in answers.values():
        at = 0
        columns = zip(
            rows.groups,
            rows.member_counts,
            rows.topic_counts,
            rows.unread,
            rows.in_flight,
            rows.oldest_ages_ms,
            rows.dead_letters,
            strict=True,
        )
        for name, members, topics, unread, in_flight, age_ms, letters in columns:
            one = sums.setdefault(name, _Sum())
            if members:
                one.members.update(rows.member_codes[at : at + members])
                at += members
            one.topics = max(one.topics, topics)
            one.unread_min += max(0, unread)
            one.unread = _plus(one.unread, unread)
            one.in_flight = _plus(one.in_flight, in_flight)
            one.oldest_age_ms = (
                None if one.oldest_age_ms is None or age_ms < 0 else max(one.oldest_age_ms, age_ms)
            )
            one.dead_letters += letters
    return GroupSummaries(
        groups=tuple(
            _summary(name, sums[name], is_whole=not unanswered)
            for name in sorted(sums)
            if with_own or not is_system_group(name)
        ),
        unanswered=unanswered,
        age_ms=max((rows.age_ms for rows in answers.values()), default=0),
    )


def _summary(name: str, found: _Sum, *, is_whole: bool) -> GroupSummary:
    return GroupSummary(
        name=name,
        members=len(found.members),
        topics=found.topics,
        unread_min=found.unread_min,
        unread=found.unread if is_whole else None,
        in_flight=found.in_flight if is_whole else None,
        oldest_age_ms=found.oldest_age_ms if is_whole else None,
        dead_letters=found.dead_letters,
    )


def _plus(sum_so_far: int | None, value: int) -> int | None:
    """`value`: -1 if unknown."""
    return None if sum_so_far is None or value < 0 else sum_so_far + value
