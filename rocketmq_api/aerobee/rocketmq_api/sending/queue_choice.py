"""To which queue a message goes. What clients propose is ignored: each language hashes differently.

All messages of a group go to one queue of the whole cluster, whoever sent them and to whichever
broker, so that their order holds. The hash is Apache's, so that a group stays in its queue when a
store changes owners: Java's hash of the text, then the jump hash of Guava.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aerobee.cluster_view.route import MessageQueue
from aerobee.store_format.java_hash import java_string_hash

_MASK_64: Final = (1 << 64) - 1


def jump_hash(value: int, buckets: int) -> int:
    """Guava's `Hashing.consistentHash`: one more bucket moves only what goes into it.

    Costs about the logarithm of `buckets`, which is at least 1.
    """
    assert buckets >= 1, buckets
    state = value & _MASK_64
    bucket = 0
    while True:
        state = (2_862_933_555_777_941_757 * state + 1) & _MASK_64
        # The upper 31 bits and 1: above 0 and at most 2^31, so the next one is above `bucket`.
        following = ((bucket + 1) << 31) // ((state >> 33) + 1)
        if following >= buckets:
            return bucket
        bucket = following


def queue_of_group(message_group: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The one queue for a message group.

    `queues` are all of the topic, in their order, whether their brokers are alive or not: were they
    only those that take writes now, a fail-over would break the order of each group that moves.
    """
    return queues[jump_hash(java_string_hash(message_group), len(queues))]


def queue_of_priority(priority: int, queues: int) -> int:
    """The queue id for a priority of 0 or more, on a broker with `queues` queues of the topic; the
    highest id is the most urgent."""
    return min(priority, queues - 1)
