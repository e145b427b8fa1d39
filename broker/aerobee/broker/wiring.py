"""The broker's composition root: the only file that knows every part.

Each part is made once, after those it uses; of two that need each other, one has an `on_...`.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from aerobee.access.node import NodeAccess
from aerobee.broker.cluster.closing import Closing
from aerobee.broker.cluster.cluster_link import ClusterLink, identity_of
from aerobee.broker.cluster.in_sync_registry import InSyncRegistry
from aerobee.broker.cluster.own_address import OwnAddress
from aerobee.broker.cluster.retired_topics import RetiredTopics
from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.config import BrokerConfig
from aerobee.broker.counters import Counters
from aerobee.broker.delayed.feature import Delays
from aerobee.broker.edge.own.client_rows import HeardProducer
from aerobee.broker.edge.own.pull_service import PullService
from aerobee.broker.edge.remoting.feature import Remoting
from aerobee.broker.edge.replicas.replication_client import connector
from aerobee.broker.edge.rocketmq.api import RocketmqApi
from aerobee.broker.edge.server import BrokerServer
from aerobee.broker.features import (
    Edge,
    Feature,
    Kind,
    add_own_topics,
    duties_of,
    own_topics_of,
    tasks_of,
)
from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.member_streams import MemberStreams
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.run_record import LEASES_PATH
from aerobee.broker.observe.audit.acknowledged_minutes import AcknowledgedMinutes
from aerobee.broker.observe.audit.log_checksums import LogChecksums
from aerobee.broker.observe.audit.snapshots import Snapshots
from aerobee.broker.observe.broker_state import BrokerState
from aerobee.broker.observe.group_totals import GroupTotals
from aerobee.broker.observe.health import BrokerHealth
from aerobee.broker.observe.metrics.figures import BrokerFigures
from aerobee.broker.observe.metrics.lag import LagReading
from aerobee.broker.observe.metrics.store_times import StoreTimes
from aerobee.broker.observe.metrics.traffic import Traffic
from aerobee.broker.observe.readiness import Readiness
from aerobee.broker.observe.remaining import RemainingReading
from aerobee.broker.observe.timekeeper import Timekeeper
from aerobee.broker.offsets.feature import Progress
from aerobee.broker.opened import Opened
from aerobee.broker.popping.feature import Popping
from aerobee.broker.reading.egress import Egress
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.reading.pull_session import PullSession
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.reading.unread import Readers, UnreadCounts
from aerobee.broker.recurring.feature import Recurring
from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.duties import Duties, OnChange
from aerobee.broker.replication.follower import Follower
from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.hung_disk import HungDisk
from aerobee.broker.replication.in_sync_proposer import InSyncProposer
from aerobee.broker.replication.log_copy import SlaveSide
from aerobee.broker.replication.mastership import Mastership
from aerobee.broker.replication.read_places import ReadPlaces
from aerobee.broker.replication.replica_folder import ReplicaFolder
from aerobee.broker.replication.report import ReplicationReport
from aerobee.broker.replication.role_manager import RoleManager, adopt_history
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.sender import ReplicationSender
from aerobee.broker.replication.slow_loop import SlowLoop
from aerobee.broker.replication.table_copies import TableCopies
from aerobee.broker.replication.table_source import TableSource
from aerobee.broker.retention.cleaning import Cleaning
from aerobee.broker.retention.holds import GroupsHold
from aerobee.broker.retention.topic_keeping import TopicKeeping
from aerobee.broker.retention.unread_readers import UnreadReaders
from aerobee.broker.retries.feature import Retries
from aerobee.broker.run import ROLES_TASK, Failure, Run
from aerobee.broker.sending.acknowledged import AcknowledgedBatches
from aerobee.broker.sending.append import Appender
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard, Writability
from aerobee.broker.sending.ingest import Ingest
from aerobee.broker.sending.message_encoder import MessageEncoder
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.sending.watermarks import timed_waiters
from aerobee.broker.tier.feature import Tier
from aerobee.broker.timers.record_rows import HandedTimers
from aerobee.broker.transactions.feature import Transactions
from aerobee.broker.transactions.known import opened_halves
from aerobee.cluster_view.channels import Channels
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rpc.core.first_bytes import Beside
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.metrics_endpoint import MetricsEndpoint
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.rpc.tls import NodeTls
from aerobee.runtime.call_context import RequestNames
from aerobee.runtime.clock import Clock
from aerobee.runtime.collector_pauses import CollectorPauses
from aerobee.runtime.errors import StoreFailed
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.runtime.metrics.rpc_latencies import RpcLatencies
from aerobee.store.engine.config import FlushMode
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.tables.config_tables import SUBSCRIPTION_GROUPS_PATH, TOPICS_PATH
from aerobee.store.flush.disk_watch import DiskWatch
from aerobee.store.flush.flush_thread import FlushThread
from aerobee.store.flush.table_files import TableFiles
from aerobee.store.flush.workers import DiskWorkers
from aerobee.store.format.batch import BatchLimits
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.delayed_records import DelayRules
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.tags import TagsCodes

F = TypeVar("F", bound=Feature)


class Wiring:
    """The parts of one run over an opened folder; `run` sets them to work. Features and edges
    declare which of them they use."""

    def __init__(
        self,
        config: BrokerConfig,
        opened: Opened,
        *,
        disk: Disk,
        workers: DiskWorkers,
        clock: Clock,
        chance: random.Random,
        health: BrokerHealth,
        metrics: MetricsEndpoint,
        peer_limits: PeerLimits,
        memory: MemoryBudget,
        store_host: HostAddress,
        tls: NodeTls,
        access: NodeAccess,
        features: Sequence[Kind[Wiring]],
    ) -> None:
        """`workers` wait for the disk. `features` are in order of dependence."""
        self.config, self.store_host, self.loop_delay = config, store_host, LoopDelay(clock)
        self.collector = CollectorPauses(clock)
        self.clock, self.chance, self.disk, self.workers = clock, chance, disk, workers
        self.folder, self.replica, self.store = opened.folder, opened.replica, opened.folder.store
        self.topics, self.groups = self.folder.topics, self.folder.groups
        self.failure, self.counters, self.latencies = Failure(), Counters(), RpcLatencies()
        self.on_store_failed: Callable[[StoreFailed], None] = self.failure.report
        self.watch = DiskWatch(clock, hung_after_s=config.store.disk_hung_after_ms / 1_000)
        self.peer_limits, self.memory, self.tls, self.access = peer_limits, memory, tls, access
        self.own_topics: Mapping[str, int] = own_topics_of(features, config.store)
        self._wire_role()
        self._wire_reading()
        self._wire_sending()
        self._wire_following()
        self._wire_groups()
        self._wire_features(features)
        self._wire_retention()
        self._wire_cluster()
        self._wire_duties()
        self._wire_observation()
        self._wire_edges()
        self.registration = ClusterLink(self).registration()
        self.run = self._make_run(health, metrics)

    # ------------------------------------------------------------------------------ the log

    def _wire_role(self) -> None:
        config, replica = self.config, self.replica
        self.roles = Roles(
            Mastership(replica.own, replica.state.instance, is_alone=replica.is_alone),
            replica.history,
            self.store,
            self.clock,
            config.replication,
            segment_bytes=config.store.segment_bytes,
        )
        self.closing = Closing(
            self.clock, broker_name=config.broker_name, grace_ms=config.closing_grace_ms
        )
        self.retired = RetiredTopics(
            self.folder.topics,
            self.store,
            self.clock,
            broker_name=config.broker_name,
            grace_ms=config.closing_grace_ms,
        )
        self.guard = Guard(
            self.folder.topics,
            broker_name=config.broker_name,
            authority=self.roles,
            closed=self.closing,
            retired=self.retired,
        )

    def _wire_reading(self) -> None:
        config, store = self.config, self.store
        self.reads = ReadPool(
            self.workers.reads,
            self.counters,
            self.clock,
            loop_delay=self.loop_delay,
            threads=config.read_threads_max,
            bytes_per_s=config.catch_up_bytes_per_s,
        )
        places = ReadPlaces(self.roles, store, slave_read_bytes=config.replication.slave_read_bytes)
        self.egress = Egress(
            self.guard,
            store,
            self.counters,
            pool=self.reads,
            places=places,
            finished_by=lambda *queue: self.folder.offsets.finished.of(*queue),
        )
        store.on_grown(self.egress.on_grown)
        self.queues = QueueReader(store, self.reads)
        self.lookup = MessageLookup(
            self.guard, store, self.reads, index_enabled=config.store.index_enabled
        )

    def _wire_sending(self) -> None:
        config, store, clock, roles = self.config, self.store, self.clock, self.roles
        self._limits = StreamLimits.of(
            config.replication, flush_is_sync=config.store.flush_mode is FlushMode.SYNC
        )
        self.sender = ReplicationSender(
            config.cluster,
            config.broker_name,
            roles,
            store,
            self.reads,
            TableSource(self.disk, self.workers.files),
            self._limits,
            clock,
        )
        ordered = self.workers.ordered
        self.flush = FlushThread(store, self.disk, clock, config.store, self.watch, ordered)
        self.minutes = AcknowledgedMinutes(epoch=lambda: roles.own_epoch, now_ms=clock.now_ms)
        kept = config.metrics
        self.traffic = Traffic(topics_max=kept.topics_max, consumers_max=kept.consumers_max)
        self.on_dead_letters: Callable[[str, str, int], None] = self.traffic.dead
        batches = AcknowledgedBatches((self.traffic.acknowledged, self.minutes.acknowledged))
        waiters, failed = timed_waiters(clock), self.on_store_failed
        self.durability = Durability(
            store, roles, batches, config.store, waiters, self.flush, self.sender, failed
        )
        self.flush.on_flushed(self.durability.on_flushed)
        roles.on_advanced(self.durability.look)
        self.appender = Appender(
            self.guard, store, batches, self.counters, self.durability.on_appended, failed
        )
        levels = DelayLevels(config.store.delay_levels_ms)
        tags = TagsCodes(delays_ms=levels.delays_ms)
        self.halves = opened_halves(self.folder.offsets, store, config.transactions.pending_max)
        self.timers = HandedTimers()
        self.ingest = Ingest(
            self.guard,
            self.appender,
            store.producers,
            self.counters,
            clock,
            delays=DelayRules(levels),
            halves=self.halves,
            timers=self.timers,
            limits=BatchLimits(body_bytes_min=1, batch_bytes_max=config.store.batch_bytes_max),
            store_host_ipv6=self.store_host.is_ipv6,
            tags=tags,
            waits=self.durability.waits,
        )
        self.encoder = MessageEncoder(
            self.guard, clock, self.chance, self.store_host, process_id=os.getpid()
        )
        self.writes = OwnWrites(
            self.appender,
            clock,
            store_host=self.store_host,
            limits=BatchLimits(batch_bytes_max=config.store.batch_bytes_max),
            tags=tags,
        )

    def _wire_following(self) -> None:
        config, folder, durability = self.config, self.folder, self.durability
        self.files = TableFiles(self.disk, self.clock, self.workers.files, watch=self.watch)
        self.files.on_written(self.sender.on_table_written)
        self.files.add(TOPICS_PATH, folder.topics)
        self.files.add(SUBSCRIPTION_GROUPS_PATH, folder.groups)
        self.replica_folder = ReplicaFolder(self.replica, self.files.write)
        self.follower = Follower(
            config.cluster,
            config.broker_name,
            self.replica.own,
            self.replica.state.instance,
            connector(self.access.credentials, self.tls.dialled),
            self.store,
            self.reads,
            SlaveSide(
                log_state=self.roles.log_state,
                adopt_history=partial(adopt_history, self.replica_folder, self.roles),
                on_appended=durability.on_copied,
                on_confirmed=durability.on_confirmed,
            ),
            TableCopies(folder.topics, folder.groups, self.files, self.workers.files),
            self._limits,
            self.clock,
        )
        self.flush.on_flushed(self.follower.on_flushed)

    # ------------------------------------------------------------------------------ features

    def _wire_groups(self) -> None:
        """Who consumes, of all kinds."""
        self.current_run = CurrentRun(
            partial(self.files.write, LEASES_PATH), on_lease_ended=self.egress.on_lease_ended
        )
        self.member_streams = MemberStreams()
        self.clients = ClientTable(self.clock)
        self.expressions = CompiledExpressions(turn=self.reads.loop_turns.turn)

    def _wire_features(self, kinds: Sequence[Kind[Wiring]]) -> None:
        """Those that others use get names."""
        self._made: dict[Any, Any] = {}
        self.beside: Beside | None = None
        self.producers_beside: Callable[[], Iterable[tuple[str, HeardProducer]]] = tuple
        progress = self.progress = self._feature(Progress)
        self.coordinator, self.known = progress.coordinator, progress.known
        self.journal, self.journal_state = progress.journal, progress.state
        self.offsets, self.removal = progress.offsets, progress.removal
        self.delays = self._feature(Delays)
        self.recurring = self._feature(Recurring)
        self.retries = self._feature(Retries)
        self.popping = self._feature(Popping)
        self.transactions = self._feature(Transactions)
        self.features: Sequence[Feature] = [self._feature(kind) for kind in kinds]
        progress.on_granting(self.retries.send_backs.wake)
        progress.on_offset_set(self.popping.offset_set)
        self.current_run.ownership.exclude_popped(
            self.popping.is_popped, self.popping.hand_overs.ask
        )
        add_own_topics(self.topics, self.own_topics)

    def _feature(self, kind: Callable[[Wiring, Any], F]) -> F:
        """Made when it is first asked for."""
        if kind not in self._made:
            self._made[kind] = kind(self, self.folder.features[kind])
        feature: F = self._made[kind]
        return feature

    def on_offset_set(self, told: Callable[[GroupQueue], None]) -> None:
        """Call this once a group's offset on a queue was set or removed on this master."""
        self.progress.on_offset_set(told)

    def serve_beside(self, beside: Beside) -> None:
        """What gets the connections on gRPC's ports that are not gRPC."""
        self.beside = beside

    def list_producers_beside(
        self, found: Callable[[], Iterable[tuple[str, HeardProducer]]]
    ) -> None:
        """Who produces over these connections, with addresses."""
        self.producers_beside = found

    def _wire_retention(self) -> None:
        folder, retention = self.folder, self.store.retention
        members = self.current_run.members
        self.readers = Readers(self.store, folder.topics, folder.offsets, members)
        unread = UnreadReaders(self.readers)
        self.cleaning = Cleaning(
            retention,
            (
                *(hold for feature in self.features for hold in feature.holds),
                GroupsHold(retention, unread),
            ),
            self.config.store.retention,
            self.flush.upkeep,
        )
        self.topic_keeping = TopicKeeping(
            folder.topics,
            self.store,
            self.offsets,
            unread,
            self.clock,
            self.flush.upkeep,
            interval_ms=self.config.store.retention.clean_interval_ms,
        )

    # ------------------------------------------------------------------------------ the role

    def _wire_cluster(self) -> None:
        config = self.config
        self.heartbeat_due = asyncio.Event()
        self.roles.on_doubt(self.heartbeat_due.set)
        self.address = OwnAddress(config.address or config.listen, config.outside.address)
        self.identity = identity_of(config, instance=self.replica.state.instance)
        self.channels = Channels(
            chance=self.chance,
            credentials=self.access.credentials,
            tls=self.tls.dialled,
            memory=self.memory.channels,
        )

    def _wire_duties(self) -> None:
        config, roles, store, clock = self.config, self.roles, self.store, self.clock
        registry = InSyncRegistry(config.nameservers, self.identity, self.channels)
        names = RequestNames(f"{config.broker_name}-{config.broker_id}-in-sync")
        self.proposer = InSyncProposer(roles, store, clock, registry.alter, names)
        self.duties = Duties(
            (
                self.durability,
                self.sender,
                OnChange(self.egress.wake_all),  # pulls that began under the other role end
                self.member_streams,
                *duties_of(self.features),
                self.proposer,
                OnChange(self.heartbeat_due.set),
            )
        )
        self.manager = RoleManager(
            roles,
            self.replica_folder,
            store,
            clock,
            self.chance,
            follower=self.follower,
            duties=self.duties,
            watch=self.watch,
            on_store_failed=self.on_store_failed,
        )
        roles.on_changed(self.manager.wake)
        roles.on_changed(self.proposer.wake)
        roles.on_changed(self.sender.on_replicas_changed)
        self.handover = Handover(roles, store, clock, self.duties, self.watch)
        roles.on_advanced(self.handover.wake)
        self.durability.listen(self.handover.wake)
        self.hung_disk = HungDisk(
            self.watch,
            roles,
            store,
            self.handover,
            probe=self.replica_folder.write_again,
            wake=self.manager.wake,
        )
        interval_s = config.replication.slow_handover_interval_ms / 1_000
        self.slow_loop = SlowLoop(
            self.loop_delay, roles, self.handover, clock, interval_s=interval_s
        )

    # ------------------------------------------------------------------------------ who asks

    def _wire_observation(self) -> None:
        roles, store, clock = self.roles, self.store, self.clock
        self.report = ReplicationReport(self.replica, roles, self.manager, self.follower)
        self.writability = Writability(self.guard, store, self.watch)
        self.state = BrokerState(self)
        self.snapshots = Snapshots(self)
        self.checksums = LogChecksums(store, self.reads)
        self.pull_service = PullService(
            self.egress,
            self.guard,
            self.counters,
            self.coordinator,
            clock,
            self.expressions,
            self.traffic.delivered,
        )
        self.pull_sessions: Callable[[], list[PullSession]] = self.pull_service.sessions
        self.times = StoreTimes(store, self.reads)
        self.unread = UnreadCounts(
            self.readers,
            self.coordinator.ownership.leases,
            self.pull_sessions,
            self.popping.queue,
        )
        self.lag = LagReading(self.unread, self.times)
        self.remaining = RemainingReading(self)
        self.totals = GroupTotals(self)

    def _wire_edges(self) -> None:
        self.rocketmq = RocketmqApi(self)
        self.own_edge: BrokerServer = BrokerServer(self)
        added = (edge for feature in self.features for edge in feature.edges)
        self.edges: Sequence[Edge] = [self.own_edge, *added]

    # ------------------------------------------------------------------------------ the run

    def _make_run(self, health: BrokerHealth, metrics: MetricsEndpoint) -> Run:
        reads, writability = self.store.reads, self.writability
        by_time = Timekeeper(
            self.clock, self.coordinator, reads, writability, self.heartbeat_due.set
        )
        save_tables = partial(self.files.keep_saving, self.config.snapshot_interval_ms / 1_000)
        return Run(
            self,
            tasks={
                "flush": self.flush.run,
                "cleaning": self.cleaning.run,
                "topic-keeping": self.topic_keeping.run,
                "time": by_time.run,
                "snapshots": save_tables,
                "group-totals": self.totals.run,
                "loop-delay": self.loop_delay.run,
                "collector-pauses": self.collector.run,
                ROLES_TASK: self.manager.run,
                "in-sync-set": self.proposer.run,
                "hung-disk": self.hung_disk.run,
                "slow-loop": self.slow_loop.run,
                "rocketmq-routes": self.rocketmq.run,
                **tasks_of(self.features),
            },
            health=health,
            readiness=Readiness(
                self.roles, self.store, self.report, self.follower, self.registration, self.watch
            ),
            metrics=metrics,
            figures=BrokerFigures(self, self.features),
        )


FEATURES: Final[tuple[Kind[Wiring], ...]] = (
    Progress,
    Delays,
    Recurring,
    Retries,
    Popping,
    Transactions,
    Tier,
    Remoting,
)
"""In order of dependence: each comes after those it uses. A feature is one entry here."""
