"""The parts of replication, put together: who this replica is, its role, and both ends of a stream.

Owns: nothing at run time. `roles_of` comes first, for guard and durability need the roles;
`assemble_replication` then makes what acts on them.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aerobee.broker.config import BrokerConfig
from aerobee.broker.flush.table_files import TableFiles
from aerobee.broker.reading.egress import Egress
from aerobee.broker.reading.read_pool import ReadPool
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.follower import Connect, Follower
from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.in_sync_proposer import AlterInSyncSet, InSyncProposer
from aerobee.broker.replication.log_copy import SlaveSide
from aerobee.broker.replication.mastership import Mastership
from aerobee.broker.replication.opening import OpenedFolder
from aerobee.broker.replication.replica_folder import OpenedReplica, ReplicaFolder
from aerobee.broker.replication.replica_set import NO_MASTER
from aerobee.broker.replication.role_manager import RoleManager
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.sender import ReplicationSender
from aerobee.broker.replication.statistics import (
    ReplicationStatistics,
    SlaveStatistics,
    replicas_of,
)
from aerobee.broker.replication.stream_limits import StreamLimits
from aerobee.broker.replication.table_copies import TableCopies
from aerobee.broker.replication.table_source import TableSource
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard, Role
from aerobee.broker.store.config import FlushMode
from aerobee.broker.store.disk import Disk
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.threads import Threads
from aerobee.runtime.call_context import RequestNames
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import StoreFailed


@dataclass(frozen=True, slots=True)
class Replication:
    """What a replica does for its group."""

    replica: OpenedReplica
    roles: Roles
    folder: ReplicaFolder
    manager: RoleManager
    proposer: InSyncProposer
    handover: Handover
    sender: ReplicationSender
    follower: Follower

    @property
    def trouble(self) -> str:
        """Why this replica does not follow its master; empty while it does, or leads."""
        if self.roles.term is not None:
            return ""
        trouble = self.follower.trouble or self.manager.trouble
        found = self.replica.trouble if self.follower.joined_end is None else ""
        return "; ".join(text for text in (found, trouble) if text)

    def statistics(self, log_end: int, now_s: float) -> ReplicationStatistics:
        """`log_end` is our own log's."""
        roles = self.roles
        mode = roles.config.mode.value
        term = roles.term
        if term is not None:
            replicas = replicas_of(term, roles.known_replicas, log_end, now_s)
            return ReplicationStatistics(mode, replicas)
        group, follower = roles.mastership.replica_set, self.follower
        slave = SlaveStatistics(
            master_id=NO_MASTER if group is None else group.master_id,
            is_connected=follower.is_connected,
            master_end=follower.master_end,
            confirmed_end=roles.confirmed_end,
            trouble=self.trouble,
        )
        return ReplicationStatistics(mode, slave=slave)


@dataclass(frozen=True, slots=True)
class Cluster:
    """How the rest of the group and the nameservers are reached."""

    connect: Connect
    """A stream to a master."""
    alter: AlterInSyncSet
    send_soon: Callable[[], None]
    """A heartbeat to the nameserver, now."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Parts that replication uses together with others."""

    store_folder: OpenedFolder
    guard: Guard
    egress: Egress
    durability: Durability
    reads: ReadPool
    files: TableFiles
    disk: Disk
    threads: Threads
    clock: Clock
    chance: random.Random


def roles_of(
    config: BrokerConfig, replica: OpenedReplica, store: MessageStore, clock: Clock
) -> Roles:
    """The role of a folder that was just opened: none yet."""
    mastership = Mastership(replica.own, replica.state.instance, is_alone=replica.is_alone)
    return Roles(
        mastership,
        replica.history,
        store,
        clock,
        config.replication,
        segment_bytes=config.store.segment_bytes,
    )


def assemble_replication(
    config: BrokerConfig,
    replica: OpenedReplica,
    roles: Roles,
    shared: Shared,
    cluster: Cluster,
    on_store_failed: Callable[[StoreFailed], None],
) -> Replication:
    """Make every part and tell each of the others."""
    store, guard, durability = shared.store_folder.store, shared.guard, shared.durability
    folder = ReplicaFolder(replica, shared.files.write)

    def on_role() -> None:
        guard.role = Role.SLAVE if roles.term is None else Role.MASTER
        guard.epoch = roles.epoch if roles.term is None else roles.term.epoch
        shared.egress.wake_all()  # pulls that began under the other role end
        for changed in roles.watchers:
            changed()
        cluster.send_soon()

    manager = RoleManager(
        roles,
        folder,
        store,
        shared.clock,
        shared.chance,
        on_role=on_role,
        on_store_failed=on_store_failed,
    )
    proposer = InSyncProposer(
        roles,
        store,
        shared.clock,
        cluster.alter,
        RequestNames(f"{config.broker_name}-{config.broker_id}-in-sync"),
    )
    sender = _sender(config, roles, shared)
    follower = _follower(config, replica, roles, shared, cluster, manager.adopt_history)
    manager.attach(follower)
    durability.attach_streams(sender, follower)

    def on_advanced() -> None:
        try:
            durability.advance()
        except StoreFailed as error:
            on_store_failed(error)

    def on_changed() -> None:
        manager.wake()
        proposer.wake()

    roles.on_advanced = on_advanced
    roles.on_changed = on_changed
    roles.on_doubt = cluster.send_soon
    handover = Handover(roles, store, shared.clock, on_resigned=cluster.send_soon)
    return Replication(replica, roles, folder, manager, proposer, handover, sender, follower)


def _limits(config: BrokerConfig) -> StreamLimits:
    return StreamLimits.of(
        config.replication, flush_is_sync=config.store.flush_mode is FlushMode.SYNC
    )


def _sender(config: BrokerConfig, roles: Roles, shared: Shared) -> ReplicationSender:
    return ReplicationSender(
        config.cluster,
        config.broker_name,
        roles,
        shared.store_folder.store,
        shared.reads,
        TableSource(shared.disk, shared.threads.files, shared.clock),
        _limits(config),
        shared.clock,
    )


def _follower(
    config: BrokerConfig,
    replica: OpenedReplica,
    roles: Roles,
    shared: Shared,
    cluster: Cluster,
    adopt_history: Callable[[EpochHistory], Awaitable[None]],
) -> Follower:
    folder, durability = shared.store_folder, shared.durability
    side = SlaveSide(
        log_state=roles.log_state,
        adopt_history=adopt_history,
        on_appended=durability.on_copied,
        on_confirmed=lambda confirmed_end, _: durability.on_confirmed(confirmed_end),
    )
    return Follower(
        config.cluster,
        config.broker_name,
        replica.own,
        replica.state.instance,
        cluster.connect,
        folder.store,
        shared.reads,
        side,
        TableCopies(folder.topics, folder.groups, shared.files, shared.threads.files),
        _limits(config),
        shared.clock,
    )
