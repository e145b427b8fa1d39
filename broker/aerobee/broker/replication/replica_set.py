"""PURE: what a replica knows of its set: the registry's record, and where its replicas are."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.replication.master_term import InSyncSet
from aerobee.domain.broker_condition import BrokerCondition

NO_MASTER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSetView:
    """The record of a replica set as one of its replicas sees it."""

    epoch: int
    master_id: int
    """NO_MASTER: there is none."""
    master_instance: str
    in_sync: InSyncSet
    replicas: frozenset[int]
    """Every replica that ever registered and was not removed."""
    revision: int
    is_closed: bool = False
    """It takes no new messages and is read to its end."""
    unclean_epochs: tuple[int, ...] = ()
    """Epochs that began without an in-sync replica: messages may have been lost before each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """A live replica: its process, and where it can be reached."""

    broker_id: int
    instance: str = ""
    address: str = ""
    is_master: bool = False
    condition: BrokerCondition = BrokerCondition.WELL
