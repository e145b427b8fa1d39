"""What a member has to tell its broker, in order, until the stream's writer takes it."""

from __future__ import annotations

import asyncio
from collections import deque

from aerobee.consumer_client.lease_table import QueueKey
from aerobee.v1 import broker_pb2


class SessionOutbox:
    """Events for the broker; `wake` is set whenever one is added."""

    __slots__ = ("_events", "_wake")

    def __init__(self, wake: asyncio.Event) -> None:
        self._events: deque[broker_pb2.MemberEvent] = deque()
        self._wake = wake

    def __len__(self) -> int:
        return len(self._events)

    def acquire(self, key: QueueKey) -> None:
        acquire = broker_pb2.AcquireLease(topic=key.topic, queue_id=key.queue_id)
        self._add(broker_pb2.MemberEvent(acquire=acquire))

    def release(self, key: QueueKey, epoch: int) -> None:
        release = broker_pb2.ReleaseLease(topic=key.topic, queue_id=key.queue_id, epoch=epoch)
        self._add(broker_pb2.MemberEvent(release=release))

    def leave(self) -> None:
        self._add(broker_pb2.MemberEvent(leave=broker_pb2.Leave()))

    def take(self) -> broker_pb2.MemberEvent:
        """The oldest; only if there is one."""
        return self._events.popleft()

    def clear(self) -> None:
        """A new stream begins: what the one before was to be told is void."""
        self._events.clear()

    def _add(self, event: broker_pb2.MemberEvent) -> None:
        self._events.append(event)
        self._wake.set()
