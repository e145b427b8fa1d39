"""Messages in and out, by topic: counted once per batch, when it is acknowledged or sent.

Owns: the counts since the folder was opened. A message counts as in once it is as safe as its
acknowledgement promises: at once with the page cache, otherwise when disk or replicas have it; one
whose outcome the end of a term left open does not count. It counts as out when its frame was passed
to the network.

Invariant: a limited number of topics, and of pairs of group and topic, have counts of their own;
the others are counted under `OTHER`. Deleted topics, and groups without members that have read
nothing for long, give their places to others. On the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from aerobee.broker.sending.acknowledged import MESSAGE_SIZES, AcknowledgedBatch
from aerobee.runtime.metrics.families import OTHER

GROUP_IDLE_S = 600.0
"""A group without members that reads nothing for this long loses its places."""


class Incoming:
    """The counts of one topic."""

    __slots__ = ("bytes", "messages", "sizes")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.sizes = [0] * (len(MESSAGE_SIZES) + 1)


class Outgoing:
    """The counts of one group on one topic; the group is empty for readers without one."""

    __slots__ = ("bytes", "messages", "quiet_messages", "quiet_since_s")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.quiet_messages = 0
        """`messages` when it was last seen to grow, and the time of that; for `Traffic.forget`."""
        self.quiet_since_s = 0.0


class Reader(NamedTuple):
    group: str
    topic: str


class Traffic:
    def __init__(self, *, topics_max: int, consumers_max: int) -> None:
        self._topics_max = topics_max
        self._consumers_max = consumers_max
        self._incoming: dict[str, Incoming] = {}
        self._other_incoming = Incoming()
        self._outgoing: dict[tuple[str, str], Outgoing] = {}
        self._other_outgoing = Outgoing()
        self._dead: dict[Reader, int] = {}
        self._other_dead = 0

    def acknowledged(self, batch: AcknowledgedBatch) -> None:
        """Messages came in."""
        counts = self._incoming.get(batch.topic)
        if counts is None:
            counts = self._new_incoming(batch.topic)
        counts.messages += batch.messages
        counts.bytes += batch.size
        if batch.size_counts is None:
            counts.sizes[0] += batch.messages
            return
        for bucket, count in enumerate(batch.size_counts):
            counts.sizes[bucket] += count

    def delivered(self, group: str, topic: str, messages: int, size: int) -> None:
        """A frame of records is on its way to a reader; `group` may be empty."""
        counts = self._outgoing.get((group, topic))
        if counts is None:
            counts = self._new_outgoing(group, topic)
        counts.messages += messages
        counts.bytes += size

    def dead(self, group: str, topic: str, messages: int) -> None:
        """Messages of a topic have become dead letters of a group."""
        reader = Reader(group, topic)
        if reader in self._dead or len(self._dead) < self._consumers_max:
            self._dead[reader] = self._dead.get(reader, 0) + messages
        else:
            self._other_dead += messages

    def dead_letters(self) -> list[tuple[Reader, int]]:
        """By group and topic; the rest under OTHER, if there is any."""
        rows = list(self._dead.items())
        return [*rows, (Reader(OTHER, OTHER), self._other_dead)] if self._other_dead else rows

    def incoming(self) -> list[tuple[str, Incoming]]:
        """By topic, at this moment; the rest under OTHER, if there is any."""
        rows = list(self._incoming.items())
        if self._other_incoming.messages:
            rows.append((OTHER, self._other_incoming))
        return rows

    def outgoing(self) -> list[tuple[Reader, Outgoing]]:
        """The same by group and topic."""
        rows = [(Reader(*names), counts) for names, counts in self._outgoing.items()]
        if self._other_outgoing.messages:
            rows.append((Reader(OTHER, OTHER), self._other_outgoing))
        return rows

    def forget(
        self, is_known: Callable[[str], bool], groups_with_members: Container[str], now_s: float
    ) -> None:
        """Give the places of deleted topics and idle groups to others."""
        for topic in [topic for topic in self._incoming if not is_known(topic)]:
            del self._incoming[topic]
        gone = []
        for names, counts in self._outgoing.items():
            group, topic = names
            if counts.messages != counts.quiet_messages or group in groups_with_members:
                counts.quiet_messages, counts.quiet_since_s = counts.messages, now_s
            if not is_known(topic) or now_s - counts.quiet_since_s >= GROUP_IDLE_S:
                gone.append(names)
        for names in gone:
            del self._outgoing[names]
        for reader in [reader for reader in self._dead if not is_known(reader.topic)]:
            del self._dead[reader]

    # ------------------------------------------------------------------------------ inside

    def _new_incoming(self, topic: str) -> Incoming:
        if len(self._incoming) >= self._topics_max:
            return self._other_incoming
        counts = self._incoming[topic] = Incoming()
        return counts

    def _new_outgoing(self, group: str, topic: str) -> Outgoing:
        if len(self._outgoing) >= self._consumers_max:
            return self._other_outgoing
        counts = self._outgoing[group, topic] = Outgoing()
        return counts
