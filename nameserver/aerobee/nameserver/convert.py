"""Protobuf <-> the nameserver's own values; the only place that knows both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aerobee.access.table import Records
from aerobee.domain.broker_condition import BrokerCondition
from aerobee.domain.names import is_retry_topic
from aerobee.nameserver import election
from aerobee.nameserver.route_table import RouteTable, TopicChanges
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    InSyncReplica,
    QueueRun,
    ReplicaSet,
    SetState,
    Topic,
)
from aerobee.rpc.own_protocol import code_of
from aerobee.runtime.errors import AerobeeError, Busy
from aerobee.v1 import common_pb2, nameserver_pb2

_STATES = {
    SetState.OPEN: nameserver_pb2.BROKER_GROUP_OPEN,
    SetState.CLOSED: nameserver_pb2.BROKER_GROUP_CLOSED,
    SetState.REMOVED: nameserver_pb2.BROKER_GROUP_REMOVED,
}


def broker_key(identity: common_pb2.BrokerIdentity) -> BrokerKey:
    return BrokerKey(identity.broker_name, identity.broker_id)


def broker_record(heartbeat: nameserver_pb2.BrokerHeartbeat) -> BrokerRecord:
    return BrokerRecord(
        broker_key(heartbeat.identity),
        instance=heartbeat.identity.instance,
        address=heartbeat.address,
        outside_address=heartbeat.outside_address,
        zone=heartbeat.zone,
        in_sync_min=heartbeat.in_sync_min,
        log_kept_hours=heartbeat.log_kept_hours,
        store_host_ipv6=heartbeat.store_host_ipv6,
        writable=heartbeat.writable,
        incarnation=heartbeat.incarnation,
        predecessor=heartbeat.predecessor,
        log_epoch=heartbeat.log_epoch,
        log_end=heartbeat.log_end,
        resigned_epoch=heartbeat.resigned_epoch,
        successor_id=heartbeat.successor_id if heartbeat.HasField("successor_id") else -1,
        condition=_CONDITIONS.get(heartbeat.condition, BrokerCondition.WELL),
    )


def durable_end(heartbeat: nameserver_pb2.BrokerHeartbeat) -> int:
    """How far the log is confirmed and on disk; never after its end."""
    return min(heartbeat.durable_end, heartbeat.log_end)


def registered_heartbeat(cluster: str, record: BrokerRecord) -> nameserver_pb2.BrokerHeartbeat:
    """A broker's last heartbeat, as far as its registration says."""
    return nameserver_pb2.BrokerHeartbeat(
        identity=broker_identity(cluster, record),
        address=record.address,
        outside_address=record.outside_address,
        zone=record.zone,
        in_sync_min=record.in_sync_min,
        log_kept_hours=record.log_kept_hours,
        store_host_ipv6=record.store_host_ipv6,
        writable=record.writable,
        condition=_condition_value(record.condition),
        incarnation=record.incarnation,
        log_epoch=record.log_epoch,
        log_end=record.log_end,
    )


def as_told_outside(heartbeat: nameserver_pb2.BrokerHeartbeat) -> nameserver_pb2.BrokerHeartbeat:
    """Without the address that is of no use to the caller."""
    if not heartbeat.outside_address:
        return heartbeat
    told = nameserver_pb2.BrokerHeartbeat()
    told.CopyFrom(heartbeat)
    told.address = heartbeat.outside_address
    told.ClearField("outside_address")
    return told


def broker_role(replica_set: ReplicaSet, record: BrokerRecord) -> common_pb2.BrokerRole:
    return common_pb2.MASTER if election.is_master(replica_set, record) else common_pb2.SLAVE


def replica_set_record(replica_set: ReplicaSet) -> nameserver_pb2.GroupRecord:
    return nameserver_pb2.GroupRecord(
        broker_name=replica_set.broker_name,
        epoch=replica_set.epoch,
        master_id=replica_set.master_id,
        master_instance=replica_set.master_instance,
        in_sync=[
            nameserver_pb2.ReplicaName(broker_id=name.broker_id, incarnation=name.incarnation)
            for name in replica_set.in_sync
        ],
        replicas=replica_set.replicas,
        revision=replica_set.revision,
        unclean_epochs=replica_set.unclean_epochs,
        state=_STATES[replica_set.state],
    )


def in_sync_set(names: Iterable[nameserver_pb2.ReplicaName]) -> tuple[InSyncReplica, ...]:
    return tuple(InSyncReplica(name.broker_id, name.incarnation) for name in names)


def broker_identity(cluster: str, record: BrokerRecord) -> common_pb2.BrokerIdentity:
    return common_pb2.BrokerIdentity(
        cluster=cluster,
        broker_name=record.key.broker_name,
        broker_id=record.key.broker_id,
        instance=record.instance,
    )


def broker_endpoint(
    cluster: str, replica_set: ReplicaSet, record: BrokerRecord, *, is_outside: bool = False
) -> nameserver_pb2.BrokerEndpoint:
    """As routes give it to inside or outside callers."""
    outside = record.outside_address
    return nameserver_pb2.BrokerEndpoint(
        identity=broker_identity(cluster, record),
        address=outside if is_outside and outside else record.address,
        outside_address="" if is_outside else outside,
        zone=record.zone,
        role=broker_role(replica_set, record),
        epoch=replica_set.epoch,
        store_host_ipv6=record.store_host_ipv6,
        writable=record.writable,
        condition=_condition_value(record.condition),
    )


_CONDITIONS: Final = {
    nameserver_pb2.BROKER_WELL: BrokerCondition.WELL,
    nameserver_pb2.BROKER_SLOW: BrokerCondition.SLOW,
    nameserver_pb2.BROKER_DISK_HUNG: BrokerCondition.DISK_HUNG,
}


def _condition_value(condition: BrokerCondition) -> nameserver_pb2.BrokerCondition:
    return next(value for value, each in _CONDITIONS.items() if each is condition)


def topic_config(topic: Topic, deleted_at_ms: int = 0) -> common_pb2.TopicConfig:
    return common_pb2.TopicConfig(
        name=topic.name,
        perm=topic.perm,
        order=topic.order,
        attributes=topic.attributes,
        queues_by_broker=topic.queues_by_broker,
        revision=topic.revision,
        deleted_at=deleted_at_ms,
        key_order=_queue_runs(topic.key_order),
        retired=[
            common_pb2.RetiredQueues(broker_name=name, successors=_queue_runs(successors))
            for name, successors in sorted(topic.retired.items())
        ],
    )


def _queue_runs(runs: Iterable[QueueRun]) -> list[common_pb2.QueueRun]:
    return [
        common_pb2.QueueRun(broker_name=name, first=first, count=count)
        for name, first, count in runs
    ]


def _topic_of_all(table: RouteTable, name: str) -> Topic | None:
    """A retry or dead-letter topic, which each replica set creates when it needs it; None for other
    names."""
    if not is_retry_topic(name):
        return None
    replica_sets = {*table.replica_sets, *table.live_by_replica_set()}
    there = [each for each in sorted(replica_sets) if not table.is_removed(each)]
    return Topic(name, queues_by_broker=dict.fromkeys(there, 1))


def topic_route(
    cluster: str,
    table: RouteTable,
    name: str,
    failure: AerobeeError | None,
    planned: Topic | None = None,
    *,
    is_outside: bool = False,
) -> nameserver_pb2.TopicRoute:
    """The route of one topic for inside or outside callers; or why there is none. `planned`: what
    it would be if it were created now."""
    topic = table.topics.get(name) or _topic_of_all(table, name) or planned
    if topic is not None:
        return nameserver_pb2.TopicRoute(
            status=common_pb2.Status(code=common_pb2.OK),
            topic=topic_config(topic, table.deleted_at_ms(name)),
            brokers=[
                broker_endpoint(
                    cluster,
                    table.replica_set(record.key.broker_name),
                    record,
                    is_outside=is_outside,
                )
                for record in table.brokers_of(topic)
            ],
            closed=[
                each
                for each in sorted(topic.queues_by_broker)
                if each in topic.retired or not table.is_open(each)
            ],
        )
    if failure is not None:
        code = common_pb2.Code.Name(code_of(failure))
        wait_ms = failure.retry_after_ms if isinstance(failure, Busy) else 0
        status = common_pb2.Status(code=code, message=str(failure), retry_after_ms=wait_ms)
    else:
        status = common_pb2.Status(
            code=common_pb2.TOPIC_NOT_FOUND,
            message=f"there is no topic {name!r}; create it, or check the spelling",
        )
    return nameserver_pb2.TopicRoute(status=status, topic=common_pb2.TopicConfig(name=name))


def changed_topics(changes: TopicChanges) -> Iterable[common_pb2.TopicConfig]:
    """Changes and deletions in the order in which they happened."""
    found = [topic_config(topic, changes.deleted_at_ms(topic.name)) for topic in changes.changed]
    found += [
        common_pb2.TopicConfig(
            name=name, revision=revision, deleted=True, deleted_at=changes.deleted_at_ms(name)
        )
        for name, revision in changes.deleted
    ]
    return sorted(found, key=lambda config: config.revision)


def access_records(records: Records) -> nameserver_pb2.AccessRecords:
    return nameserver_pb2.AccessRecords(
        version=records.version,
        users=[
            nameserver_pb2.AccessRecord(user=name, value=value) for name, value in records.users
        ],
        policies=[
            nameserver_pb2.AccessRecord(user=name, value=value) for name, value in records.policies
        ],
        quotas=[
            nameserver_pb2.AccessRecord(user=name, value=value) for name, value in records.quotas
        ],
    )
