"""Chooses the queue of a message. Clients' proposals are ignored: each language hashes differently.

All messages of a group go to one queue of the whole cluster, whoever sent them and to whichever
broker, so that their order holds. The hash is Apache's, so that a group stays in its queue when a
store moves between the two: Java's hash of the text, then Guava's jump hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from aerobee.store.format.java_hash import java_string_hash

_Queue = TypeVar("_Queue")
_MASK_64: Final = (1 << 64) - 1


def jump_hash(value: int, buckets: int) -> int:
    """Guava's `Hashing.consistentHash`: adding a bucket moves only what goes into it.

    Takes time logarithmic in `buckets`, which is at least 1.
    """
    assert buckets >= 1, buckets
    state = value & _MASK_64
    bucket = 0
    while True:
        state = (2_862_933_555_777_941_757 * state + 1) & _MASK_64
        # The upper 31 bits plus 1: above 0 and at most 2^31, so the next one is above `bucket`.
        following = ((bucket + 1) << 31) // ((state >> 33) + 1)
        if following >= buckets:
            return bucket
        bucket = following


def queue_of_group(message_group: str, queues: Sequence[_Queue]) -> _Queue:
    """The one queue for a message group.

    `queues` are all of the topic's, in order, whether their brokers are alive or not: with only
    those that accept writes now, a failover would break the order of each group that moves.
    """
    return queues[jump_hash(java_string_hash(message_group), len(queues))]


def queue_of_priority(priority: int, queues: int) -> int:
    """The queue id for a priority of at least 0, on a broker with `queues` queues of the topic; the
    highest id is the most urgent."""
    return min(priority, queues - 1)
