"""Contiguous shares of equal size: the default. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue


@dataclass(frozen=True, slots=True)
class Averagely:
    """Shares differ by at most one queue; the first members get the longer ones.

    Ten queues among four members: [0-2] [3-5] [6,7] [8,9].
    """

    @property
    def name(self) -> str:
        return "AVG"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        index = members.index(me)
        share, longer = divmod(len(queues), len(members))
        start = index * share + min(index, longer)
        return list(queues[start : start + share + (index < longer)])
