"""This broker towards the nameserver: what its heartbeats say, and what directives change."""

from __future__ import annotations

import logging

from aerobee.broker.config import BrokerConfig
from aerobee.broker.guard import Role
from aerobee.broker.parts import Parts
from aerobee.broker.store.tables.config_tables import TOPICS_PATH
from aerobee.broker.topic_directives import AnnouncedTopic, apply_topics
from aerobee.runtime.errors import NotWritable
from aerobee.runtime.log import log_event
from aerobee.v1 import common_pb2, nameserver_pb2

log = logging.getLogger(__name__)


def identity_of(config: BrokerConfig, *, instance: str) -> common_pb2.BrokerIdentity:
    """Who this process is; `instance` is new with every start."""
    return common_pb2.BrokerIdentity(
        cluster=config.cluster,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        instance=instance,
    )


class ClusterLink:
    """The two callables that a Registration needs."""

    def __init__(
        self,
        parts: Parts,
        identity: common_pb2.BrokerIdentity,
        address: str,
        *,
        store_host_ipv6: bool,
    ) -> None:
        self._parts = parts
        self._identity = identity
        self._address = address
        self._store_host_ipv6 = store_host_ipv6

    def heartbeat(self) -> nameserver_pb2.BrokerHeartbeat:
        """The broker as it is now."""
        parts = self._parts
        store = parts.folder.store
        return nameserver_pb2.BrokerHeartbeat(
            identity=self._identity,
            address=self._address,
            role=common_pb2.MASTER if parts.guard.role is Role.MASTER else common_pb2.SLAVE,
            epoch=parts.guard.epoch,
            log_begin=store.min_offset,
            log_end=store.appended_end,
            metadata_revision=parts.folder.topics.metadata_revision,
            store_host_ipv6=self._store_host_ipv6,
            writable=not parts.not_writable_reason(),
        )

    async def follow(self, directive: nameserver_pb2.BrokerDirective) -> None:
        """Take on role, epoch and topics; returns once the topics are on disk.

        On a full disk they are served from memory until the next snapshot finds room; a restart
        before that asks the nameserver again.

        Raises:
            StoreFailed: the topics cannot be written; they are served from memory meanwhile.
        """
        parts = self._parts
        role = Role.SLAVE if directive.role == common_pb2.SLAVE else Role.MASTER
        if (role, directive.epoch) != (parts.guard.role, parts.guard.epoch):
            log_event(log, "role", role=role, epoch=directive.epoch)
            parts.guard.role, parts.guard.epoch = role, directive.epoch
        if not (directive.topics or directive.topics_complete or directive.metadata_revision):
            return
        gone = apply_topics(
            parts.folder.topics,
            [self._announced(topic) for topic in directive.topics],
            metadata_revision=directive.metadata_revision,
            is_complete=directive.topics_complete,
        )
        if gone:
            # Readers of a topic that is gone find out by asking again.
            parts.egress.wake_all()
        try:
            await parts.files.save(TOPICS_PATH)
        except NotWritable as error:
            log_event(log, "topics not saved", level=logging.WARNING, reason=error)

    def _announced(self, topic: common_pb2.TopicConfig) -> AnnouncedTopic:
        return AnnouncedTopic(
            name=topic.name,
            queue_count=topic.queues_by_broker.get(self._identity.broker_name, 0),
            perm=topic.perm,
            order=topic.order,
            revision=topic.revision,
            deleted=topic.deleted,
            attributes=dict(topic.attributes),
        )
