"""At which replica a reader should continue, and what a replica may tell it about a queue's bounds.

The rule is Apache RocketMQ's: a reader further behind the log's end than the master keeps in memory
is sent to a slave, so that it does not evict what all others read. The slave must be alive and in
sync, as others may not have what the reader wants. The slave sends it back once it is close enough;
closer than where the master sent it away, or a reader at the border would go back and forth.

Owns: nothing; it checks the role of this replica at the moment of each question.
"""

from __future__ import annotations

from typing import Protocol

from aerobee.broker.replication.roles import Roles

NEAR_SHARE = 0.5


class LogEnds(Protocol):
    """What is needed of the store."""

    @property
    def appended_end(self) -> int: ...

    @property
    def confirmed_end(self) -> int: ...


class ReadPlaces:
    """Positions are log offsets."""

    def __init__(self, roles: Roles, store: LogEnds, *, slave_read_bytes: int) -> None:
        self._roles = roles
        self._store = store
        self._far_bytes = slave_read_bytes
        self._near_bytes = int(self._far_bytes * NEAR_SHARE)

    @property
    def is_slave(self) -> bool:
        return self._roles.term is None

    @property
    def knows_bounds(self) -> bool:
        """Whether an offset after a queue's end is wrong rather than not yet visible here: true on
        a master that has confirmed everything that was in its log when its term began."""
        term = self._roles.term
        return term is not None and self._store.confirmed_end >= term.start

    def suggested(self, queue_id: int, read_end: int | None) -> int | None:
        """The broker id of the replica to continue at; None: here.

        Args:
            read_end: the end of the last record read; None: the reader has everything.
        """
        behind_bytes = 0 if read_end is None else self._store.appended_end - read_end
        if self.is_slave:
            return self._master() if behind_bytes <= self._near_bytes else None
        return self._slave(queue_id) if behind_bytes > self._far_bytes else None

    def _master(self) -> int | None:
        replica_set = self._roles.replica_set
        if replica_set is None or self._roles.master_address() is None:
            return None
        return replica_set.master_id

    def _slave(self, queue_id: int) -> int | None:
        """A slave that is alive and in sync; queues are spread over them."""
        roles = self._roles
        if roles.replica_set is None:
            return None
        usable = [
            name.broker_id
            for name in roles.replica_set.in_sync
            if name.broker_id != roles.own.broker_id and name.broker_id in roles.endpoints
        ]
        return sorted(usable)[queue_id % len(usable)] if usable else None
