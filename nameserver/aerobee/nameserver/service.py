"""The gRPC servicer: translate, delegate, nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import grpc

from aerobee.access.running import topics_listed
from aerobee.domain.names import check_topic_name, is_retry_topic
from aerobee.nameserver import convert
from aerobee.nameserver.broker_groups import BrokerGroups
from aerobee.nameserver.broker_session import BrokerSession
from aerobee.nameserver.replica_sets import ReplicaSets
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.sessions import BrokerSessions
from aerobee.nameserver.stored import BrokerRecord, Topic
from aerobee.nameserver.topics import Topics
from aerobee.rpc.outside import came_outside, require_inside
from aerobee.rpc.served_method import answered_at_once
from aerobee.runtime.errors import AerobeeError, InvalidArgument, ShuttingDown, Unreachable
from aerobee.runtime.task_groups import first_leaf
from aerobee.v1 import common_pb2, nameserver_pb2, nameserver_pb2_grpc

LEASES_SILENT_MAX = 2
"""A broker that has been silent for this many leases is gone; etcd knows it after one."""
SILENCE_S_MIN = 5.0
"""Longer than answering a heartbeat can take, even if etcd hangs."""

Context = grpc.aio.ServicerContext[Any, Any]


class NameserverService(nameserver_pb2_grpc.NameserverServiceServicer):
    """Serves aerobee.v1.NameserverService for one cluster."""

    def __init__(
        self,
        *,
        cluster: str,
        cache: RouteCache,
        topics: Topics,
        sessions: BrokerSessions,
        replica_sets: ReplicaSets,
        etcd_trouble: Callable[[], str],
        broker_groups: BrokerGroups,
        auto_create: bool,
        spread_timeout_s: float,
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._topics = topics
        self._sessions = sessions
        self._replica_sets = replica_sets
        self._etcd_trouble = etcd_trouble
        self.broker_groups = broker_groups
        self._auto_create = auto_create
        self._spread_timeout_s = spread_timeout_s
        self._stopping = False

    def stop_streams(self) -> None:
        """End all streams now, so that brokers and clients move to another nameserver."""
        self._stopping = True
        self._cache.changed.notify()

    async def Register(
        self, requests: AsyncIterator[nameserver_pb2.BrokerHeartbeat], context: Context
    ) -> None:
        require_inside(context, "the registration of a broker")
        inbox = _Inbox()
        reader = asyncio.TaskGroup()
        try:
            with self._cache.changed.subscribed(inbox.wake.set):
                async with reader:
                    task = reader.create_task(inbox.fill(requests), name="register-heartbeats")
                    await self._until_silent(inbox, context)
                    task.cancel()
        except BaseExceptionGroup as replica_set:
            raise first_leaf(replica_set) from None

    async def _until_silent(self, inbox: _Inbox, context: Context) -> None:
        """Nothing else ends the stream of a broker whose machine or network is gone."""
        try:
            async with asyncio.timeout(SILENCE_S_MIN) as silence:
                await self._converse(inbox, context, silence)
        except TimeoutError:
            if not silence.expired():
                raise
            raise Unreachable(
                "the broker sent nothing for longer than its registration lasts"
            ) from None

    async def _converse(self, inbox: _Inbox, context: Context, silence: asyncio.Timeout) -> None:
        session: BrokerSession | None = None
        try:
            while True:
                await inbox.wake.wait()
                inbox.wake.clear()
                self._check_running()
                heartbeat = inbox.take()
                if heartbeat is not None:
                    silence.reschedule(self._silent_at_s(heartbeat))
                    session = session or await self._sessions.admit(heartbeat)
                    if heartbeat.leaving:
                        await session.leave(heartbeat)
                        return
                    await context.write(await session.beat(heartbeat))
                elif inbox.ended:
                    return
                elif session is not None and (directive := session.news()) is not None:
                    await context.write(directive)
        finally:
            if session is not None:
                # Brokers whose streams end because this nameserver stops are still alive.
                self._sessions.close(session, is_lost=not self._stopping)

    async def QueryRoute(
        self, request: nameserver_pb2.QueryRouteRequest, context: Context
    ) -> nameserver_pb2.QueryRouteResponse:
        self._check_cluster(request.cluster)
        failures: dict[str, AerobeeError] = {}
        planned: dict[str, Topic] = {}
        for name in dict.fromkeys(request.topics):
            if name in self._cache.table.topics or is_retry_topic(name):
                continue
            try:
                check_topic_name(name)
                if request.create_missing and self._auto_create:
                    await self._tell_brokers(await self._topics.create_missing(name))
                elif request.plan_missing and self._auto_create:
                    planned[name] = self._topics.planned(name)
            except AerobeeError as error:
                failures[name] = error
        return self._routes(request.topics, failures, planned, is_outside=came_outside(context))

    async def WatchRoutes(
        self, request: nameserver_pb2.WatchRoutesRequest, context: Context
    ) -> AsyncIterator[nameserver_pb2.QueryRouteResponse]:
        self._check_cluster(request.cluster)
        failures, is_outside = _name_failures(request.topics), came_outside(context)
        wake = asyncio.Event()
        with self._cache.changed.subscribed(wake.set):
            sent: nameserver_pb2.QueryRouteResponse | None = None
            while True:
                wake.clear()
                self._check_running()
                routes = self._routes(request.topics, failures, is_outside=is_outside)
                if sent is None or routes.stale != sent.stale or routes.routes != sent.routes:
                    yield routes
                    sent = routes
                await wake.wait()

    async def CreateTopic(
        self, request: nameserver_pb2.CreateTopicRequest, context: Context
    ) -> common_pb2.TopicConfig:
        self._check_cluster(request.cluster)
        topic = await self._topics.create(
            request.name,
            queues=request.queues,
            perm=request.perm,
            order=request.order,
            attributes=request.attributes,
            queues_by_broker=request.queues_by_broker,
        )
        await self._tell_brokers(topic)
        return convert.topic_config(topic)

    async def UpdateTopic(
        self, request: nameserver_pb2.UpdateTopicRequest, context: Context
    ) -> common_pb2.TopicConfig:
        self._check_cluster(request.cluster)
        topic = await self._topics.update(
            request.name,
            queues=request.queues if request.HasField("queues") else None,
            perm=request.perm if request.HasField("perm") else None,
            order=request.order if request.HasField("order") else None,
            attributes=request.attributes,
            queues_by_broker=request.queues_by_broker,
        )
        await self._tell_brokers(topic)
        return convert.topic_config(topic)

    async def SpreadTopic(
        self, request: nameserver_pb2.SpreadTopicRequest, context: Context
    ) -> nameserver_pb2.SpreadTopicResponse:
        self._check_cluster(request.cluster)
        before, after = await self._topics.spread(
            request.name, retire=request.retire, preview=request.preview
        )
        if not request.preview:
            await self._tell_brokers(after)
        return nameserver_pb2.SpreadTopicResponse(
            before=convert.topic_config(before), after=convert.topic_config(after)
        )

    async def RemoveRetired(
        self, request: nameserver_pb2.RemoveRetiredRequest, context: Context
    ) -> common_pb2.TopicConfig:
        self._check_cluster(request.cluster)
        topic = await self._topics.remove_retired(request.name, request.broker_name)
        await self._tell_brokers(topic)
        return convert.topic_config(topic)

    async def DeleteTopic(
        self, request: nameserver_pb2.DeleteTopicRequest, context: Context
    ) -> nameserver_pb2.DeleteTopicResponse:
        self._check_cluster(request.cluster)
        await self.delete_topic(request.name)
        return nameserver_pb2.DeleteTopicResponse()

    async def delete_topic(self, name: str) -> None:
        """Returns once brokers know, or do not answer. Raises as `Topics.delete`."""
        topic = self._cache.table.topics.get(name)
        revision = await self._topics.delete(name)
        if topic is not None:
            await self._sessions.wait_informed(
                topic.queues_by_broker, revision, self._spread_timeout_s
            )

    @answered_at_once
    def ListTopics(
        self, request: nameserver_pb2.ListTopicsRequest, context: Context
    ) -> nameserver_pb2.ListTopicsResponse:
        self._check_cluster(request.cluster)
        table = self._cache.table
        names = sorted(filter(topics_listed(), table.topics))
        return nameserver_pb2.ListTopicsResponse(
            version=table.version,
            stale=self._cache.stale,
            topics=[convert.topic_config(table.topics[name]) for name in names],
        )

    @answered_at_once
    def DescribeCluster(
        self, request: nameserver_pb2.DescribeClusterRequest, context: Context
    ) -> nameserver_pb2.ClusterDescription:
        self._check_cluster(request.cluster)
        table, is_outside = self._cache.table, came_outside(context)
        description = nameserver_pb2.ClusterDescription(
            cluster=self._cluster,
            version=table.version,
            stale=self._cache.stale,
            etcd_trouble=self._etcd_trouble(),
        )
        for key in sorted(table.brokers):
            if table.is_removed(key.broker_name):
                continue
            record = table.brokers[key]
            heartbeat, age_ms = self._last_heartbeat(record)
            description.brokers.append(
                convert.broker_endpoint(
                    self._cluster,
                    table.replica_set(key.broker_name),
                    record,
                    is_outside=is_outside,
                )
            )
            description.heartbeat_age_ms.append(age_ms)
            description.last_heartbeats.append(
                convert.as_told_outside(heartbeat) if is_outside else heartbeat
            )
        description.groups.extend(
            convert.replica_set_record(each) for each in table.known_replica_sets()
        )
        return description

    async def AlterInSyncSet(
        self, request: nameserver_pb2.AlterInSyncSetRequest, context: Context
    ) -> nameserver_pb2.GroupRecord:
        """Answers with the record as it is now: if its in-sync set is not the requested one, the
        record was not the expected one, and nothing was changed."""
        require_inside(context, "a change of the in-sync set")
        self._check_cluster(request.cluster)
        replica_set = await self._replica_sets.alter_in_sync_set(
            request.broker_name,
            master=(request.master_id, request.master_instance),
            epoch=request.epoch,
            in_sync=convert.in_sync_set(request.in_sync),
            expected_revision=request.expected_revision,
        )
        return convert.replica_set_record(replica_set)

    async def RemoveReplica(
        self, request: nameserver_pb2.RemoveReplicaRequest, context: Context
    ) -> nameserver_pb2.GroupRecord:
        self._check_cluster(request.cluster)
        replica_set = await self._replica_sets.remove_replica(
            request.broker_name, request.broker_id
        )
        await self._cache.wait_version(replica_set.revision, self._spread_timeout_s)
        return convert.replica_set_record(replica_set)

    async def CloseBrokerGroup(
        self, request: nameserver_pb2.CloseBrokerGroupRequest, context: Context
    ) -> nameserver_pb2.GroupRecord:
        self._check_cluster(request.cluster)
        return convert.replica_set_record(await self.broker_groups.close(request.broker_name))

    async def OpenBrokerGroup(
        self, request: nameserver_pb2.OpenBrokerGroupRequest, context: Context
    ) -> nameserver_pb2.GroupRecord:
        self._check_cluster(request.cluster)
        return convert.replica_set_record(await self.broker_groups.open(request.broker_name))

    async def RemoveBrokerGroup(
        self, request: nameserver_pb2.RemoveBrokerGroupRequest, context: Context
    ) -> nameserver_pb2.RemoveBrokerGroupResponse:
        self._check_cluster(request.cluster)
        topics = await self.broker_groups.remove(request.broker_name)
        return nameserver_pb2.RemoveBrokerGroupResponse(topics=topics)

    def _last_heartbeat(self, record: BrokerRecord) -> tuple[nameserver_pb2.BrokerHeartbeat, int]:
        """What the broker last said and how long ago; -1 if it talks to another nameserver."""
        session = self._sessions.get(record.key)
        if session is None or session.instance != record.instance:
            return convert.registered_heartbeat(self._cluster, record), -1
        age_s = self._sessions.clock.monotonic_s() - session.heartbeat_s
        return session.heartbeat, int(age_s * 1_000)

    def _routes(
        self,
        topics: Sequence[str],
        failures: Mapping[str, AerobeeError],
        planned: Mapping[str, Topic] | None = None,
        *,
        is_outside: bool,
    ) -> nameserver_pb2.QueryRouteResponse:
        table = self._cache.table
        return nameserver_pb2.QueryRouteResponse(
            version=table.version,
            stale=self._cache.stale,
            routes=[
                convert.topic_route(
                    self._cluster,
                    table,
                    name,
                    failures.get(name),
                    planned.get(name) if planned else None,
                    is_outside=is_outside,
                )
                for name in topics
            ],
        )

    async def _tell_brokers(self, topic: Topic) -> None:
        await self._sessions.wait_informed(
            topic.queues_by_broker, topic.revision, self._spread_timeout_s
        )

    def _check_cluster(self, cluster: str) -> None:
        if cluster not in ("", self._cluster):
            raise InvalidArgument(
                f"this nameserver serves cluster {self._cluster!r}, not {cluster!r}"
            )

    def _silent_at_s(self, heartbeat: nameserver_pb2.BrokerHeartbeat) -> float:
        """The deadline for hearing this broker again, in event loop time."""
        lease_ms = self._sessions.registry.lease_duration_ms(heartbeat.lease_duration_ms)
        limit_s = max(SILENCE_S_MIN, LEASES_SILENT_MAX * lease_ms / 1_000)
        return asyncio.get_running_loop().time() + limit_s

    def _check_running(self) -> None:
        if self._stopping:
            raise ShuttingDown("this nameserver is stopping; continue with another one")


class _Inbox:
    """The latest heartbeat of one stream; it replaces an unread older one."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.ended = False
        self._latest: nameserver_pb2.BrokerHeartbeat | None = None

    def take(self) -> nameserver_pb2.BrokerHeartbeat | None:
        latest, self._latest = self._latest, None
        return latest

    async def fill(self, requests: AsyncIterator[nameserver_pb2.BrokerHeartbeat]) -> None:
        try:
            async for heartbeat in requests:
                self._latest = heartbeat
                self.wake.set()
        finally:
            self.ended = True
            self.wake.set()


def _name_failures(topics: Sequence[str]) -> dict[str, AerobeeError]:
    failures: dict[str, AerobeeError] = {}
    for name in topics:
        try:
            check_topic_name(name)
        except AerobeeError as error:
            failures[name] = error
    return failures
