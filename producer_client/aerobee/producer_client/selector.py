"""Which queue a message goes to. Pure.

Without a key: in turn, around brokers that are slow or failed, one batch each. With a sharding
key: by the key's Java hash over all queues of the topic, alive or not, so that a broker's absence
never moves a key; only a change of the queue count does.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.latency import LatencyTable
from aerobee.store_format.java_hash import index_key_hash


def interleaved(queues: Sequence[MessageQueue]) -> tuple[MessageQueue, ...]:
    """The first queue of each broker, then the second of each, and so on.

    >>> [str(q) for q in interleaved([MessageQueue("t", "a", 0), MessageQueue("t", "a", 1),
    ...                               MessageQueue("t", "b", 0)])]
    ['t@a:0', 't@b:0', 't@a:1']
    """
    return tuple(sorted(queues, key=lambda queue: (queue.queue_id, queue.broker_name)))


def by_sharding_key(queues: Sequence[MessageQueue], sharding_key: str) -> MessageQueue:
    """The queue of a key: the same for equal keys and equal lists.

    >>> queues = [MessageQueue("t", "a", n) for n in range(4)]
    >>> by_sharding_key(queues, "order-7") == by_sharding_key(queues, "order-7")
    True
    """
    return queues[index_key_hash(sharding_key) % len(queues)]


class RoundRobin:
    """Takes the queues of each topic in turn; starts anywhere, so that many producers do not march
    in step. Topics have turns of their own: with one for all, two topics that are sent to
    alternately would each meet every other queue only."""

    def __init__(self, latency: LatencyTable, *, start: int = 0) -> None:
        self._latency = latency
        self._start = start
        self._next: dict[str, int] = {}

    def choose(
        self, queues: Sequence[MessageQueue], *, now_s: float, avoid: str | None = None
    ) -> MessageQueue:
        """The next queue whose broker is fine and not `avoid`.

        If there is none: the next of another broker than `avoid`, else simply the next. `queues`
        is not empty.
        """
        count, topic = len(queues), queues[0].topic
        start = self._next.get(topic, self._start)
        self._next[topic] = start + 1
        for step in range(count):
            queue = queues[(start + step) % count]
            if queue.broker_name != avoid and self._latency.is_available(queue.broker_name, now_s):
                self._next[topic] = start + step + 1
                return queue
        for step in range(count):
            queue = queues[(start + step) % count]
            if queue.broker_name != avoid:
                return queue
        return queues[start % count]
