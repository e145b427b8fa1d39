"""What a heartbeat wants registered, compared with what etcd has."""

from __future__ import annotations

from dataclasses import replace

from aerobee.nameserver.log_reach import check_whole
from aerobee.nameserver.stored import BrokerKey, BrokerRecord, DurableLogs
from aerobee.runtime.errors import ReplicaIncomplete
from tests.simulation.cluster.etcd_server import Content
from tests.simulation.cluster.heartbeats import Heartbeat


def is_whole(content: Content, heartbeat: Heartbeat) -> bool:
    durable = content.durable.get(heartbeat.broker_id, DurableLogs())
    record = record_of(BrokerKey("g", heartbeat.broker_id), heartbeat, 0)
    try:
        check_whole(durable, record, heartbeat.opened_end)
    except ReplicaIncomplete:
        return False
    return True


def record_of(key: BrokerKey, heartbeat: Heartbeat, lease_id: int) -> BrokerRecord:
    return BrokerRecord(
        key,
        heartbeat.instance,
        "address",
        incarnation=heartbeat.incarnation,
        predecessor=heartbeat.predecessor,
        log_epoch=heartbeat.log_epoch,
        log_end=heartbeat.log_end,
        resigned_epoch=heartbeat.resigned_epoch,
        successor_id=heartbeat.successor_id,
        condition=heartbeat.condition,
        lease_id=lease_id,
    )


def has_changed(registered: BrokerRecord | None, heartbeat: Heartbeat) -> bool:
    """Compares a registration, except the log positions at the time it was made."""
    assert registered is not None
    return replace(registered, log_epoch=0, log_end=0, is_incomplete=False) != replace(
        record_of(registered.key, heartbeat, registered.lease_id),
        revision=registered.revision,
        log_epoch=0,
        log_end=0,
    )
