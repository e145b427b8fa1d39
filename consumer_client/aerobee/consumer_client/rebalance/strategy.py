"""What a rebalance strategy is: queues and members in, mine out. PURE.

Every member computes its own share from the same sorted lists, so that the shares fit together
without anyone handing them out. Where views differ for a moment the queue leases keep a queue from
having two owners; a strategy only has to give each queue exactly one owner among equal views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aerobee.cluster_view.route import MessageQueue


class RebalanceStrategy(Protocol):
    """Deterministic, and equal on all members of a group."""

    @property
    def name(self) -> str:
        """Apache RocketMQ's name of the strategy, where it has one."""
        ...

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        """The queues of member `me`.

        Args:
            queues: one topic's queues, ascending, each once.
            members: client ids of the group's members, ascending, each once.
            me: a client id; one that is not among the members owns nothing.
        """
        ...
