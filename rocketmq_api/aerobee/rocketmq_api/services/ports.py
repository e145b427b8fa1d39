"""What the service needs of the node that it runs on. A nameserver has routes only; a broker also
its own queues and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from aerobee.cluster_view.methods import Method
from aerobee.cluster_view.route import TopicRoute
from aerobee.rocketmq_api.clients.settings import GroupRules
from aerobee.runtime.errors import MqError
from aerobee.store_format.record_layout import HostAddress

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class Unsafe(Enum):
    """Why a stored message was not acknowledged in time."""

    DISK = "disk"
    REPLICAS = "replicas"
    NO_REPLICA = "no replica"


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one message."""

    error: MqError | None = None
    """It was not stored."""
    queue_offset: int = 0
    deliver_ms: int = 0
    """Above 0: it waits for this time, Unix ms."""
    unsafe: Unsafe | None = None
    """It is stored, but the promise of an acknowledgement was not kept in time."""


class RouteSource(Protocol):
    """Where topics are."""

    async def route(self, topic: str) -> TopicRoute:
        """Raises TopicNotFound, RegistryUnavailable, Unreachable, DeadlineExceeded."""
        ...

    def invalidate(self, topic: str) -> None:
        """A node contradicted the route."""
        ...


class OwnQueues(Protocol):
    """A broker's store."""

    @property
    def broker_name(self) -> str: ...

    @property
    def store_host_ipv6(self) -> bool:
        """For which records need room."""
        ...

    def is_master(self) -> bool:
        """Whether it may store messages now; else another replica can."""
        ...

    def host_of(self, peer: str) -> HostAddress:
        """Of gRPC's name of a peer."""
        ...

    async def send(
        self, topic: str, records: Sequence[tuple[int, bytes]], timeout_ms: int
    ) -> list[Sent]:
        """Store records in queues of a topic; the results come in their order once each is safe,
        refused or late."""
        ...

    async def recall(self, recall_handle: str) -> None:
        """Raises MessageNotFound, NotMaster, Busy and others; see `Schedule.recall`."""
        ...


class Groups(Protocol):
    """The consumer groups that brokers know."""

    async def rules(self, group: str) -> GroupRules:
        """Those of a new group for one that is not known. Raises NoBrokerAvailable where only
        brokers know them and none answers."""
        ...


class Peers(Protocol):
    """Other nodes; `Channels` is one."""

    async def call(
        self,
        address: str,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int = 3_000,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> R:
        """Raises Unreachable, DeadlineExceeded, MqError."""
        ...
