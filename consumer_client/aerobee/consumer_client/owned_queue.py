"""A queue that this consumer reads: what fetching, committing and releasing need of it.

The push consumer hands its messages to a listener, the pull consumer keeps them for `poll`; both
do it behind this interface, so that leases, fetching and offsets exist once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.filters import Expression


class Trust(Protocol):
    """Until when a queue may be worked on, and what becomes of it when its broker objects."""

    @property
    def deadline_s(self) -> float:
        """On the monotonic clock; infinite without a lease."""
        ...

    @property
    def is_confirmed(self) -> bool:
        """Whether the queue's master knows the lease: only then it serves pulls and commits under
        it. Without a lease always."""
        ...

    def check_deadline(self) -> bool:
        """False, after everything held under it was reported lost, once the deadline is past."""
        ...

    def on_refused(self, queue: MessageQueue, lease_epoch: int, reason: str) -> None:
        """The queue's broker refused this epoch: find out whether the queue is lost, and report
        it then."""
        ...


class Unleased:
    """The trust of queues that need no lease: broadcasting, assigned by hand."""

    __slots__ = ()

    @property
    def deadline_s(self) -> float:
        return inf

    @property
    def is_confirmed(self) -> bool:
        return True

    def check_deadline(self) -> bool:
        return True

    def on_refused(self, queue: MessageQueue, lease_epoch: int, reason: str) -> None:
        raise AssertionError(f"{queue} has no lease that could be refused: {reason}")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A queue given to this consumer, and the terms."""

    queue: MessageQueue
    expression: Expression
    lease_epoch: int
    """0 without a lease."""
    trust: Trust
    tried_offset: int = 0
    attempts: int = 0
    """How often the message at `tried_offset` was handled in order, and not finished, as its broker
    knows."""


class OwnedQueue(Protocol):
    """One assignment at work. A queue that is taken again is a new object."""

    @property
    def assignment(self) -> Assignment: ...

    @property
    def is_dropped(self) -> bool: ...

    @property
    def fetch_offset(self) -> int:
        """Where fetching goes on."""
        ...

    @property
    def safe_offset(self) -> int:
        """Everything below is finished and may be committed."""
        ...

    def on_subscribed(self) -> None:
        """A new subscription at the broker begins, at `fetch_offset`, without credit."""
        ...

    def take_credit(self) -> int:
        """Bytes to grant the broker now; 0 if there is no room."""
        ...

    def on_records(self, records: bytes, count: int, next_offset: int) -> None:
        """Messages came; `count` may be 0 when a filter let none through up to `next_offset`."""
        ...

    def drop(self) -> None:
        """Stop at once: nothing more is delivered, running listeners are cancelled."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Deliver nothing more and wait for running listeners; cancel them after `timeout_s`."""
        ...
