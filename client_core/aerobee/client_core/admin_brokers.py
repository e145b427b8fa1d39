"""Single brokers: `AdminClient.brokers` queries and changes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.json_format import MessageToDict

from aerobee.client_core.admin_cluster import BrokerGroup, broker_group
from aerobee.client_core.audit import Audit
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.defaults import milliseconds
from aerobee.client_core.master_search import Masters
from aerobee.cluster_view.methods import CLEAN_STORE, GET_STATS, HAND_OVER, REMOVE_REPLICA
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import audit_pb2, broker_pb2, nameserver_pb2

CLEAN_TIMEOUT_MS: Final = 300_000
"""A command removes up to 200 segments, with a pause after each."""
HAND_OVER_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RemovedUnread:
    """Messages of a queue that a broker removed before a group had read them."""

    group: str
    topic: str
    queue_id: int
    messages: int


@dataclass(frozen=True, slots=True)
class ReplicaLag:
    """A slave, as its master sees it."""

    broker_id: int
    is_connected: bool
    is_in_sync: bool
    lag_bytes: int
    """Bytes of the log that it has not acknowledged."""
    lag_ms: int
    """Time since it last had everything; 0: it has everything now."""


@dataclass(frozen=True, slots=True)
class MasterSeen:
    """A master, as its slave sees it."""

    broker_id: int
    is_connected: bool
    log_end: int
    trouble: str
    """Why the slave does not follow; empty if it does."""


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """Counters since the broker's process started, and its current state."""

    version: str
    is_writable: bool
    not_writable_reason: str
    flush_mode: str
    log_min_offset: int
    log_appended_end: int
    messages_in: int
    messages_out: int
    resident_bytes: int
    """Memory of the process."""
    disk_total_bytes: int
    disk_free_bytes: int
    removed_unread_messages: int
    """Over all groups."""
    removed_unread: tuple[RemovedUnread, ...]
    replicas: tuple[ReplicaLag, ...]
    """Of a master's slaves; a slave has none."""
    master: MasterSeen | None
    """For a slave; None for a master."""
    everything: Mapping[str, Any] = field(repr=False)
    """Everything that the broker returned, as printed by `aerobee cluster show --json`: 64-bit
    integers are texts."""


@dataclass(frozen=True, slots=True)
class CleanedStore:
    """What a broker removed."""

    removed_segments: int
    removed_bytes: int
    log_min_offset: int
    removed_unread: tuple[RemovedUnread, ...]
    kept_because: str
    """Why expired segments are still there; empty: none are."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """A broker group's new master."""

    master_id: int
    epoch: int
    paused_ms: int
    """How long no messages were accepted."""


class BrokerAdmin:
    """Brokers: statistics, cleaning, another master, lost replicas. Every call may raise
    Unreachable, DeadlineExceeded and AccessDenied."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._channels = connection.channels
        self._nameservers = connection.nameservers
        self._cluster = connection.cluster
        self._timeout_ms = timeout_ms

    async def statistics(self, address: str) -> BrokerStatistics:
        """Of the broker at an address; see `AdminClient.cluster`."""
        request = broker_pb2.GetStatsRequest()
        return broker_statistics(
            await self._channels.call(address, GET_STATS, request, timeout_ms=self._timeout_ms)
        )

    async def check_audit(self, address: str) -> None:
        """Whether the caller could audit this broker; reads next to nothing. Raises AccessDenied:
        it needs Get on the cluster, and no topic denied. Busy: too many audits read from it."""
        request = audit_pb2.SnapshotRequest(tables=[audit_pb2.SNAPSHOT_EPOCHS])
        audit = Audit(self._channels, timeout_ms=self._timeout_ms)
        async for _ in audit.snapshot(address, request):
            pass

    async def clean(
        self,
        broker: str,
        *,
        force: bool = False,
        unread: bool = False,
        timeout: float = CLEAN_TIMEOUT_MS / 1_000,
    ) -> CleanedStore:
        """Remove expired log segments now, at any hour.

        Args:
            broker: the name of a broker group, for its master, or the address of a broker.
            force: also unexpired ones, as long as the disk is fuller than the broker's limit.
            unread: also messages that groups have not read; the answer counts them.

        Raises:
            InvalidArgument: no broker group of that name has a master; ShuttingDown, StoreFailed.
            DeadlineExceeded: it continues to the end of the current segment.
        """
        done = await self._channels.call(
            await self._address_of(broker),
            CLEAN_STORE,
            broker_pb2.CleanStoreRequest(force=force, unread=unread),
            timeout_ms=milliseconds(timeout),
        )
        return CleanedStore(
            removed_segments=done.removed_segments,
            removed_bytes=done.removed_bytes,
            log_min_offset=done.log_min_offset,
            removed_unread=_removed(done.removed_unread),
            kept_because=done.kept_because,
        )

    async def hand_over(
        self,
        broker_name: str,
        *,
        successor_id: int | None = None,
        timeout: float = HAND_OVER_TIMEOUT_MS / 1_000,
    ) -> HandOver:
        """Make another replica the master; nothing that was sent is lost.

        Args:
            successor_id: the next master; None: the current one chooses among those in sync.

        Raises:
            NoBrokerAvailable: the group has no master now, or there is no such group.
            InvalidArgument: the successor is not in sync, or no replica is.
            NotMaster: another replica became master in the meantime.
        """
        timeout_ms = milliseconds(timeout)
        master = await self._masters.of(broker_name)
        done = await self._channels.call(
            master.address,
            HAND_OVER,
            broker_pb2.HandOverRequest(successor_id=successor_id, timeout_ms=timeout_ms),
            timeout_ms=timeout_ms + self._timeout_ms,
        )
        return HandOver(done.master_id, done.epoch, done.paused_ms)

    async def remove_replica(self, broker_name: str, broker_id: int) -> BrokerGroup:
        """Forget a replica that is lost for good; returns what remains of its group.

        Raises:
            GroupNotFound: there is no such broker group. InvalidArgument: the replica is
            registered, the master, in sync, or unknown. RegistryUnavailable.
        """
        request = nameserver_pb2.RemoveReplicaRequest(
            cluster=self._cluster, broker_name=broker_name, broker_id=broker_id
        )
        return broker_group(
            await self._nameservers.call(REMOVE_REPLICA, request, timeout_ms=self._timeout_ms)
        )

    async def _address_of(self, broker: str) -> str:
        if ":" in broker:
            return broker
        masters = (await self._masters.roll_call()).masters
        for endpoint in masters:
            if endpoint.broker_name == broker:
                return endpoint.address
        known = ", ".join(endpoint.broker_name for endpoint in masters) or "none"
        raise InvalidArgument(f"no broker is named {broker}; registered are: {known}")


def broker_statistics(found: broker_pb2.BrokerStats) -> BrokerStatistics:
    """From a broker's answer."""
    slave = found.slave if found.HasField("slave") else None
    return BrokerStatistics(
        version=found.version,
        is_writable=found.writable,
        not_writable_reason=found.not_writable_reason,
        flush_mode=found.flush_mode,
        log_min_offset=found.log_min_offset,
        log_appended_end=found.log_appended_end,
        messages_in=found.messages_in,
        messages_out=found.messages_out,
        resident_bytes=found.resident_bytes,
        disk_total_bytes=found.disk_total_bytes,
        disk_free_bytes=found.disk_free_bytes,
        removed_unread_messages=found.removed_unread_messages,
        removed_unread=_removed(found.removed_unread),
        replicas=tuple(
            ReplicaLag(each.broker_id, each.connected, each.in_sync, each.lag_bytes, each.lag_ms)
            for each in found.replicas
        ),
        master=None
        if slave is None
        else MasterSeen(slave.master_id, slave.connected, slave.master_end, slave.trouble),
        everything=MessageToDict(found, always_print_fields_with_no_presence=True),
    )


def _removed(found: Iterable[broker_pb2.UnreadRemoval]) -> tuple[RemovedUnread, ...]:
    return tuple(
        RemovedUnread(each.group, each.topic, each.queue_id, each.messages) for each in found
    )
