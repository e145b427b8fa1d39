"""The numbers and turns of each queue's batches: retries keep the order, brokers remember enough.
Pure.

Brokers know a batch that comes again by the producer's identity and its number. Each queue has its
own numbers, from 0 on without a gap, and an identity that is new when they are used up or when the
broker cannot place them any more; all that waits at a broker group for its time shares them, see
`Batch.numbered_in`. Batches that have numbers keep them.

Batches of a chosen queue go one at a time: the next is written when the one before has its outcome,
whatever it takes. Meanwhile messages gather in the next, so a slow queue has large batches. Others
may be under way together, but none goes so far ahead of one that may have to come again that a
broker could have forgotten that one. A batch that was certainly not stored needs no memory: it
stands back, and takes part anew under another number.
"""

from __future__ import annotations

import random

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.accumulator import Batch, Lane
from aerobee.store_format.producer_number import PRODUCER_ID_END, SEQUENCE_END

AHEAD_MAX = 64
"""A batch is written only while fewer than so many were since the oldest one of its queue that has
no outcome; brokers remember the last 128 of each producer."""


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
        """Of every queue that has needed no other yet."""
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
        """Begin anew with this queue, as somebody else."""
        self._ids[queue] = self._new_id()
        self._next[queue] = 0

    def _new_id(self) -> int:
        return self._random.randrange(1, PRODUCER_ID_END)


class _Places:
    """Of the batches under way whose numbers one queue knows."""

    __slots__ = ("next_place", "of_batch")

    def __init__(self) -> None:
        self.of_batch: dict[Batch, int] = {}
        """The oldest first: the how many-th each is."""
        self.next_place = 0


class QueueTurns:
    """Which batches are under way."""

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
        """It was certainly not stored: it claims again, but those after it on a chosen queue go on
        waiting for it."""
        if batch.has_turn:
            batch.has_turn = False
            of_batch = self._places[batch.numbered_in].of_batch
            del of_batch[batch]
            if not of_batch:
                del self._places[batch.numbered_in]

    def pass_on(self, batch: Batch, rest: Batch) -> None:
        """The batch has its outcome, and what was left of it goes next."""
        if self._pinned.get(batch.lane) is batch:
            self._pinned[batch.lane] = rest
        self.stand_back(batch)

    def leave(self, batch: Batch) -> None:
        """It has its outcome, or goes to another queue."""
        self.stand_back(batch)
        if self._pinned.get(batch.lane) is batch:
            del self._pinned[batch.lane]
