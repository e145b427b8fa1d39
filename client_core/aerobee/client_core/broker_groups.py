"""Broker groups that are closed, read to their end, and removed from the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import Masters
from aerobee.cluster_view.methods import (
    CLOSE_BROKER_GROUP,
    DESCRIBE_REMAINING,
    OPEN_BROKER_GROUP,
    REMOVE_BROKER_GROUP,
)
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, nameserver_pb2

REMOVE_TIMEOUT_MS: Final = 60_000
"""Each topic with queues there requires a change in etcd."""


class BrokerGroupState(StrEnum):
    """The state that an operator has set for a broker group."""

    OPEN = "open"
    CLOSED = "closed"
    """It takes no new messages and is read to its end."""
    REMOVED = "removed"


_STATES: Final = {
    nameserver_pb2.BROKER_GROUP_OPEN: BrokerGroupState.OPEN,
    nameserver_pb2.BROKER_GROUP_CLOSED: BrokerGroupState.CLOSED,
    nameserver_pb2.BROKER_GROUP_REMOVED: BrokerGroupState.REMOVED,
}


@dataclass(frozen=True, slots=True)
class UnreadBy:
    """How much of one topic at a broker group one consumer group has not read."""

    group: str
    topic: str
    unread: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """What would be lost if a broker group were removed now."""

    refuses: bool
    """The group is closed, or the topic retired from it, and new messages are refused."""
    refuses_in_s: float
    """If so: the time until it refuses new messages."""
    readers: Sequence[UnreadBy]
    """Those with the most unread messages first; at most 1,000."""
    unread: int
    """Over all readers."""
    delayed: int
    """Messages waiting for their time, including retries."""
    open_transactions: int
    set_aside: int
    """Transactions waiting for an operator."""
    in_flight: int
    """Those of the unread messages that were handed out and neither acknowledged nor committed."""
    dead_letters: int
    """Neither resent nor dropped."""
    schedules: int = 0
    """Schedules that would run no more."""

    @property
    def is_empty(self) -> bool:
        """Nothing would be lost."""
        return not (
            self.unread
            or self.delayed
            or self.open_transactions
            or self.set_aside
            or self.dead_letters
            or self.schedules
        )


class BrokerGroups:
    """Over one connection.

    Example::

        async with ClusterConnection("127.0.0.1:8081") as connection:
            remaining = await BrokerGroups(connection).remaining("broker-a")
            print(remaining.unread, remaining.is_empty)
    """

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 10_000) -> None:
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._channels = connection.channels
        self._nameservers = connection.nameservers
        self._cluster = connection.cluster
        self._timeout_ms = timeout_ms

    async def state(self, broker_name: str) -> BrokerGroupState:
        """Raises GroupNotFound; Unreachable, DeadlineExceeded."""
        for record in (await self._masters.describe_cluster()).groups:
            if record.broker_name == broker_name:
                return state_of(record)
        raise errors.GroupNotFound(
            f"there is no broker group {broker_name!r}: see `aerobee cluster show`"
        )

    async def close(self, broker_name: str) -> None:
        """It takes no new messages from now on; those waiting there are delivered.

        Raises:
            GroupNotFound; InvalidArgument: a topic would have no queue to write to, or the group
            was removed; Unreachable, DeadlineExceeded, RegistryUnavailable.
        """
        await self._nameservers.call(
            CLOSE_BROKER_GROUP,
            nameserver_pb2.CloseBrokerGroupRequest(cluster=self._cluster, broker_name=broker_name),
            timeout_ms=self._timeout_ms,
        )

    async def open(self, broker_name: str) -> None:
        """Reverse `close`. Raises as `close`."""
        await self._nameservers.call(
            OPEN_BROKER_GROUP,
            nameserver_pb2.OpenBrokerGroupRequest(cluster=self._cluster, broker_name=broker_name),
            timeout_ms=self._timeout_ms,
        )

    async def remaining(self, broker_name: str, *, topic: str = "") -> Remaining:
        """Asks the broker group's master.

        Args:
            topic: only what its queues there hold and its groups' retries; dead letters stay where
                they are and do not count.

        Raises NoBrokerAvailable: it has none now; Busy: it is new and does not know yet; NotMaster;
        Unreachable, DeadlineExceeded.
        """
        master = await self._masters.of(broker_name)
        found = await self._channels.call(
            master.address,
            DESCRIBE_REMAINING,
            broker_pb2.DescribeRemainingRequest(topic=topic),
            timeout_ms=self._timeout_ms,
        )
        return _remaining(found)

    async def remove(self, broker_name: str) -> int:
        """Remove a closed group from the cluster, whatever remains there. Its brokers cannot
        register again, and its name cannot be reused. Returns how many topics had queues there.

        Raises GroupNotFound; InvalidArgument: it is open; Unreachable, DeadlineExceeded,
        RegistryUnavailable: repeat the call.
        """
        done = await self._nameservers.call(
            REMOVE_BROKER_GROUP,
            nameserver_pb2.RemoveBrokerGroupRequest(cluster=self._cluster, broker_name=broker_name),
            timeout_ms=REMOVE_TIMEOUT_MS,
        )
        return done.topics


def state_of(record: nameserver_pb2.GroupRecord) -> BrokerGroupState:
    return _STATES[record.state]


def _remaining(found: broker_pb2.RemainingDescription) -> Remaining:
    return Remaining(
        refuses=found.refuses,
        refuses_in_s=found.refuses_in_ms / 1_000,
        readers=[UnreadBy(each.group, each.topic, each.unread) for each in found.readers],
        unread=found.unread,
        delayed=found.delayed,
        open_transactions=found.open_transactions,
        set_aside=found.set_aside,
        in_flight=found.in_flight,
        dead_letters=found.dead_letters,
        schedules=found.schedules,
    )
