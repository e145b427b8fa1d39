"""What a consumer reports about itself: frozen values, made on demand."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """One owned queue."""

    queue: MessageQueue
    lease_epoch: int
    """0 without a lease."""
    position: int
    """The next offset to hand out (pull) or to fetch (push)."""
    safe_offset: int
    """Everything before it is finished."""
    max_offset: int
    """The queue's end, as last reported by its broker."""
    lag: int
    """Messages that are stored but not finished."""
    cached_messages: int
    cached_bytes: int
    reads_from: int | None
    """Broker id of the replica from which it is read; None: none at this moment."""


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """The whole consumer."""

    client_id: str
    members: tuple[str, ...]
    """Client ids of the group's members, this one included; empty when queues are not shared."""
    queues: tuple[QueueStatistics, ...]
    """Owned queues, ascending."""
    handled: int
    """Messages that the listener finished, or that `poll` returned."""
    failed_calls: int
    """Listener calls that failed or asked for a retry."""
    retrying: int
    """Listener calls waiting to be repeated."""
    skipped: int
    """Messages given up by `on_exhausted`."""
    duplicates: int
    """Messages that were fetched again while this member still had them; not delivered twice."""
    queues_lost: int
    """Queues that were taken away before they could be given back in order."""
    sent_back: int = 0
    """Failed messages that the broker will redeliver, or keeps as dead letters."""
    retry_queues: tuple[QueueStatistics, ...] = ()
    """Owned queues in which the group's failed messages are redelivered, ascending."""

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues)

    @property
    def cached_bytes(self) -> int:
        return sum(queue.cached_bytes for queue in self.queues)


@dataclass(frozen=True, slots=True)
class SimpleConsumerStatistics:
    """What a `SimpleConsumer` has done since it was made, in messages."""

    client_id: str
    received: int
    """One that came again counts again."""
    acknowledged: int
    given_back: int
    """They failed, and come again."""
    rejected: int
    """They are dead letters."""
    refused: int
    """Answers that came too late, or that no broker took."""
    running_calls: int
    """Of the listener, at this moment."""
