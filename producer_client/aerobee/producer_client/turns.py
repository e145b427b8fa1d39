"""The numbers and turns of each queue's batches: retries keep the order, within what brokers
remember. Pure.

Brokers recognise a repeated batch by the producer's identity and its number. Each queue has its own
numbers, from 0 on without a gap, and its own identity, which is replaced when they are used up or
when the broker no longer recognises them; everything that waits for its time at a broker group
shares them, see `Batch.numbered_in`. A batch keeps its numbers.

Batches of a chosen queue go one at a time: the next is written when the previous one has its
outcome, however long that takes. Meanwhile messages gather in the next, so a slow queue has large
batches. Others may be in flight together, but none goes so far ahead of one that may have to be
repeated that a broker could have forgotten that one. A batch that was certainly not stored needs no
memory: it steps back, and is sent again under another number.
"""

from __future__ import annotations

import random

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.accumulator import Batch, Lane
from aerobee.store.format.producer_number import PRODUCER_ID_END, SEQUENCE_END

AHEAD_MAX = 64
"""A batch is written only while fewer than this many were written since the oldest batch of its
queue without an outcome; brokers remember the last 128 of each producer."""


class Sequences:
    """Identities and next numbers.

    >>> queue = MessageQueue("t", "a", 0)
    >>> numbers = Sequences(random.Random(1))
    >>> numbers.take(queue, 10)[1], numbers.take(queue, 5)[1], numbers.take(queue, 1)[1]
    (0, 10, 15)
    """

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self.producer_id = self._new_id()
        """For every queue that has not needed another one yet."""
        self._ids: dict[MessageQueue, int] = {}
        self._next: dict[MessageQueue, int] = {}

    def take(self, queue: MessageQueue, count: int) -> tuple[int, int]:
        """Identity and first number for `count` messages to a queue."""
        first = self._next.get(queue, 0)
        if first + count > SEQUENCE_END:
            self.renew(queue)
            first = 0
        self._next[queue] = first + count
        return self._ids.get(queue, self.producer_id), first

    def renew(self, queue: MessageQueue) -> None:
        """Start this queue again with a new identity."""
        self._ids[queue] = self._new_id()
        self._next[queue] = 0

    def _new_id(self) -> int:
        return self._random.randrange(1, PRODUCER_ID_END)


class _Places:
    """The batches in flight whose numbers belong to one queue."""

    __slots__ = ("next_place", "of_batch")

    def __init__(self) -> None:
        self.of_batch: dict[Batch, int] = {}
        """Oldest first: the ordinal of each."""
        self.next_place = 0


class QueueTurns:
    """Which batches are in flight."""

    def __init__(self) -> None:
        self._pinned: dict[Lane, Batch] = {}
        self._places: dict[MessageQueue, _Places] = {}

    def claim(self, batch: Batch) -> bool:
        """Whether the batch may be written now; it keeps its turn until `leave`."""
        if batch.has_turn or batch.is_half:
            # Half messages have no order, and no numbers that could be forgotten.
            return True
        if batch.is_pinned and self._pinned.get(batch.lane, batch) is not batch:
            return False
        places = self._places.get(batch.numbered_in)
        if places is None:
            places = self._places[batch.numbered_in] = _Places()
        of_batch = places.of_batch
        if of_batch and places.next_place - next(iter(of_batch.values())) >= AHEAD_MAX:
            return False
        if batch.is_pinned:
            self._pinned[batch.lane] = batch
        of_batch[batch] = places.next_place
        places.next_place += 1
        batch.has_turn = True
        return True

    def stand_back(self, batch: Batch) -> None:
        """It was certainly not stored: it claims again, but those after it on a chosen queue keep
        waiting for it."""
        if batch.has_turn:
            batch.has_turn = False
            of_batch = self._places[batch.numbered_in].of_batch
            del of_batch[batch]
            if not of_batch:
                del self._places[batch.numbered_in]

    def pass_on(self, batch: Batch, rest: Batch) -> None:
        """The batch has its outcome, and the rest of it goes next."""
        if self._pinned.get(batch.lane) is batch:
            self._pinned[batch.lane] = rest
        self.stand_back(batch)

    def leave(self, batch: Batch) -> None:
        """It has its outcome, or goes to another queue."""
        self.stand_back(batch)
        if self._pinned.get(batch.lane) is batch:
            del self._pinned[batch.lane]
