"""Protobuf <-> the nameserver's own values; the only place that knows both."""

from __future__ import annotations

from collections.abc import Iterable

from aerobee.nameserver.route_table import RouteTable, TopicChanges
from aerobee.nameserver.stored import BrokerKey, BrokerRecord, Topic
from aerobee.runtime.errors import MqError
from aerobee.v1 import common_pb2, nameserver_pb2


def broker_key(identity: common_pb2.BrokerIdentity) -> BrokerKey:
    return BrokerKey(identity.broker_name, identity.broker_id)


def broker_record(heartbeat: nameserver_pb2.BrokerHeartbeat) -> BrokerRecord:
    return BrokerRecord(
        broker_key(heartbeat.identity),
        instance=heartbeat.identity.instance,
        address=heartbeat.address,
        store_host_ipv6=heartbeat.store_host_ipv6,
        writable=heartbeat.writable,
    )


def broker_role(table: RouteTable, key: BrokerKey) -> common_pb2.BrokerRole:
    return common_pb2.MASTER if table.is_master(key) else common_pb2.SLAVE


def broker_identity(cluster: str, record: BrokerRecord) -> common_pb2.BrokerIdentity:
    return common_pb2.BrokerIdentity(
        cluster=cluster,
        broker_name=record.key.broker_name,
        broker_id=record.key.broker_id,
        instance=record.instance,
    )


def broker_endpoint(
    cluster: str, table: RouteTable, record: BrokerRecord
) -> nameserver_pb2.BrokerEndpoint:
    return nameserver_pb2.BrokerEndpoint(
        identity=broker_identity(cluster, record),
        address=record.address,
        role=broker_role(table, record.key),
        epoch=table.group(record.key.broker_name).epoch,
        store_host_ipv6=record.store_host_ipv6,
        writable=record.writable,
    )


def topic_config(topic: Topic) -> common_pb2.TopicConfig:
    return common_pb2.TopicConfig(
        name=topic.name,
        perm=topic.perm,
        order=topic.order,
        attributes=topic.attributes,
        queues_by_broker=topic.queues_by_broker,
        revision=topic.revision,
    )


def topic_route(
    cluster: str, table: RouteTable, name: str, failure: MqError | None
) -> nameserver_pb2.TopicRoute:
    """The route of one topic, or why there is none."""
    topic = table.topics.get(name)
    if topic is not None:
        return nameserver_pb2.TopicRoute(
            status=common_pb2.Status(code=common_pb2.OK),
            topic=topic_config(topic),
            brokers=[broker_endpoint(cluster, table, record) for record in table.brokers_of(topic)],
        )
    if failure is not None:
        code = common_pb2.Code.Name(failure.code)
        status = common_pb2.Status(code=code, message=str(failure))
    else:
        status = common_pb2.Status(
            code=common_pb2.TOPIC_NOT_FOUND,
            message=f"there is no topic {name!r}; create it, or check the spelling",
        )
    return nameserver_pb2.TopicRoute(status=status, topic=common_pb2.TopicConfig(name=name))


def changed_topics(changes: TopicChanges) -> Iterable[common_pb2.TopicConfig]:
    """Changes and deletions in the order in which they happened."""
    found = [topic_config(topic) for topic in changes.changed]
    found += [
        common_pb2.TopicConfig(name=name, revision=revision, deleted=True)
        for name, revision in changes.deleted
    ]
    return sorted(found, key=lambda config: config.revision)
