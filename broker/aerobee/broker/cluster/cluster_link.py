"""This broker's side towards the nameserver: what heartbeats say, what directives change."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Protocol

from aerobee.access.node import NodeAccess
from aerobee.access.nodes import NodeName
from aerobee.access.table import Record, Records
from aerobee.broker.cluster.closing import Closing
from aerobee.broker.cluster.own_address import OwnAddress
from aerobee.broker.cluster.records import condition_value, place_of, view_of
from aerobee.broker.cluster.registration import Registration, RegistrationConfig
from aerobee.broker.cluster.retired_topics import RetiredTopics
from aerobee.broker.cluster.topic_directives import AnnouncedTopic, apply_topics
from aerobee.broker.config import BrokerConfig
from aerobee.broker.offsets.feature import Progress
from aerobee.broker.reading.egress import Egress
from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.replica_folder import OpenedReplica
from aerobee.broker.replication.replica_set import NO_MASTER, ReplicaSetView
from aerobee.broker.replication.report import ReplicationReport
from aerobee.broker.replication.role_manager import RoleManager
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.slow_loop import SlowLoop
from aerobee.broker.sending.guard import Writability
from aerobee.domain.broker_condition import BrokerCondition
from aerobee.rpc.tls import NodeTls
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotWritable
from aerobee.runtime.log import log_event
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TOPICS_PATH, TopicTable
from aerobee.store.flush.disk_watch import DiskWatch
from aerobee.store.flush.table_files import TableFiles
from aerobee.store.format.record_layout import HostAddress
from aerobee.v1 import common_pb2, nameserver_pb2

SAVE_TIMEOUT_S = 0.5
"""How long the next directive waits for topics to reach the disk."""
SAVE_PAUSE_S = 50e-6
"""For each topic in the table: how long after a save the next one is left to the regular saves. A
save writes all topics, so that saving each of many new ones would take time with their square."""
TROUBLE_LENGTH_MAX = 1_000
"""A heartbeat must stay within the nameserver's limits, however long an error's text is."""

log = logging.getLogger(__name__)


def identity_of(config: BrokerConfig, *, instance: str) -> common_pb2.BrokerIdentity:
    """Who this process is; `instance` is new with every start."""
    return common_pb2.BrokerIdentity(
        cluster=config.cluster,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        instance=instance,
    )


def node_name(config: BrokerConfig) -> NodeName:
    """Who it is in certificates and signatures, in every run of its process."""
    return NodeName.broker(config.cluster, config.broker_name, config.broker_id)


class Parts(Protocol):
    """What a heartbeat says of the broker, and what a directive changes in it."""

    config: BrokerConfig
    clock: Clock
    chance: random.Random
    identity: common_pb2.BrokerIdentity
    address: OwnAddress
    store_host: HostAddress
    access: NodeAccess
    tls: NodeTls
    store: MessageStore
    topics: TopicTable
    files: TableFiles
    egress: Egress
    progress: Progress
    roles: Roles
    manager: RoleManager
    replica: OpenedReplica
    report: ReplicationReport
    handover: Handover
    closing: Closing
    retired: RetiredTopics
    writability: Writability
    watch: DiskWatch
    slow_loop: SlowLoop
    heartbeat_due: asyncio.Event


class ClusterLink:
    """What a registration says and hears; makes it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._identity = parts.identity
        self._roles = parts.roles
        self._topics = parts.topics
        self._book = parts.access.book
        self._topic_ends = parts.progress.topic_ends
        self._saving: asyncio.Task[None] | None = None
        self._save_from_s = float("-inf")
        """Until then, topics are left to the regular saves; loop time."""

    def registration(self) -> Registration | None:
        """None: the broker is a cluster by itself."""
        parts, config = self._parts, self._parts.config
        if not config.nameservers:
            return None
        return Registration(
            RegistrationConfig(
                nameservers=config.nameservers, lease_duration_ms=config.registration_lease_ms
            ),
            clock=parts.clock,
            chance=parts.chance,
            heartbeat=self.heartbeat,
            on_directive=self.follow,
            on_sending=parts.roles.heartbeat_sent,
            on_incomplete=parts.manager.count_as_another_log,
            due=parts.heartbeat_due,
            credentials=parts.access.credentials,
            tls=parts.tls.dialled,
        )

    def heartbeat(self) -> nameserver_pb2.BrokerHeartbeat:
        """The broker as it is now."""
        self._book.refresh()
        parts, roles, topics = self._parts, self._roles, self._topics
        store, replica, config = parts.store, parts.replica, parts.config
        retention = config.store.retention
        return nameserver_pb2.BrokerHeartbeat(
            identity=self._identity,
            address=parts.address.text,
            outside_address=parts.address.outside,
            zone=config.zone,
            in_sync_min=config.replication.min_insync_replicas,
            log_kept_hours=retention.file_reserved_hours if retention.enabled else 0,
            role=common_pb2.SLAVE if roles.term is None else common_pb2.MASTER,
            epoch=roles.own_epoch,
            log_begin=store.min_offset,
            log_end=store.appended_end,
            metadata_revision=topics.metadata_revision,
            metadata_history=topics.metadata_history,
            store_host_ipv6=parts.store_host.is_ipv6,
            writable=not parts.writability.no_room_reason(),
            incarnation=roles.own.incarnation,
            predecessor=replica.predecessor,
            log_epoch=roles.log_epoch(),
            confirmed_end=roles.confirmed_end,
            resigned_epoch=roles.mastership.resigned_epoch or 0,
            successor_id=parts.handover.successor_id,
            replication_trouble=parts.report.trouble[:TROUBLE_LENGTH_MAX],
            durable_end=min(roles.confirmed_end, store.flushed_end),
            opened_end=replica.opened_end,
            access_version=self._book.version,
            condition=condition_value(self._condition),
        )

    @property
    def _condition(self) -> BrokerCondition:
        """What keeps this broker from working."""
        if self._parts.watch.is_hung:
            return BrokerCondition.DISK_HUNG
        return BrokerCondition.SLOW if self._parts.slow_loop.is_slow else BrokerCondition.WELL

    async def follow(self, directive: nameserver_pb2.BrokerDirective) -> None:
        """Take over the replica set and the topics; returns once the topics are on disk.

        While the disk is full or slow, topics are served from memory until they are written; after
        a restart before that, the nameserver is asked again. Changes of master are followed
        meanwhile.

        Raises:
            StoreFailed: the topics cannot be written; they are served from memory meanwhile.
        """
        if directive.HasField("access"):
            self._book.hear(_records_of(directive.access))
        # Master first, then lease: otherwise the lease could outlive the news of a new master.
        roles = self._roles
        roles.hear_endpoints(map(place_of, directive.replicas))
        replica_set = self._replica_set_of(directive)
        if replica_set is not None:
            roles.hear_replica_set(replica_set)
            self._parts.closing.hear(is_closed=replica_set.is_closed)
        lease_ms = directive.lease_duration_ms or self._parts.config.registration_lease_ms
        roles.renewed(directive.renewed_sequence, lease_ms)
        # Retention may have removed the last message of a deleted topic, which then needs no end.
        self._topic_ends.wake()
        if not (directive.topics or directive.topics_complete or directive.metadata_revision):
            return
        announced = [self._announced(topic) for topic in directive.topics]
        for topic in announced:
            self._parts.retired.hear(
                topic.name, is_retired=topic.is_retired, is_master=roles.may_act()
            )
        gone = apply_topics(
            self._topics,
            announced,
            metadata_revision=directive.metadata_revision,
            metadata_history=directive.metadata_history,
            is_complete=directive.topics_complete,
            ended_at_ms=self._topic_ends.ended_at_ms,
        )
        self._topic_ends.wake()
        is_urgent = any(topic.deleted or topic.is_retired for topic in announced)
        if gone:
            # Readers of a deleted topic find out by asking again.
            self._parts.egress.wake_all()
        if self._saving is None:
            loop = asyncio.get_running_loop()
            if not is_urgent and loop.time() < self._save_from_s:
                return
            self._saving = loop.create_task(self._save_topics(), name="save-topics")
            await asyncio.wait((self._saving,), timeout=SAVE_TIMEOUT_S)
        if self._saving.done():
            saving, self._saving = self._saving, None
            saving.result()

    async def _save_topics(self) -> None:
        """Raises StoreFailed."""
        try:
            await self._parts.files.save(TOPICS_PATH)
        except NotWritable as error:
            log_event(log, "topics not saved", level=logging.WARNING, reason=error)
        pause_s = SAVE_PAUSE_S * len(self._topics)
        self._save_from_s = asyncio.get_running_loop().time() + pause_s

    def _replica_set_of(self, directive: nameserver_pb2.BrokerDirective) -> ReplicaSetView | None:
        """The record; from a nameserver that knows of no replicas, what it says of this one. None
        from one that has not reached etcd: this replica must not assume that it is alone."""
        if directive.HasField("group"):
            return view_of(directive.group)
        if directive.role == common_pb2.BROKER_ROLE_UNSPECIFIED:
            return None
        identity, own = self._identity, self._roles.own
        is_master = directive.role != common_pb2.SLAVE
        return ReplicaSetView(
            epoch=directive.epoch,
            master_id=identity.broker_id if is_master else NO_MASTER,
            master_instance=identity.instance if is_master else "",
            in_sync=frozenset({own}),
            replicas=frozenset({identity.broker_id}),
            revision=directive.epoch,
        )

    def _announced(self, topic: common_pb2.TopicConfig) -> AnnouncedTopic:
        return AnnouncedTopic(
            name=topic.name,
            queue_count=topic.queues_by_broker.get(self._identity.broker_name, 0),
            is_retired=any(
                each.broker_name == self._identity.broker_name for each in topic.retired
            ),
            perm=topic.perm,
            order=topic.order,
            revision=topic.revision,
            deleted=topic.deleted,
            deleted_at_ms=topic.deleted_at,
            attributes=dict(topic.attributes),
        )


def _records_of(access: nameserver_pb2.AccessRecords) -> Records:
    return Records(
        access.version,
        tuple(Record(each.user, each.value) for each in access.users),
        tuple(Record(each.user, each.value) for each in access.policies),
        tuple(Record(each.user, each.value) for each in access.quotas),
    )
