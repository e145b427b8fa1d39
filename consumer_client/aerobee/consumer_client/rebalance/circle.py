"""Queues dealt out like cards. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Every c-th queue for each of c members: neighbours (often of one broker) are spread."""

    @property
    def name(self) -> str:
        return "AVG_BY_CIRCLE"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        return list(queues[members.index(me) :: len(members)])
