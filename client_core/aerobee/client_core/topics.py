"""Topics as an operator sees them: create, list, show, change, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aerobee.client_core.admin import Admin
from aerobee.client_core.audit import Audit
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import AnswerList, ask_masters
from aerobee.cluster_view.methods import CREATE_TOPIC, DELETE_TOPIC, LIST_TOPICS, UPDATE_TOPIC
from aerobee.cluster_view.route import Endpoint
from aerobee.domain.names import check_topic_name
from aerobee.v1 import audit_pb2, common_pb2, nameserver_pb2


class Topics:
    """The topics of a cluster; the nameserver decides.

    Example::

        async with ClusterConnection("127.0.0.1:8081") as connection:
            await Topics(connection).create("orders", queues=8)
    """

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._nameservers = connection.nameservers
        self._cluster = connection.cluster
        self._routes = connection.routes
        self._channels = connection.channels
        self._admin = Admin(connection, timeout_ms=timeout_ms)
        self._timeout_ms = timeout_ms

    async def create(
        self,
        name: str,
        *,
        queues: int = 0,
        perm: int = 0,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> common_pb2.TopicConfig:
        """Creates a topic.

        Args:
            name: its name.
            queues: in total, spread over the broker groups; 0: the cluster's default.
            perm: bit mask, 4 read and 2 write; 0 means both.
            order: the topic is meant for ordered messages.
            attributes: for example {"message.type": "FIFO"}.

        Raises:
            IllegalName, TopicExists, NoBrokerAvailable, RegistryUnavailable, Unreachable.
        """
        check_topic_name(name)
        return await self._nameservers.call(
            CREATE_TOPIC,
            nameserver_pb2.CreateTopicRequest(
                cluster=self._cluster,
                name=name,
                queues=queues,
                perm=perm,
                order=order,
                attributes=dict(attributes or {}),
            ),
            timeout_ms=self._timeout_ms,
        )

    async def update(
        self,
        name: str,
        *,
        queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> common_pb2.TopicConfig:
        """Changes what is not None; an attribute with an empty value is removed.

        Raises:
            TopicNotFound; InvalidArgument for fewer queues than before; RegistryUnavailable,
            Unreachable.
        """
        check_topic_name(name)
        return await self._nameservers.call(
            UPDATE_TOPIC,
            nameserver_pb2.UpdateTopicRequest(
                cluster=self._cluster,
                name=name,
                queues=queues,
                perm=perm,
                order=order,
                attributes=dict(attributes or {}),
            ),
            timeout_ms=self._timeout_ms,
        )

    async def delete(self, name: str) -> None:
        """Deletes a topic: its messages can no longer be read.

        Raises:
            TopicNotFound, RegistryUnavailable, Unreachable.
        """
        check_topic_name(name)
        await self._nameservers.call(
            DELETE_TOPIC,
            nameserver_pb2.DeleteTopicRequest(cluster=self._cluster, name=name),
            timeout_ms=self._timeout_ms,
        )
        self._routes.invalidate(name)

    async def list(self, *, with_own: bool = False) -> AnswerList[common_pb2.TopicConfig]:
        """All topics, by name.

        Args:
            with_own: also those that masters created themselves and no nameserver keeps: for
                groups' failed messages and dead letters, and of the brokers.

        Raises:
            RegistryUnavailable, Unreachable; with `with_own` also NoBrokerAvailable: no broker
            answers; Busy.
        """
        response = await self._nameservers.call(
            LIST_TOPICS,
            nameserver_pb2.ListTopicsRequest(cluster=self._cluster),
            timeout_ms=self._timeout_ms,
        )
        topics = {topic.name: topic for topic in response.topics}
        unanswered: Sequence[str] = ()
        if with_own:
            kept = frozenset(topics)
            answers, unanswered = await ask_masters(await self._admin.roll_call(), self._rows_of)
            for broker_name, rows in (
                (name, each) for name, some in answers.items() for each in some
            ):
                columns = (rows.topics, rows.read_queue_counts, rows.write_queue_counts, rows.perms)
                for name, reads, writes, perm in zip(*columns, strict=True):
                    if name not in kept:
                        topic = topics.setdefault(
                            name, common_pb2.TopicConfig(name=name, perm=perm)
                        )
                        topic.queues_by_broker[broker_name] = max(reads, writes)
        return AnswerList(sorted(topics.values(), key=lambda topic: topic.name), unanswered)

    async def _rows_of(self, master: Endpoint) -> Sequence[audit_pb2.TopicRows]:
        audit = Audit(self._channels, timeout_ms=self._timeout_ms)
        wanted = audit_pb2.SnapshotRequest(tables=[audit_pb2.SNAPSHOT_TOPICS])
        return [
            part.topics
            async for part in audit.snapshot(master.address, wanted)
            if part.HasField("topics")
        ]
