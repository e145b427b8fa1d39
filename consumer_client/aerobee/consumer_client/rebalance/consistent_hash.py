"""A ring of hashes: a member that comes or goes moves few queues. PURE.

Hash and key texts are Apache RocketMQ's, so that members of both clients would agree.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.errors import InvalidArgument


def ring_hash(text: str) -> int:
    """The first four bytes of the MD5, as an unsigned number."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def queue_text(queue: MessageQueue) -> str:
    """What of a queue is hashed."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Each member stands on the ring `virtual_nodes` times; a queue goes to the next node.

    Shares are uneven; use `Sticky` to have them both stable and even.
    """

    virtual_nodes: int = 10

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise InvalidArgument(f"virtual_nodes must be at least 1, not {self.virtual_nodes}")

    @property
    def name(self) -> str:
        return "CONSISTENT_HASH"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        # Two nodes with one hash: the later member stands there, on every client.
        ring = {
            ring_hash(f"{member}-{node}"): member
            for member in members
            for node in range(self.virtual_nodes)
        }
        hashes = sorted(ring)
        return [queue for queue in queues if _owner(ring, hashes, queue) == me]


def _owner(ring: dict[int, str], hashes: list[int], queue: MessageQueue) -> str:
    position = bisect_left(hashes, ring_hash(queue_text(queue)))
    return ring[hashes[position % len(hashes)]]
