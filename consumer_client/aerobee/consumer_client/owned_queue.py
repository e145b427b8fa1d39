"""A queue that this consumer reads: the interface for fetching, committing and releasing.

The push consumer hands its messages to a listener, the pull consumer keeps them for `poll`; both
implement this interface, so that leases, fetching and offsets exist once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.filters import Expression


class Trust(Protocol):
    """Until when a queue may be used, and what to do when its broker objects."""

    @property
    def deadline_s(self) -> float:
        """On the monotonic clock; infinite without a lease."""
        ...

    @property
    def is_confirmed(self) -> bool:
        """Whether the queue's master knows the lease: only then does it serve pulls and commits
        under it. Always true without a lease."""
        ...

    def check_deadline(self) -> bool:
        """False, after everything held under it was reported lost, once the deadline has passed."""
        ...

    def on_refused(self, queue: MessageQueue, lease_epoch: int, reason: str) -> None:
        """The queue's broker refused this epoch: find out whether the queue is lost, and report it
        then."""
        ...


class Unleased:
    """For queues that need no lease: broadcasting, or assigned by hand."""

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
    """With ordered handling, how often the message at `tried_offset` was handled without being
    finished, according to its broker."""


class OwnedQueue(Protocol):
    """One assignment in use. A queue that is taken again is a new object."""

    @property
    def assignment(self) -> Assignment: ...

    @property
    def is_dropped(self) -> bool: ...

    @property
    def fetch_offset(self) -> int:
        """Where fetching continues."""
        ...

    @property
    def safe_offset(self) -> int:
        """Everything before it is finished and may be committed."""
        ...

    def on_subscribed(self) -> None:
        """A new subscription at the broker begins, at `fetch_offset`, without credit."""
        ...

    def take_credit(self) -> int:
        """Bytes to grant the broker now; 0 if there is no room."""
        ...

    def on_records(self, records: bytes, count: int, next_offset: int) -> None:
        """Messages arrived; `count` may be 0 if a filter let none through up to `next_offset`."""
        ...

    def drop(self) -> None:
        """Stop at once: nothing more is delivered, running listeners are cancelled."""
        ...

    async def drain(self, timeout_s: float, report_s: float = 0.0) -> None:
        """Deliver nothing more and wait for running listeners; cancel them after `timeout_s`. In
        order, what failed may take `report_s` to be counted by the broker."""
        ...
