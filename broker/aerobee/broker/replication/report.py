"""What replication reports: why this replica does not follow, and each replica's progress."""

from __future__ import annotations

from aerobee.broker.replication.follower import Follower
from aerobee.broker.replication.replica_folder import OpenedReplica
from aerobee.broker.replication.replica_set import NO_MASTER
from aerobee.broker.replication.role_manager import RoleManager
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.statistics import (
    ReplicationStatistics,
    SlaveStatistics,
    replicas_of,
)


class ReplicationReport:
    """Queries the parts when it is asked."""

    def __init__(
        self, replica: OpenedReplica, roles: Roles, manager: RoleManager, follower: Follower
    ) -> None:
        self._replica = replica
        self._roles = roles
        self._manager = manager
        self._follower = follower

    @property
    def trouble(self) -> str:
        """Why this replica does not follow its master; empty while it does, or leads."""
        if self._roles.term is not None:
            return ""
        trouble = self._follower.trouble or self._manager.trouble
        found = self._replica.trouble if self._follower.joined_end is None else ""
        return "; ".join(text for text in (found, trouble) if text)

    def statistics(self, log_end: int, now_s: float) -> ReplicationStatistics:
        """`log_end` is the end of our own log."""
        roles = self._roles
        mode = roles.config.mode.value
        term = roles.term
        if term is not None:
            replicas = replicas_of(term, roles.known_replicas, log_end, now_s)
            return ReplicationStatistics(mode, replicas)
        group, follower = roles.mastership.replica_set, self._follower
        slave = SlaveStatistics(
            master_id=NO_MASTER if group is None else group.master_id,
            is_connected=follower.is_connected,
            master_end=follower.master_end,
            confirmed_end=roles.confirmed_end,
            trouble=self.trouble,
        )
        return ReplicationStatistics(mode, slave=slave)
