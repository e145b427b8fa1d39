"""What each group will consume next, and who may say so.

Owns: the rules of committing (lease, range) over the store's offset table. Sync, on the loop.
Invariants: an offset moves only by the present holder of the queue's lease, or without a lease
while nobody holds one, or by an operator's reset; so a member that lost its queue moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from aerobee.broker.egress import lease_expired
from aerobee.broker.group_coordinator import GroupCoordinator
from aerobee.broker.guard import Guard
from aerobee.broker.queue_leases import QueueKey
from aerobee.broker.store.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument, LeaseHeld


class ConsumerOffsets:
    """Committed offsets by group, topic and queue id."""

    def __init__(
        self,
        table: ConsumerOffsetTable,
        coordinator: GroupCoordinator,
        guard: Guard,
        clock: Clock,
        *,
        queue_max: Callable[[str, int], int],
    ) -> None:
        """`queue_max`: a queue's maximum offset, which the next message will get."""
        self._table = table
        self._coordinator = coordinator
        self._guard = guard
        self._clock = clock
        self._queue_max = queue_max

    def commit(self, key: QueueKey, offset: int, lease_epoch: int) -> bool:
        """Set the next offset to consume; returns whether it is the group's first on this queue.

        The first one must be on disk before it is acknowledged: forgotten, it would send the next
        member to where new groups start, which may be behind messages that nobody has seen.

        Raises:
            LeaseExpired: `lease_epoch` is not the present lease.
            LeaseHeld: no lease was shown (0), but a member holds one.
            TopicNotFound, QueueNotFound, InvalidArgument: no such queue, or an offset that it
                cannot have.
        """
        self._check(key, offset)
        self._coordinator.expire(self._clock.monotonic_s())
        if lease_epoch != 0:
            if not self._coordinator.is_current(key, lease_epoch):
                raise lease_expired(key, lease_epoch)
        elif (lease := self._coordinator.leases.holder(key)) is not None:
            raise LeaseHeld(
                f"{lease.client_id!r} holds queue {key.queue_id} of topic {key.topic} for group "
                f"{key.group}; only it may commit there"
            )
        is_first = self._table.query(*key) is None
        self._table.commit(*key, offset)
        return is_first

    def reset(self, key: QueueKey, offset: int) -> None:
        """An operator sets the offset; the holder loses its lease and starts again from there.

        Raises:
            TopicNotFound, QueueNotFound, InvalidArgument: as `commit`.
        """
        self._check(key, offset)
        self._table.commit(*key, offset)
        self._coordinator.revoke(key, "the group's offset on this queue was reset")

    def query(self, key: QueueKey) -> int | None:
        """None if the group never committed on this queue."""
        return self._table.query(*key)

    def of_group(self, group: str) -> list[tuple[QueueKey, int]]:
        """Everything that the group ever committed here, sorted by queue."""
        return sorted(
            (QueueKey(group, topic, queue_id), offset)
            for topic, queues in self._table.of_group(group).items()
            for queue_id, offset in queues.items()
        )

    def groups(self) -> list[str]:
        """Groups that ever committed here, sorted."""
        return self._table.groups()

    def _check(self, key: QueueKey, offset: int) -> None:
        self._guard.check_queue(key.topic, key.queue_id)
        queue_max = self._queue_max(key.topic, key.queue_id)
        if not 0 <= offset <= queue_max:
            raise InvalidArgument(
                f"offset {offset} is out of range: queue {key.queue_id} of topic {key.topic} ends "
                f"at {queue_max}"
            )
