"""The nameserver's records as the plain values that replication uses."""

from __future__ import annotations

from typing import Final

from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.replica_set import ReplicaPlace, ReplicaSetView
from aerobee.domain.broker_condition import BrokerCondition
from aerobee.v1 import common_pb2, nameserver_pb2


def view_of(record: nameserver_pb2.GroupRecord) -> ReplicaSetView:
    """The record of a set of replicas."""
    return ReplicaSetView(
        epoch=record.epoch,
        master_id=record.master_id,
        master_instance=record.master_instance,
        in_sync=frozenset(ReplicaName(name.broker_id, name.incarnation) for name in record.in_sync),
        replicas=frozenset(record.replicas),
        revision=record.revision,
        is_closed=record.state != nameserver_pb2.BROKER_GROUP_OPEN,
        unclean_epochs=tuple(record.unclean_epochs),
    )


def place_of(endpoint: nameserver_pb2.BrokerEndpoint) -> ReplicaPlace:
    """Where a live replica is."""
    return ReplicaPlace(
        broker_id=endpoint.identity.broker_id,
        instance=endpoint.identity.instance,
        address=endpoint.address,
        is_master=endpoint.role == common_pb2.MASTER,
        condition=condition_of(endpoint.condition),
    )


def condition_of(value: nameserver_pb2.BrokerCondition) -> BrokerCondition:
    """Unknown enum values from a newer version count as well."""
    return _CONDITIONS.get(value, BrokerCondition.WELL)


def condition_value(condition: BrokerCondition) -> nameserver_pb2.BrokerCondition:
    return next(value for value, each in _CONDITIONS.items() if each is condition)


_CONDITIONS: Final = {
    nameserver_pb2.BROKER_WELL: BrokerCondition.WELL,
    nameserver_pb2.BROKER_SLOW: BrokerCondition.SLOW,
    nameserver_pb2.BROKER_DISK_HUNG: BrokerCondition.DISK_HUNG,
}
