"""What a consumer needs of a place that keeps committed offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.errors import MqError


class Commit(NamedTuple):
    """Everything below `offset` of the queue is done."""

    queue: MessageQueue
    offset: int
    lease_epoch: int
    """0 without a lease."""


class OffsetStore(Protocol):
    """Committed offsets of one group."""

    async def read(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """The committed offsets; queues without one are left out.

        Raises:
            MqError: the store cannot be read now.
        """
        ...

    async def begin(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, MqError]:
        """Store offsets where none is stored yet; whoever says so first decides. Returns the queues
        that were refused or not reached, and why."""
        ...

    async def commit(self, commits: Sequence[Commit]) -> Mapping[MessageQueue, MqError]:
        """Store offsets; returns the queues that were refused or not reached, and why."""
        ...
