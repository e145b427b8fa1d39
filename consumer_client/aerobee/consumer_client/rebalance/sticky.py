"""Even shares of which a coming or going member moves few. PURE.

No member knows what the others own, so stability cannot come from memory; it comes from a ranking
that does not depend on who else is there. Each pair of queue and member has a fixed weight; pairs
are dealt with from the heaviest on, and a queue goes to the first member that still has room. With
room for everybody's even share this is rendezvous hashing with a bound on the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.rebalance.consistent_hash import queue_text, ring_hash


@dataclass(frozen=True, slots=True)
class Sticky:
    """Shares differ by at most one queue, and mostly stay where they were."""

    @property
    def name(self) -> str:
        return "STICKY"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        share, longer = divmod(len(queues), len(members))
        pairs = sorted(
            ((_weight(queue, member), queue, member) for queue in queues for member in members),
            reverse=True,
        )
        owned: dict[str, list[MessageQueue]] = {member: [] for member in members}
        placed: set[MessageQueue] = set()
        for _, queue, member in pairs:
            # `longer` members may have one queue more than the others.
            room = share + 1 if longer else share
            if queue in placed or len(owned[member]) >= room:
                continue
            owned[member].append(queue)
            placed.add(queue)
            if len(owned[member]) > share:
                longer -= 1
        return sorted(owned[me])


def _weight(queue: MessageQueue, member: str) -> int:
    return ring_hash(f"{queue_text(queue)} {member}")
