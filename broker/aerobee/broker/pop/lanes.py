"""PURE: whose turn it is when order matters: one message of a message group after another.

The messages of one message group form a lane. The first unfinished one is handed out and
redelivered until it is finished; those after it wait, while other lanes continue.

Owns: the messages of each lane that have been read and are not finished, in the queue's order.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from itertools import islice
from zlib import crc32

from aerobee.broker.pop.entries import NO_LANE


def lane_of(message_group: bytes) -> int:
    """The lane of a message group; b"" for messages without one. Two groups may share a lane, and
    then wait for each other."""
    return crc32(message_group)


class Lanes:
    """The lanes of one queue."""

    def __init__(self) -> None:
        self._chains: dict[int, deque[int]] = {}
        self._lane_at: dict[int, int] = {}

    def __len__(self) -> int:
        """The number of messages."""
        return len(self._lane_at)

    def __iter__(self) -> Iterator[int]:
        """The messages."""
        return iter(self._lane_at)

    def __contains__(self, offset: object) -> bool:
        return offset in self._lane_at

    def has(self, lane: int) -> bool:
        """Whether any message is of this lane."""
        return lane in self._chains

    @property
    def waiting(self) -> int:
        """How many messages are not the first of their lane."""
        return len(self._lane_at) - len(self._chains)

    def add(self, offset: int, lane: int) -> bool:
        """Whether the message is the first of its lane; the message may already be known."""
        if offset not in self._lane_at:
            self._lane_at[offset] = lane
            chain = self._chains.get(lane)
            if chain is None:
                self._chains[lane] = deque((offset,))
            elif lane != NO_LANE and offset > chain[-1]:
                chain.append(offset)
            else:
                insort(chain, offset)
        return self.is_first(offset)

    def after(self, offset: int) -> Iterator[int]:
        """The messages of the same lane after the first one, in order. Do not add or finish any
        meanwhile."""
        return islice(self._chains[self._lane_at[offset]], 1, None)

    def before(self, offset: int) -> int | None:
        """The message of the same lane before this one, if there is one."""
        chain = self._chains[self._lane_at[offset]]
        at = len(chain) - 1 if chain[-1] == offset else chain.index(offset)
        return chain[at - 1] if at else None

    def is_first(self, offset: int) -> bool:
        """Whether it is its turn."""
        return self._chains[self._lane_at[offset]][0] == offset

    def finish(self, offset: int) -> int | None:
        """The message is finished; returns the one whose turn it is now."""
        lane = self._lane_at.pop(offset, None)
        if lane is None:
            return None
        chain = self._chains[lane]
        if chain[0] != offset:
            chain.remove(offset)
            return None
        chain.popleft()
        if chain:
            return chain[0]
        del self._chains[lane]
        return None
