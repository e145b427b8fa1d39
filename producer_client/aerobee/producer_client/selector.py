"""Which queue a message goes to, and which slow or failing brokers are avoided. Pure.

Without a key: in turn, skipping slow or failed brokers, one batch each. With a sharding key: by the
key's Java hash over all queues of the topic, alive or not, so that a broker's absence never moves a
key; only a change of the queue count does.

How long a broker is avoided is Apache RocketMQ's table (values since 5.1.4): the latency of each
send determines how long the broker gets no messages that others could take. A failure counts as 10
s.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.cluster_view.route import MessageQueue
from aerobee.store.format.java_hash import index_key_hash

AVOIDANCE_MS: tuple[tuple[int, int], ...] = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
"""(latency from, avoided for), slowest first; below the last a broker is not avoided."""

FAILURE_LATENCY_MS = 10_000


class LatencyTable:
    """Until when each broker is avoided.

    >>> table = LatencyTable()
    >>> table.sent("a", latency_ms=600, now_s=100.0)
    >>> table.is_available("a", 101.9), table.is_available("a", 102.0)
    (False, True)
    """

    def __init__(self) -> None:
        self._avoided_until_s: dict[str, float] = {}

    def sent(self, broker_name: str, *, latency_ms: float, now_s: float) -> None:
        """A broker acknowledged after `latency_ms`."""
        if latency_ms < AVOIDANCE_MS[-1][0]:
            if self._avoided_until_s:
                self._avoided_until_s.pop(broker_name, None)
            return
        for latency_from_ms, avoided_ms in AVOIDANCE_MS:
            if latency_ms >= latency_from_ms:
                self._avoided_until_s[broker_name] = now_s + avoided_ms / 1_000
                return

    def failed(self, broker_name: str, *, now_s: float) -> None:
        """A broker refused, or could not be reached."""
        self.sent(broker_name, latency_ms=FAILURE_LATENCY_MS, now_s=now_s)

    def is_available(self, broker_name: str, now_s: float) -> bool:
        """Whether there is no reason to avoid the broker now."""
        if not self._avoided_until_s:
            return True
        return self._avoided_until_s.get(broker_name, 0.0) <= now_s


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
    """Takes the queues of each topic in turn; starts anywhere, so that many producers do not move
    in step. Each topic has its own turn: with a shared one, two topics used alternately would each
    reach only every other queue."""

    def __init__(self, latency: LatencyTable, *, start: int = 0) -> None:
        self._latency = latency
        self._start = start
        self._next: dict[str, int] = {}

    def choose(
        self, queues: Sequence[MessageQueue], *, now_s: float, avoid: str | None = None
    ) -> MessageQueue:
        """The next queue whose broker is fine and not `avoid`.

        If there is none: the next one of another broker than `avoid`, else simply the next.
        `queues` is not empty.
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
