"""Shares that an operator wrote down. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue


@dataclass(frozen=True, slots=True)
class ByConfiguration:
    """This member owns the listed queues that exist, whoever else is in the group.

    Whether the lists of all members fit together is the operator's care: a queue on no list is
    read by nobody, one on two lists by whoever gets its lease first.
    """

    mine: frozenset[MessageQueue]

    @property
    def name(self) -> str:
        return "CONFIG"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        return [queue for queue in queues if queue in self.mine] if me in members else []
