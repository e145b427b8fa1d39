"""What retention has removed since the store was opened, and what it keeps and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aerobee.broker.store.retention.queue_readers import UnreadRemoval
from aerobee.broker.store.retention.retention_policy import Cause, DiskSpace


@dataclass(frozen=True, slots=True)
class RemovedSegment:
    """One segment that is gone, and what groups had not read of it."""

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
    """Totals since the store was opened. `removed_unread` is sorted, the largest loss first."""

    space: DiskSpace
    removed_segments: int
    removed_bytes: int
    removed_unread: tuple[UnreadRemoval, ...]
    kept_because: str

    @property
    def removed_unread_messages(self) -> int:
        """Over all groups: a message that two groups had not read counts twice."""
        return sum(each.messages for each in self.removed_unread)


class RetentionCounters:
    """Adds up; an entry for each group and queue that lost anything."""

    __slots__ = ("_unread", "removed_bytes", "removed_segments")

    def __init__(self) -> None:
        self.removed_segments = 0
        self.removed_bytes = 0
        self._unread: dict[tuple[str, str, int], int] = {}

    def add(self, removed: RemovedSegment) -> None:
        self.removed_segments += 1
        self.removed_bytes += removed.size_bytes
        for each in removed.unread:
            key = each.group, each.topic, each.queue_id
            self._unread[key] = self._unread.get(key, 0) + each.messages

    @property
    def unread(self) -> tuple[UnreadRemoval, ...]:
        return sort_removals(
            UnreadRemoval(*key, messages) for key, messages in self._unread.items()
        )


def sort_removals(removals: Iterable[UnreadRemoval]) -> tuple[UnreadRemoval, ...]:
    """The largest loss first."""
    return tuple(
        sorted(removals, key=lambda each: (-each.messages, each.group, each.topic, each.queue_id))
    )
