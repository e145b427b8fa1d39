"""Whose turn it is on each queue, so that retries keep the order and brokers remember enough. Pure.

Batches of a chosen queue go one at a time: the next is written when the one before has its outcome,
whatever it takes. Meanwhile messages gather in the next, so a slow queue has large batches. Others
may be under way together, but none goes so far ahead of one that may have to come again that a
broker could have forgotten that one. A batch that was certainly not stored needs no memory: it
stands back, and takes part anew under another number.
"""

from __future__ import annotations

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.accumulator import Batch

AHEAD_MAX = 64
"""A batch is written only while fewer than so many were since the oldest one of its queue that has
no outcome; brokers remember the last 128 of each producer."""


class _Queue:
    """The turns of one queue."""

    __slots__ = ("next_place", "pinned", "places")

    def __init__(self) -> None:
        self.pinned: Batch | None = None
        self.places: dict[Batch, int] = {}
        """Of the batches under way, the oldest first: the how many-th each is."""
        self.next_place = 0


class QueueTurns:
    """Which batches are under way."""

    def __init__(self) -> None:
        self._queues: dict[MessageQueue, _Queue] = {}

    def claim(self, batch: Batch) -> bool:
        """Whether the batch may be written now; it keeps its turn until `leave`."""
        if batch.has_turn:
            return True
        queue = self._queues.get(batch.queue)
        if queue is None:
            queue = self._queues[batch.queue] = _Queue()
        if batch.is_pinned and queue.pinned not in (None, batch):
            return False
        places = queue.places
        if places and queue.next_place - next(iter(places.values())) >= AHEAD_MAX:
            return False
        if batch.is_pinned:
            queue.pinned = batch
        places[batch] = queue.next_place
        queue.next_place += 1
        batch.has_turn = True
        return True

    def stand_back(self, batch: Batch) -> None:
        """It was certainly not stored: it claims again, but those after it on a chosen queue go on
        waiting for it."""
        if batch.has_turn:
            batch.has_turn = False
            del self._queues[batch.queue].places[batch]

    def pass_on(self, batch: Batch, rest: Batch) -> None:
        """The batch has its outcome, and what was left of it goes next."""
        queue = self._queues[batch.queue]
        if queue.pinned is batch:
            queue.pinned = rest
        self.stand_back(batch)

    def leave(self, batch: Batch) -> None:
        """It has its outcome, or goes to another queue."""
        self.stand_back(batch)
        queue = self._queues.get(batch.queue)
        if queue is None:
            return
        if queue.pinned is batch:
            queue.pinned = None
        if queue.pinned is None and not queue.places:
            del self._queues[batch.queue]
