"""What a broker asks nameservers for its clients.

A topic belongs to the cluster; its queues are on some broker groups. RocketMQ's tools ask one
broker after the other: each gets its queues by its own request.
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
    """A topic as a tool wants it at one broker."""

    name: str
    queues: int
    """On this broker's group."""
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
        """Create a topic with queues on this broker's group, or change it: give it queues here, or
        more of them, and its other settings everywhere. Raises AerobeeError."""
        known = self._guard.knows(wanted.name)
        if not known:
            about_to_create(TOPICS_CREATED)
            try:
                await self._create(connection, wanted)
                return
            except TopicExists:
                pass  # on other brokers
        change = nameserver_pb2.UpdateTopicRequest(
            cluster=self.name, name=wanted.name, perm=wanted.perm, order=wanted.order
        )
        change.attributes.update(wanted.attributes)
        change.queues_by_broker[self._parts.config.broker_name] = wanted.queues
        await self._call(connection, UPDATE_TOPIC, change)

    async def _create(self, connection: Connection, wanted: TopicWish) -> None:
        creation = nameserver_pb2.CreateTopicRequest(
            cluster=self.name, name=wanted.name, perm=wanted.perm, order=wanted.order
        )
        creation.attributes.update({name: one for name, one in wanted.attributes.items() if one})
        creation.queues_by_broker[self._parts.config.broker_name] = wanted.queues
        await self._call(connection, CREATE_TOPIC, creation)

    async def delete_topic(self, connection: Connection, name: str) -> None:
        """Does nothing if it is gone already. Raises AerobeeError."""
        request = nameserver_pb2.DeleteTopicRequest(cluster=self.name, name=name)
        try:
            await self._call(connection, DELETE_TOPIC, request)
        except TopicNotFound:
            return

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
