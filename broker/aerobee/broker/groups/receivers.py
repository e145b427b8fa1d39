"""Members that receive messages one by one: clients of our own protocol that hold no queues.

Owns: who has polled lately, for display. Nothing depends on it: whose a message is, POP's journal
says. Pure: the caller passes the monotonic time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from aerobee.domain.sql_filter.expression import SqlExpression
from aerobee.domain.sql_filter.wish import Wish

SIMPLE_CONSUMER: Final = "simple consumer"
"""What such a member is called for display."""
SILENCE_S: Final = 60.0
"""After this a member is forgotten. A poll waits 20 s at most, and a listener polls again at
once."""
RECEIVERS_MAX: Final = 20_000
"""Beyond it the one that was heard first is forgotten: each call may name another client."""
SUBSCRIBED_LENGTH_MAX: Final = 4_096
"""Characters of topics and filters that are kept for one member."""

Subscriptions = Mapping[str, tuple[str, ...] | str | None]


@dataclass(slots=True)
class Receiver:
    """One client in one group. Read-only for callers."""

    group: str
    client_id: str
    address: str
    user: str
    heard_s: float = 0.0
    subscriptions: Subscriptions = field(default_factory=dict)
    """By topic: one of these tags, what an SQL expression is true for, or all."""


class Receivers:
    """Those of one broker."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, Receiver]] = {}
        self._heard: dict[tuple[str, str], Receiver] = {}
        """The one that was heard longest ago first."""

    def __repr__(self) -> str:
        return f"Receivers({len(self._heard)} in {len(self._by_group)} groups)"

    def heard(self, receiver: Receiver, topic: str, wish: Wish, now_s: float) -> None:
        """It polls a topic. One that is known keeps its other topics."""
        key = receiver.group, receiver.client_id
        known = self._heard.pop(key, None)
        if known is None:
            self._make_room(now_s)
            known = receiver
            self._by_group.setdefault(receiver.group, {})[receiver.client_id] = known
        known.address, known.user, known.heard_s = receiver.address, receiver.user, now_s
        wanted = dict(known.subscriptions)
        wanted[topic] = wish.text if isinstance(wish, SqlExpression) else wish
        if wanted != known.subscriptions and _length(wanted) <= SUBSCRIBED_LENGTH_MAX:
            known.subscriptions = wanted
        self._heard[key] = known

    def members(self, group: str, now_s: float) -> list[Receiver]:
        """By client id."""
        self._expire(now_s)
        found = self._by_group.get(group, {})
        return [found[client_id] for client_id in sorted(found)]

    def groups(self, now_s: float) -> list[str]:
        """Those that have members."""
        self._expire(now_s)
        return list(self._by_group)

    def all(self, now_s: float) -> Iterator[Receiver]:
        self._expire(now_s)
        return iter(list(self._heard.values()))

    def _make_room(self, now_s: float) -> None:
        self._expire(now_s)
        while len(self._heard) >= RECEIVERS_MAX:
            self._forget(next(iter(self._heard.values())))

    def _expire(self, now_s: float) -> None:
        while self._heard:
            oldest = next(iter(self._heard.values()))
            if oldest.heard_s + SILENCE_S > now_s:
                return
            self._forget(oldest)

    def _forget(self, receiver: Receiver) -> None:
        del self._heard[receiver.group, receiver.client_id]
        there = self._by_group[receiver.group]
        del there[receiver.client_id]
        if not there:
            del self._by_group[receiver.group]


def _length(subscriptions: Subscriptions) -> int:
    return sum(len(topic) + sum(map(len, said or ())) for topic, said in subscriptions.items())
