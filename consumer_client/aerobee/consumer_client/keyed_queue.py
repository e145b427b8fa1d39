"""The messages of one queue, one key in order and keys beside each other.

Owns: a lane for each key that has unfinished messages. The first message of a lane waits or runs,
alone or with the next ones of its key; the others of the lane stay behind it until it is finished.
A message without a key has a lane of its own.
Invariants: at most one taken batch of a key is unfinished; a key's messages are taken in queue
order; `safe_offset` is the lowest unfinished offset, in whatever order lanes finish. A finished
message costs its offset until all before it are finished.

    queue    a1 b1 a2 c1 b2        lanes: a: a1 | a2    b: b1 | b2    c: c1
    waiting  b1 c1                 running: a1          a2 waits for a1, b2 for b1
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.listener import OrderBy
from aerobee.consumer_client.process_queue import Entry, ProcessQueue, T
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class KeyedQueue(ProcessQueue[T]):
    """A ProcessQueue whose `waiting` has the first message of each lane that may be taken."""

    __slots__ = ("_finished", "_held", "_key_of", "_keys", "_lanes", "_lanes_of")

    def __init__(self, start_offset: int, key_of: Callable[[T], str | None]) -> None:
        """`key_of` must not raise; None: the message has no key."""
        super().__init__(start_offset)
        self._key_of = key_of
        # Of the waiting ones, in the same order.
        self._keys: deque[Hashable] = deque()
        self._lanes: dict[Hashable, deque[Entry[T]]] = {}
        # Of running messages: their lane, and how many of a lane run.
        self._lanes_of: dict[Hashable, int] = {}
        # All offsets from the lowest unfinished one on, and those of them that are finished.
        self._held: deque[int] = deque()
        self._finished: set[int] = set()

    @property
    def lane_count(self) -> int:
        """Keys with unfinished messages."""
        return len(self._lanes)

    def add(self, entries: Sequence[Entry[T]], next_offset: int) -> int:
        """As `ProcessQueue.add`."""
        begin = self.fetched_end
        waiting, self.waiting = self.waiting, deque()
        try:
            duplicates = super().add(entries, next_offset)
        finally:
            self.waiting = waiting
        for entry in entries:
            if entry[0] >= begin:
                self._held.append(entry[0])
                self._line_up(entry)
        return duplicates

    def _line_up(self, entry: Entry[T]) -> None:
        # A number is no key: it cannot meet a message's.
        key: Hashable = self._key_of(entry[2])
        if key is None:
            key = entry[0]
        lane = self._lanes.get(key)
        if lane is not None:
            lane.append(entry)
            return
        self._lanes[key] = deque()
        self._wait(key, entry)

    def _wait(self, key: Hashable, entry: Entry[T]) -> None:
        self.waiting.append(entry)
        self._keys.append(key)

    @property
    def cached_count(self) -> int:
        return len(self._held) - len(self._finished)

    def take(self, count_max: int) -> list[Entry[T]]:
        """The next messages of one lane, now running; at most `count_max`."""
        if not self.waiting:
            return []
        key = self._keys.popleft()
        lane = self._lanes[key]
        taken = [self.waiting.popleft()]
        taken += [lane.popleft() for _ in range(min(count_max - 1, len(lane)))]
        for offset, _, _ in taken:
            self._running[offset] = key
        self._lanes_of[key] = len(taken)
        return taken

    def finish(self, entries: Iterable[Entry[T]]) -> None:
        """As `ProcessQueue.finish`; the next of their lanes wait now."""
        for offset, size, _ in entries:
            key = self._running.pop(offset)
            self.cached_bytes -= size
            self._finished.add(offset)
            self._lanes_of[key] -= 1
            if not self._lanes_of[key]:
                del self._lanes_of[key]
                self._go_on(key)
        held, finished = self._held, self._finished
        while held and held[0] in finished:
            finished.remove(held.popleft())

    def _go_on(self, key: Hashable) -> None:
        lane = self._lanes[key]
        if lane:
            self._wait(key, lane.popleft())
        else:
            del self._lanes[key]

    @property
    def safe_offset(self) -> int:
        return self._held[0] if self._held else self.fetched_end


def key_reader(
    order_by: OrderBy | None,
) -> Callable[[ReceivedMessage], str | None] | None:
    """Reads the key of a message. A key that cannot be read counts as none: the listener will fail
    to read the message, too."""
    if order_by is None:
        return None
    read = _sharding_key if order_by == "key" else order_by

    def key_of(message: ReceivedMessage) -> str | None:
        try:
            return read(message)
        except Exception as error:
            log_event(log, "no key", level=logging.WARNING, queue=message.queue, reason=error)
            return None

    return key_of


def _sharding_key(message: ReceivedMessage) -> str | None:
    return message.sharding_key
