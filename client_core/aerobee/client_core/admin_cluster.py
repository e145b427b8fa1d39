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
    """None: it sends its heartbeats to another nameserver."""
    is_in_sync: bool
    """Its current log belongs to those from which an election chooses."""
    replication_trouble: str
    """Why a slave does not follow its master; empty if it does."""
    instance: str
    """Identifies the process: different after each start."""
    outside_address: str
    """Where clients outside the cluster's network reach it; empty: at `address`."""
    zone: str
    """Empty: it reports none."""


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
    """The nameserver cannot reach etcd: this is its last known state."""


def cluster_state(found: nameserver_pb2.ClusterDescription) -> ClusterState:
    """From a nameserver's answer."""
    groups = {each.broker_name: each for each in found.groups}
    brokers = []
    for number, each in enumerate(found.brokers):
        heard = found.last_heartbeats[number] if number < len(found.last_heartbeats) else None
        age_ms = found.heartbeat_age_ms[number] if number < len(found.heartbeat_age_ms) else -1
        brokers.append(_broker(each, heard, age_ms, groups.get(each.identity.broker_name)))
    return ClusterState(
        name=found.cluster,
        brokers=tuple(sorted(brokers, key=lambda each: (each.broker_name, each.broker_id))),
        groups=tuple(
            broker_group(each) for each in sorted(found.groups, key=lambda each: each.broker_name)
        ),
        etcd_trouble=found.etcd_trouble,
        is_stale=found.stale,
    )


def _broker(
    found: nameserver_pb2.BrokerEndpoint,
    heard: nameserver_pb2.BrokerHeartbeat | None,
    age_ms: int,
    group: nameserver_pb2.GroupRecord | None,
) -> Broker:
    broker_id = found.identity.broker_id
    # A log that was started anew has another incarnation: that replica lacks messages.
    incarnation = "" if heard is None else heard.incarnation
    in_sync = () if group is None else group.in_sync
    return Broker(
        broker_name=found.identity.broker_name,
        broker_id=broker_id,
        address=found.address,
        is_master=found.role == common_pb2.MASTER,
        is_writable=found.writable,
        condition=_CONDITIONS.get(found.condition, "unknown"),
        epoch=found.epoch,
        heartbeat_age_ms=None if age_ms < 0 else age_ms,
        is_in_sync=any(
            name.broker_id == broker_id and incarnation in ("", name.incarnation)
            for name in in_sync
        ),
        replication_trouble="" if heard is None else heard.replication_trouble,
        instance=found.identity.instance,
        outside_address=found.outside_address,
        zone=found.zone,
    )


def broker_group(found: nameserver_pb2.GroupRecord) -> BrokerGroup:
    """From a nameserver's record."""
    return BrokerGroup(
        broker_name=found.broker_name,
        state=state_of(found),
        epoch=found.epoch,
        master_id=None if found.master_id < 0 else found.master_id,
        in_sync=tuple(sorted(each.broker_id for each in found.in_sync)),
        replicas=tuple(sorted(found.replicas)),
        unclean_epochs=tuple(found.unclean_epochs),
    )
