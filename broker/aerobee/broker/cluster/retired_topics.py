"""Topics that are retired from this broker group: it takes no new messages of them.

    heard by the master   clients' messages are taken for a grace period, for producers that do not
                          know it yet: a key's message in flight belongs here
    afterwards            they are refused
    sealed                whatever was taken is visible to consumers: nothing a client sent can
                          follow, so a group that has read the queue may begin with its successor

What the broker itself moves still comes: delayed messages, ends of transactions.

Owns: the grace periods. A master that was elected during one refuses at once; otherwise a queue
that was reported as sealed could grow again. A retired topic has no write queues in the table.
"""

from __future__ import annotations

from typing import Protocol

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotWritable
from aerobee.store.engine.tables.config_tables import TopicTable


class Log(Protocol):
    """Positions in the store's log."""

    @property
    def appended_end(self) -> int: ...

    @property
    def dispatched_end(self) -> int: ...


class RetiredTopics:
    """On the loop."""

    def __init__(
        self, topics: TopicTable, log: Log, clock: Clock, *, broker_name: str, grace_ms: int
    ) -> None:
        self._topics = topics
        self._log = log
        self._clock = clock
        self._broker_name = broker_name
        self._grace_s = grace_ms / 1_000
        self._refuses_s: dict[str, float] = {}
        self._last_taken: dict[str, int] = {}
        """Where the log ended when a retired topic was first found to refuse."""

    def hear(self, topic: str, *, is_retired: bool, is_master: bool) -> None:
        """Called before the topic's configuration is replaced by the announced one."""
        known = self._topics.get(topic)
        if not is_retired or known is None:
            self._refuses_s.pop(topic, None)
            self._last_taken.pop(topic, None)
        elif known.write_queue_count and is_master:
            self._refuses_s[topic] = self._clock.monotonic_s() + self._grace_s

    def is_retired(self, topic: str) -> bool:
        """Whether it has queues here, of which none takes new messages."""
        known = self._topics.get(topic)
        return known is not None and known.is_retired

    def refuses(self, topic: str) -> bool:
        """Whether it is retired and the grace period over."""
        return self.is_retired(topic) and not self.refuses_in_ms(topic)

    def refuses_in_ms(self, topic: str) -> int:
        """For a retired topic: the time until new messages are refused."""
        left_s = self._refuses_s.get(topic, 0.0) - self._clock.monotonic_s()
        return max(0, round(left_s * 1_000))

    def is_sealed(self, topic: str) -> bool:
        """Whether consumers can see everything that clients will ever have sent to it here."""
        if not self.refuses(topic):
            return False
        end = self._last_taken.setdefault(topic, self._log.appended_end)
        return self._log.dispatched_end >= end

    def check(self, topic: str) -> None:
        """Raises NotWritable: new messages belong elsewhere."""
        if self.refuses(topic):
            raise NotWritable(
                f"topic {topic} is retired from broker group {self._broker_name} and takes no new "
                "messages there: send to a queue of another one"
            )
