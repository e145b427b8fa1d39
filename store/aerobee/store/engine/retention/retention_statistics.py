"""What retention has removed since the store was opened, and what it keeps and why."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from aerobee.store.engine.retention.retention_policy import Cause, DiskSpace

LOSSES_TOLD_MAX = 1_000
"""At most this many groups and queues are listed, those that lost most; totals count all."""
_LOSSES_KEPT_MAX = 10_000


class Because(StrEnum):
    """Why messages were removed that a group had not read."""

    LIMIT = "limit"
    """By a configured limit of the topic or of the brokers."""
    COMMAND = "command"
    TOPIC = "topic"
    """The topic keeps its messages for a shorter time, or fewer bytes of them."""
    UNEXPECTED = "unexpected"


class GroupLoss(NamedTuple):
    """What a group has lost of a topic, for one reason."""

    group: str
    topic: str
    because: Because
    messages: int


@dataclass(frozen=True, slots=True)
class UnreadRemoval:
    """Messages of one queue that were removed before a group had read them."""

    group: str
    topic: str
    queue_id: int
    messages: int
    because: Because = field(default=Because.UNEXPECTED, compare=False)


@dataclass(frozen=True, slots=True)
class RemovedSegment:
    """A removed segment, and what groups had not read of it."""

    name: str
    base: int
    size_bytes: int
    modified_ms: int
    cause: Cause
    unread: tuple[UnreadRemoval, ...] = ()

    @property
    def unread_messages(self) -> int:
        return sum(each.messages for each in self.unread)


@dataclass(frozen=True, slots=True)
class RetentionStatistics:
    """Totals since the store was opened.

    `removed_unread`: the largest losses, at most LOSSES_TOLD_MAX, largest first.
    `removed_unread_messages`: over all groups and queues, including unlisted ones; a message that
    two groups had not read counts twice.
    """

    space: DiskSpace
    removed_segments: int
    removed_bytes: int
    removed_unread: tuple[UnreadRemoval, ...]
    removed_unread_messages: int
    removed_by_group: tuple[GroupLoss, ...]
    """The largest, at most LOSSES_TOLD_MAX."""
    kept_because: str


class RetentionCounters:
    """Totals, with an entry for each group and queue that lost anything. Above _LOSSES_KEPT_MAX
    entries the smallest are dropped, and remain only in the total."""

    __slots__ = (
        "_by_group",
        "_largest",
        "_unread",
        "removed_bytes",
        "removed_segments",
        "unread_messages",
    )

    def __init__(self) -> None:
        self.removed_segments = 0
        self.removed_bytes = 0
        self.unread_messages = 0
        self._unread: dict[tuple[str, str, int], int] = {}
        self._by_group: dict[tuple[str, str, Because], int] = {}
        self._largest: tuple[UnreadRemoval, ...] | None = ()

    def __len__(self) -> int:
        """How many groups and queues are kept."""
        return len(self._unread)

    def add(self, removed: RemovedSegment) -> None:
        self.removed_segments += 1
        self.removed_bytes += removed.size_bytes
        self.lose(removed.unread)

    def lose(self, losses: Collection[UnreadRemoval]) -> None:
        """Count what groups had not read."""
        for each in losses:
            key = each.group, each.topic, each.queue_id
            self._unread[key] = self._unread.get(key, 0) + each.messages
            self.unread_messages += each.messages
            loss = each.group, each.topic, each.because
            self._by_group[loss] = self._by_group.get(loss, 0) + each.messages
        if len(self._by_group) > _LOSSES_KEPT_MAX:
            most = self._largest_losses(_LOSSES_KEPT_MAX // 2)
            self._by_group = {
                (each.group, each.topic, each.because): each.messages for each in most
            }
        if len(self._unread) > _LOSSES_KEPT_MAX:
            # Down to half, so that this is rare.
            largest = heapq.nlargest(
                _LOSSES_KEPT_MAX // 2, self._unread.items(), key=lambda item: item[1]
            )
            self._unread = dict(largest)
        if losses:
            self._largest = None

    @property
    def by_group(self) -> tuple[GroupLoss, ...]:
        return tuple(self._largest_losses(LOSSES_TOLD_MAX))

    def _largest_losses(self, count_max: int) -> list[GroupLoss]:
        items = heapq.nlargest(count_max, self._by_group.items(), key=lambda item: item[1])
        return [GroupLoss(*key, messages) for key, messages in items]

    @property
    def largest(self) -> tuple[UnreadRemoval, ...]:
        """At most LOSSES_TOLD_MAX; computed once after each change."""
        if self._largest is None:
            self._largest = largest_removals(
                UnreadRemoval(*key, messages) for key, messages in self._unread.items()
            )
        return self._largest


def largest_removals(
    removals: Iterable[UnreadRemoval], count_max: int = LOSSES_TOLD_MAX
) -> tuple[UnreadRemoval, ...]:
    """The largest loss first."""
    return tuple(
        heapq.nsmallest(
            count_max,
            removals,
            key=lambda each: (-each.messages, each.group, each.topic, each.queue_id),
        )
    )
