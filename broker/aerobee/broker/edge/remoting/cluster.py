"""What a broker asks nameservers for its clients: topics belong to the cluster, not to a broker.

RocketMQ's tools change one broker after the other. The first of these requests changes the cluster;
the others find that there is nothing left to do.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from aerobee.access.meter import about_to_create
from aerobee.access.quota import TOPICS_CREATED
from aerobee.access.recorder import FORWARDED_KEY
from aerobee.access.running import FORWARDED_USER_KEY, user_of_call
from aerobee.broker.config import BrokerConfig
from aerobee.broker.sending.guard import Guard
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import (
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    QUERY_ROUTE,
    UPDATE_TOPIC,
    Method,
)
from aerobee.cluster_view.nameservers import Nameservers
from aerobee.cluster_view.route import TopicRoute
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting.guarding import peer_of
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument, TopicExists, TopicNotFound
from aerobee.v1 import common_pb2, nameserver_pb2

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

_TIMEOUT_MS: Final = 2_500
"""Clients give a request up after 3 s."""


@dataclass(frozen=True, slots=True)
class TopicWish:
    """A topic as a tool wants each broker to have it."""

    name: str
    queues: int
    """On each broker."""
    perm: int
    order: bool
    attributes: Mapping[str, str]
    """Those to change; an empty value removes one."""


class Parts(Protocol):
    """What it needs of the broker."""

    config: BrokerConfig
    guard: Guard
    clock: Clock
    chance: random.Random

    @property
    def channels(self) -> Channels:
        """Not there yet while features are made."""
        ...


class Cluster:
    """On the loop."""

    def __init__(self, parts: Parts) -> None:
        """Without nameservers the broker is a cluster by itself, whose topics are in its file."""
        self.name = parts.config.cluster
        self._guard = parts.guard
        self._parts = parts
        self._known: Nameservers | None = None

    @property
    def _nameservers(self) -> Nameservers | None:
        """Made with the first question: features are made before channels."""
        parts = self._parts
        if self._known is None and parts.config.nameservers:
            self._known = Nameservers(
                parts.channels, parts.config.nameservers, clock=parts.clock, chance=parts.chance
            )
        return self._known

    async def create_missing(self, connection: Connection, topic: str) -> None:
        """Create a topic by sending to it, if the cluster allows that. Raises AerobeeError; that
        it does not is TopicNotFound."""
        if self._nameservers is None:
            self._guard.check_topic(topic)
            return
        about_to_create(TOPICS_CREATED)
        await self.route(connection, topic, create_missing=True)

    async def route(
        self, connection: Connection, topic: str, *, create_missing: bool = False
    ) -> TopicRoute:
        """Raises AerobeeError."""
        request = nameserver_pb2.QueryRouteRequest(
            cluster=self.name, topics=[topic], create_missing=create_missing
        )
        answer = (await self._call(connection, QUERY_ROUTE, request)).routes[0]
        if answer.status.code != common_pb2.OK:
            raise error_from_code(answer.status.code, answer.status.message)
        return TopicRoute.from_proto(answer)

    async def put_topic(self, connection: Connection, wanted: TopicWish) -> None:
        """Create a topic on all brokers, or change it. Raises AerobeeError."""
        try:
            known = self._guard.topic(wanted.name)
        except TopicNotFound:
            about_to_create(TOPICS_CREATED)
            total = wanted.queues * await self._replica_sets(connection)
            try:
                await self._create(connection, wanted, total)
                return
            except TopicExists:
                pass  # this broker has no queue of it
            queues: int | None = None
        else:
            has = known.write_queue_count or known.read_queue_count
            if wanted.queues < has:
                raise InvalidArgument(
                    f"topic {wanted.name} has {has} queues here, and queues with messages are not "
                    f"removed: ask for at least {has}, or use `aerobee topic spread`"
                )
            is_more = wanted.queues > has
            queues = wanted.queues * await self._replica_sets(connection) if is_more else None
        change = nameserver_pb2.UpdateTopicRequest(
            cluster=self.name, name=wanted.name, perm=wanted.perm, order=wanted.order
        )
        change.attributes.update(wanted.attributes)
        if queues is not None:
            change.queues = queues
        await self._call(connection, UPDATE_TOPIC, change)

    async def _create(self, connection: Connection, wanted: TopicWish, total: int) -> None:
        creation = nameserver_pb2.CreateTopicRequest(
            cluster=self.name,
            name=wanted.name,
            queues=total,
            perm=wanted.perm,
            order=wanted.order,
        )
        creation.attributes.update({name: one for name, one in wanted.attributes.items() if one})
        await self._call(connection, CREATE_TOPIC, creation)

    async def delete_topic(self, connection: Connection, name: str) -> None:
        """Does nothing if it is gone already. Raises AerobeeError."""
        request = nameserver_pb2.DeleteTopicRequest(cluster=self.name, name=name)
        try:
            await self._call(connection, DELETE_TOPIC, request)
        except TopicNotFound:
            return

    async def _replica_sets(self, connection: Connection) -> int:
        """How many broker groups get queues of a new topic."""
        request = nameserver_pb2.DescribeClusterRequest(cluster=self.name)
        described = await self._call(connection, DESCRIBE_CLUSTER, request)
        return len({each.identity.broker_name for each in described.last_heartbeats}) or 1

    async def _call(self, connection: Connection, method: Method[Q, R], request: Q) -> R:
        """For the user of the running call, whose rights were checked here."""
        nameservers = self._nameservers
        if nameservers is None:
            raise InvalidArgument(
                "this broker has no nameserver, so its topics are those of its file; change them "
                "with the command aerobee, or start it with a nameserver"
            )
        user = user_of_call({})
        return await nameservers.call(
            method,
            request,
            timeout_ms=_TIMEOUT_MS,
            metadata=(
                (FORWARDED_KEY, peer_of(connection)),
                *(((FORWARDED_USER_KEY, user),) if user else ()),
            ),
        )
