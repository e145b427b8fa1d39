"""What the streams to slaves need of the master's role."""

from __future__ import annotations

from typing import Protocol

from aerobee.broker.replication.joining import LogState
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.replica_set import ReplicaSetView


class MasterSide(Protocol):
    """`Roles`, as the streams see it."""

    @property
    def term(self) -> MasterTerm | None: ...

    @property
    def epoch(self) -> int: ...

    @property
    def replica_set(self) -> ReplicaSetView | None: ...

    def log_state(self) -> LogState: ...

    def is_registered(self, name: ReplicaName, instance: str) -> bool:
        """Whether this process is the registered one of its replica, as far as was heard."""
        ...

    def check_joining(self, name: ReplicaName, instance: str, epoch: int) -> None:
        """May this process of a replica copy our log under `epoch`? Raises NotMaster, StaleEpoch,
        DuplicateBroker."""
        ...

    def replica_joined(self, name: ReplicaName, end: int) -> None: ...

    def replica_acknowledged(self, name: ReplicaName, end: int) -> None: ...

    def replica_left(self, name: ReplicaName) -> None: ...

    def heard_epoch(self, epoch: int) -> None: ...
