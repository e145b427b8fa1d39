"""The producer's identity and its numbers: by these brokers know a batch that comes again. Pure.

Each queue has its own numbers, from 0 on without a gap, and an identity that is new when they are
used up or when the broker cannot place them any more. Batches that have numbers keep them.
"""

from __future__ import annotations

import random

from aerobee.cluster_view.route import MessageQueue
from aerobee.store_format.producer_number import PRODUCER_ID_END, SEQUENCE_END


class Sequences:
    """See the module.

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
