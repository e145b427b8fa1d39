"""Brokers and broker groups, as `AdminClient.cluster` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.client_core.broker_groups import BrokerGroupState, state_of
from aerobee.v1 import common_pb2, nameserver_pb2

_CONDITIONS: Final[Mapping[int, str]] = {
    nameserver_pb2.BROKER_WELL: "well",
    nameserver_pb2.BROKER_SLOW: "slow",
    nameserver_pb2.BROKER_DISK_HUNG: "disk hung",
}


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is registered."""

    broker_name: str
    """Of its broker group."""
    broker_id: int
    address: str
    is_master: bool
    is_writable: bool
    condition: str
    """`well`, `slow` or `disk hung`."""
    epoch: int
    heartbeat_age_ms: int | None
    """None: another nameserver hears its heartbeats."""


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """A master and its replicas."""

    broker_name: str
    state: BrokerGroupState
    epoch: int
    master_id: int | None
    """None: it has no master now."""
    in_sync: tuple[int, ...]
    replicas: tuple[int, ...]
    """Every replica that ever registered and was not removed."""
    unclean_epochs: tuple[int, ...]
    """Epochs that began without a replica in sync: messages may have been lost before each."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster, as one nameserver sees it."""

    name: str
    brokers: tuple[Broker, ...]
    groups: tuple[BrokerGroup, ...]
    etcd_trouble: str
    """What is wrong with etcd; empty: nothing."""
    is_stale: bool
    """The nameserver cannot reach etcd: this is what it knew last."""


def cluster_state(found: nameserver_pb2.ClusterDescription) -> ClusterState:
    """Of a nameserver's answer."""
    ages = [*found.heartbeat_age_ms, *[-1] * len(found.brokers)]
    brokers = [_broker(each, age) for each, age in zip(found.brokers, ages, strict=False)]
    return ClusterState(
        name=found.cluster,
        brokers=tuple(sorted(brokers, key=lambda each: (each.broker_name, each.broker_id))),
        groups=tuple(
            _group(each) for each in sorted(found.groups, key=lambda each: each.broker_name)
        ),
        etcd_trouble=found.etcd_trouble,
        is_stale=found.stale,
    )


def _broker(found: nameserver_pb2.BrokerEndpoint, age_ms: int) -> Broker:
    return Broker(
        broker_name=found.identity.broker_name,
        broker_id=found.identity.broker_id,
        address=found.address,
        is_master=found.role == common_pb2.MASTER,
        is_writable=found.writable,
        condition=_CONDITIONS.get(found.condition, "unknown"),
        epoch=found.epoch,
        heartbeat_age_ms=None if age_ms < 0 else age_ms,
    )


def _group(found: nameserver_pb2.GroupRecord) -> BrokerGroup:
    return BrokerGroup(
        broker_name=found.broker_name,
        state=state_of(found),
        epoch=found.epoch,
        master_id=None if found.master_id < 0 else found.master_id,
        in_sync=tuple(sorted(each.broker_id for each in found.in_sync)),
        replicas=tuple(sorted(found.replicas)),
        unclean_epochs=tuple(found.unclean_epochs),
    )
