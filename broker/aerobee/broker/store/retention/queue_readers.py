"""Who still wants what of a queue, as the broker tells the store, and what was taken from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueReaders:
    """The groups that read one queue.

    A queue that nobody reads, or whose messages nobody shall wait for, is not listed at all.
    """

    topic: str
    queue_id: int
    offsets: Mapping[str, int]
    """Group -> the next queue offset that it will consume; at least one."""
    keep_bytes_max: int | None = None
    """Unread messages hold a segment only while at most so many bytes of log lie from them to the
    log's end; None: however many."""
    pending: bool = False
    """No group reads it: messages of another broker wait there, and `offsets` names their kind."""

    @property
    def oldest(self) -> int:
        """The smallest offset that a group has not consumed."""
        return min(self.offsets.values())


@dataclass(frozen=True, slots=True)
class UnreadRemoval:
    """Messages of one queue that were removed before a group had read them."""

    group: str
    topic: str
    queue_id: int
    messages: int


def removed_unread(
    readers: QueueReaders, min_offset_before: int, min_offset_after: int
) -> list[UnreadRemoval]:
    """What each group lost when the queue's first message changed: exact, because queue offsets
    have no gaps."""
    lost = []
    for group, offset in sorted(readers.offsets.items()):
        messages = min_offset_after - max(offset, min_offset_before)
        if messages > 0:
            lost.append(UnreadRemoval(group, readers.topic, readers.queue_id, messages))
    return lost
