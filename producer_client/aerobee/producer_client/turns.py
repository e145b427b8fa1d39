"""Whose turn it is on each queue, so that retries keep the order and brokers remember enough. Pure.

Batches of a chosen queue go one at a time: the next is written when the one before has its outcome,
whatever it takes. Meanwhile messages gather in the next, so a slow queue has large batches. Others
may be under way together, but never more than a broker surely remembers.
"""

from __future__ import annotations

from aerobee.client_core.message import MessageQueue
from aerobee.producer_client.accumulator import Batch

UNDER_WAY_MAX = 64
"""Batches of one queue without an outcome; brokers remember the last 128 of each producer."""


class QueueTurns:
    """Which batches are under way."""

    def __init__(self) -> None:
        self._pinned: dict[MessageQueue, Batch] = {}
        self._counts: dict[MessageQueue, int] = {}

    def claim(self, batch: Batch) -> bool:
        """Whether the batch may be written now; it keeps its turn until `leave`."""
        if batch.has_turn:
            return True
        queue = batch.queue
        if batch.is_pinned:
            if queue in self._pinned:
                return False
            self._pinned[queue] = batch
        else:
            count = self._counts.get(queue, 0)
            if count >= UNDER_WAY_MAX:
                return False
            self._counts[queue] = count + 1
        batch.has_turn = True
        return True

    def leave(self, batch: Batch) -> None:
        """It has its outcome, or goes to another queue."""
        if not batch.has_turn:
            return
        batch.has_turn = False
        queue = batch.queue
        if batch.is_pinned:
            del self._pinned[queue]
        elif self._counts[queue] == 1:
            del self._counts[queue]
        else:
            self._counts[queue] -= 1
