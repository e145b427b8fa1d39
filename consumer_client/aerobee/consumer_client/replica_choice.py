"""From which replica of its broker group a queue is read. PURE.

The master answers, unless it names a slave to a reader that is far behind, or cannot be asked: it
is not there, it has just failed this reader, or it does not know the reader's lease yet. Then a
slave will do, which asks for no lease and shows only what is confirmed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aerobee.cluster_view.route import Endpoint
from aerobee.consumer_client.lease_table import QueueKey


def choose(
    replicas: Sequence[Endpoint],
    key: QueueKey,
    *,
    suggested: int | None,
    may_ask_master: bool,
    avoided: Collection[int],
) -> Endpoint | None:
    """The replica to read the queue from; None: none can be asked now.

    Args:
        replicas: the live ones.
        suggested: the broker id that the queue's reader was sent to, if it was.
        avoided: broker ids that failed a short while ago.
    """
    usable = [
        replica
        for replica in replicas
        if replica.broker_id not in avoided and (may_ask_master or not replica.is_master)
    ]
    for replica in usable:
        if replica.broker_id == suggested:
            return replica
    for replica in usable:
        if replica.is_master:
            return replica
    # The queues of one group spread over its slaves.
    return usable[key.queue_id % len(usable)] if usable else None


def should_move(
    replicas: Sequence[Endpoint], place: int, chosen: Endpoint | None, *, suggested: int | None
) -> bool:
    """Whether a queue that is read at `place` without trouble goes on at `chosen` instead: it was
    sent there, its place is gone, or the master can be asked again."""
    if chosen is None or chosen.broker_id == place:
        return False
    is_alive = any(replica.broker_id == place for replica in replicas)
    return not is_alive or chosen.is_master or chosen.broker_id == suggested
