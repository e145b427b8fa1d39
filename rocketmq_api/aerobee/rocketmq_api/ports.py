"""What a service for RocketMQ's clients needs from the node it runs on, in any protocol. A
nameserver has only routes; a broker also has its own queues and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from aerobee.cluster_view.route import TopicRoute
from aerobee.domain.sql_filter.wish import Wish
from aerobee.rocketmq_api.rules.group_rules import GroupRules
from aerobee.rocketmq_api.rules.handles import ReceiptHandle
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.record import Record
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.transaction_records import Outcome


class Unsafe(Enum):
    """Why a stored message was not acknowledged in time."""

    DISK = "disk"
    REPLICAS = "replicas"
    NO_REPLICA = "no replica"


class QueueRecords(NamedTuple):
    """Records for one queue: either all are stored, consecutively, or none."""

    queue_id: int
    records: list[bytes]
    is_half: bool = False
    """It is a half message, and waits until its transaction ends."""
    sizes: list[int] | None = None
    """Of each record; None: each of `records` is one. Otherwise these are joined first."""


class Sent(NamedTuple):
    """The result for such records."""

    error: AerobeeError | None = None
    """They were not stored."""
    queue_offset: int = 0
    """Of the first record."""
    deliver_ms: int = 0
    """Above 0: they wait for this time, Unix ms."""
    unsafe: Unsafe | None = None
    """They are stored, but the conditions for an acknowledgement were not met in time."""
    transaction_id: str = ""
    """Of a message of a transaction."""
    physical_offset: int = 0
    """Of the first record, in the log; the others follow it."""


class RouteSource(Protocol):
    """Where topics are."""

    async def route(self, topic: str) -> TopicRoute:
        """Raises TopicNotFound, RegistryUnavailable, Unreachable, DeadlineExceeded."""
        ...

    def known(self, topic: str) -> TopicRoute | None:
        """What `route` would return, if it is known."""
        ...

    def invalidate(self, topic: str) -> None:
        """A node contradicted the route."""
        ...

    def telling(self, callback: Callable[[str], None]) -> AbstractContextManager[None]:
        """Within this block, `callback` is called with the name of each topic whose route changes;
        "": any may have changed. It must not block."""
        ...


class OwnBroker(Protocol):
    """What a node has that is a replica of a broker."""

    @property
    def broker_name(self) -> str: ...

    def is_master(self) -> bool:
        """Whether it answers for its broker now; otherwise another replica may."""
        ...


class OwnQueues(OwnBroker, Protocol):
    """A broker's store."""

    @property
    def store_host_ipv6(self) -> bool:
        """The family for which records need room."""
        ...

    @property
    def is_gathering(self) -> bool:
        """Records have been sent in this turn of the loop. What joins them in their queue costs
        little more."""
        ...

    def host_of(self, peer: str) -> HostAddress:
        """The host in gRPC's name of a peer."""
        ...

    def send(
        self, topic: str, parts: Sequence[QueueRecords], timeout_ms: int
    ) -> asyncio.Future[list[Sent]]:
        """Store records in queues of a topic, together with what other calls of this turn of the
        loop send. The results come in the order of the parts, once each is safe, refused or late.
        """
        ...

    def send_then(
        self,
        topic: str,
        parts: Sequence[QueueRecords],
        timeout_ms: int,
        told: Callable[[list[Sent] | Exception], None],
    ) -> None:
        """The same without a future: `told` gets the results, or why there are none, in the turn
        in which they are known. It must not raise."""
        ...

    async def recall(self, recall_handle: str) -> None:
        """A message that was recalled here stays so. Raises MessageNotFound, NotMaster, Busy and
        others; see `Schedule.recall`."""
        ...


class OwnTransactions(OwnBroker, Protocol):
    """The transactions that a broker has."""

    async def end(
        self, topic: str, transaction_id: str, outcome: Outcome, timeout_ms: int
    ) -> Outcome:
        """How it ended: as requested, or as decided before. Raises MessageNotFound,
        DeadlineExceeded, NotMaster and others; see `Ends.end`."""
        ...


@dataclass(frozen=True, slots=True)
class Read:
    """What a queue has from an offset on."""

    records: Sequence[Record]
    next_offset: int
    """Where to continue."""
    is_out_of_range: bool = False
    """The queue has no such offset; `next_offset` is the nearest."""


class OwnReads(OwnBroker, Protocol):
    """A broker's queues, and the groups' offsets in them."""

    async def read(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        messages_max: int,
        wish: Wish,
        wait_ms: int,
    ) -> Read:
        """Raises TopicNotFound, QueueNotFound, NotReadableTopic, NotMaster, Busy and others; see
        `Egress.read`."""
        ...

    async def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """None: never committed. Raises NotMaster, QueueNotFound and others."""
        ...

    async def commit(
        self, group: str, topic: str, queue_id: int, offset: int, timeout_ms: int
    ) -> None:
        """Returns once it is safe. Raises LeaseHeld, NotMaster, DeadlineExceeded and others; see
        `ConsumerOffsets.commit`."""
        ...

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset, and that of the next message. Raises QueueNotFound, ReplicaBehind."""
        ...

    async def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Of the first message stored at or after a time."""
        ...


@dataclass(frozen=True, slots=True)
class PollRequest:
    """What a poll asks of a broker; names are as in the store."""

    group: str
    topic: str
    client: str
    """The client's key: what it takes is its own, whatever id others claim."""
    messages_max: int
    invisible_ms: int | None
    """None: as long as the client is heard from."""
    attempt_id: str
    """A repeated poll with the same id gets what the earlier one took."""
    attempts_max: int
    """Deliveries of a message before it is a dead letter."""
    wish: Wish
    wait_ms: int
    queue_id: int = -1
    """Only this queue; below 0: all of the broker."""
    begins_at_first: bool = False
    """A new group begins at the first message that there is."""
    takes_runs: bool = False
    """Where order matters, its client handles several messages of a message group in order."""


class Received(NamedTuple):
    """A message that was handed out."""

    handle: ReceiptHandle
    attempt: int
    record: Record


class Rung(Protocol):
    """A poll that also waits for messages of other brokers."""

    is_rung: bool
    """There may be some."""
    wake: Callable[[], None] | None
    """To be called when it is rung."""


class OwnPops(OwnBroker, Protocol):
    """A broker's queues for clients that let the broker choose the messages."""

    async def receive(self, wanted: PollRequest, rings: Rung | None = None) -> Sequence[Received]:
        """Empty: none came in time, or before `rings` was rung. A caller that cannot deliver them
        must give them back. Raises Busy, LeaseHeld, NotMaster, TopicNotFound and others; see
        `Pops.receive`."""
        ...

    def give_back(self, received: Sequence[Received]) -> None:
        """Their receiver disappeared before it had them."""
        ...

    async def acknowledge(self, handles: Sequence[ReceiptHandle]) -> Sequence[AerobeeError | None]:
        """For each: why this does not finish it; StaleHandle: another client may have it by now."""
        ...

    async def change(
        self, handle: ReceiptHandle, invisible_ms: int, *, is_counted: bool
    ) -> ReceiptHandle:
        """The handle that is valid from now on. Raises StaleHandle and others."""
        ...

    async def forward(
        self, handle: ReceiptHandle, client_id: str, reason: tuple[str, str] = ...
    ) -> None:
        """Returns once a dead letter has replaced it, with this class and text as its reason.
        Raises StaleHandle and others."""
        ...

    async def forward_by_id(
        self, topic: str, group: str, message_id: str, client: str, client_id: str
    ) -> None:
        """The same for a message that a push consumer has and names only by its id. Raises
        StaleHandle: the consumer has none here, and the group has no such dead letter; and others.
        """
        ...


class Groups(Protocol):
    """The consumer groups that brokers know."""

    async def rules(self, group: str) -> GroupRules:
        """For an unknown group, those of a new one. Raises NoBrokerAvailable if only brokers know
        them and none answers."""
        ...
