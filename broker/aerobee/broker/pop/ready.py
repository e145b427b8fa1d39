"""PURE: the messages of a queue that may be handed out now, in the queue's order.

A group's retry topic has messages of all its topics, and a poll gets those of its own topic. Only a
message's record says which topic it came from, so that is passed in once the record was read.

Owns: the messages that are ready; the origin of each unfinished one, as far as known.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import merge
from itertools import islice


class Ready:
    """The ready messages of one queue."""

    def __init__(self) -> None:
        self._unknown: list[int] = []
        """Messages of unknown origin: all of them, except in retry topics."""
        self._by_origin: dict[str, list[int]] = {}
        self._origins: dict[int, str] = {}

    def __iter__(self) -> Iterator[int]:
        """All ready messages."""
        return merge(self._unknown, *self._by_origin.values())

    def __contains__(self, offset: object) -> bool:
        assert isinstance(offset, int)
        ready = self._list(offset)
        at = bisect_left(ready, offset)
        return at < len(ready) and ready[at] == offset

    def __len__(self) -> int:
        return len(self._unknown) + sum(map(len, self._by_origin.values()))

    def __bool__(self) -> bool:
        return bool(self._unknown) or any(self._by_origin.values())

    def first(self, count: int, origin: str) -> list[int]:
        """The first ones that are or may be of this origin; "": of any."""
        if not self._origins:
            return self._unknown[:count]
        if not origin:
            return list(islice(self, count))
        return list(islice(merge(self._unknown, self._by_origin.get(origin, ())), count))

    def add(self, offset: int) -> None:
        """It may be handed out from now on."""
        if offset not in self:
            insort(self._list(offset), offset)

    def discard(self, offset: int) -> None:
        """It is handed out, or moved."""
        ready = self._list(offset)
        at = bisect_left(ready, offset)
        if at < len(ready) and ready[at] == offset:
            del ready[at]

    def is_of(self, offset: int, origin: str) -> None:
        """Its record names its origin."""
        if self._origins.get(offset) == origin:
            return
        was_ready = offset in self
        self.discard(offset)
        self._origins[offset] = origin
        if was_ready:
            insort(self._list(offset), offset)

    def forget(self, begin: int, end: int) -> None:
        """All messages in [begin, end) are finished."""
        for ready in (self._unknown, *self._by_origin.values()):
            del ready[bisect_left(ready, begin) : bisect_left(ready, end)]
        if not self._origins:
            return
        some = range(begin, end)
        if len(some) > len(self._origins):
            for offset in [each for each in self._origins if each in some]:
                del self._origins[offset]
        else:
            for offset in some:
                self._origins.pop(offset, None)
        self._by_origin = {each: ready for each, ready in self._by_origin.items() if ready}

    def _list(self, offset: int) -> list[int]:
        origin = self._origins.get(offset)
        return self._unknown if origin is None else self._by_origin.setdefault(origin, [])
