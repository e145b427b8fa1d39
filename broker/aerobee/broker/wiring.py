"""The broker's composition root: the only file that knows every part.

Each part is made once, after those it uses; of two that need each other, one has an `on_...`.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

from aerobee.access.node import NodeAccess
from aerobee.broker.cluster.closing import Closing
from aerobee.broker.cluster.cluster_link import identity_of
from aerobee.broker.cluster.in_sync_registry import InSyncRegistry
from aerobee.broker.cluster.own_address import OwnAddress
from aerobee.broker.cluster.wired import make_channels, make_leavers, make_registration
from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.config import BrokerConfig
from aerobee.broker.counters import Counters
from aerobee.broker.delayed.wired import Delays
from aerobee.broker.edge.own.audit_service import AuditService
from aerobee.broker.edge.own.group_service import GroupService
from aerobee.broker.edge.own.pull_service import PullService
from aerobee.broker.edge.own.send_service import SendService
from aerobee.broker.edge.own.wired import admin_service, offset_service
from aerobee.broker.edge.replicas.replication_client import connector
from aerobee.broker.edge.replicas.replication_service import ReplicationService
from aerobee.broker.edge.rocketmq.wired import RocketmqApi
from aerobee.broker.edge.server import BrokerServer, count_acknowledged, promise_of
from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.known_groups import KnownGroups
from aerobee.broker.groups.member_streams import MemberStreams
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.run_record import LEASES_PATH
from aerobee.broker.journal.log import JournalLog
from aerobee.broker.observe.audit.acknowledged_minutes import AcknowledgedMinutes
from aerobee.broker.observe.audit.log_checksums import LogChecksums
from aerobee.broker.observe.broker_state import BrokerState, Writability
from aerobee.broker.observe.health import BrokerHealth
from aerobee.broker.observe.metrics.traffic import Traffic
from aerobee.broker.observe.metrics.wired import make_figures
from aerobee.broker.observe.wired import make_readiness, make_snapshots
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.broker.offsets.group_expiry import DAY_MS, GroupExpiry
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.offsets.journal import OffsetJournal, RunIdentity
from aerobee.broker.offsets.snapshot_order import flush_what_was_sent_back
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.offsets.topic_ends import TopicEnds
from aerobee.broker.opened import Opened
from aerobee.broker.own_topics import add_own_topics
from aerobee.broker.popping.wired import Popping
from aerobee.broker.reading.egress import Egress
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.duties import Duties, OnChange
from aerobee.broker.replication.follower import Follower
from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.in_sync_proposer import InSyncProposer
from aerobee.broker.replication.log_copy import SlaveSide
from aerobee.broker.replication.mastership import Mastership
from aerobee.broker.replication.read_places import ReadPlaces
from aerobee.broker.replication.replica_folder import ReplicaFolder
from aerobee.broker.replication.report import ReplicationReport
from aerobee.broker.replication.role_manager import RoleManager, adopt_history
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.sender import ReplicationSender
from aerobee.broker.replication.table_copies import TableCopies
from aerobee.broker.replication.table_source import TableSource
from aerobee.broker.retention.cleaning import Cleaning
from aerobee.broker.retention.holds import GroupsHold, JournalHold
from aerobee.broker.retention.unread_readers import UnreadReaders
from aerobee.broker.retries.wired import Retries
from aerobee.broker.run import ROLES_TASK, Edge, Failure, Run, Timekeeper
from aerobee.broker.sending.acknowledged import AcknowledgedBatches
from aerobee.broker.sending.append import Appender
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.ingest import Ingest
from aerobee.broker.sending.message_encoder import MessageEncoder
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.sending.watermarks import timed_waiters
from aerobee.broker.transactions.known import opened_halves
from aerobee.broker.transactions.wired import Transactions
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.rpc.metrics_endpoint import MetricsEndpoint
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.rpc.tls import NodeTls
from aerobee.runtime.call_context import RequestNames
from aerobee.runtime.clock import Clock
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.runtime.metrics.rpc_latencies import RpcLatencies
from aerobee.store.engine.config import FlushMode
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
)
from aerobee.store.flush.disk_watch import DiskWatch
from aerobee.store.flush.flush_thread import FlushThread
from aerobee.store.flush.table_files import TableFiles
from aerobee.store.flush.workers import DiskWorkers
from aerobee.store.format.batch import BatchLimits
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.delayed_records import DelayRules
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.tags import TagsCodes


class Wiring:
    """The parts of one run over an opened folder; `run` sets them to work."""

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
        mounts: Sequence[Mount] = (),
    ) -> None:
        """`workers` wait for the disk. `mounts` add protocols beside our own."""
        self.config, self.store_host, self.loop_delay = config, store_host, LoopDelay(clock)
        self.clock, self.chance, self._disk, self._workers = clock, chance, disk, workers
        self.folder, self.replica, self.store = opened.folder, opened.replica, opened.folder.store
        self.failure, self.counters, self.latencies = Failure(), Counters(), RpcLatencies()
        self.watch = DiskWatch(clock, hung_after_s=config.store.disk_hung_after_ms / 1_000)
        self.peer_limits, self.memory, self.tls, self.access = peer_limits, memory, tls, access
        self._wire_role()
        self._wire_reading(workers.reads)
        self._wire_sending()
        self._wire_following()
        self._wire_journal()
        self.delays = Delays(self.folder.delays, self, disk, workers.reads)
        self._wire_groups()
        self._wire_duties()
        self._wire_observation()
        self.rocketmq = RocketmqApi(self)
        self._wire_own_edge()
        self.registration = make_registration(self)
        self.edges: list[Edge] = [self.own_edge, *(mount(self) for mount in mounts)]
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
        self.guard = Guard(
            self.folder.topics,
            broker_name=config.broker_name,
            authority=self.roles,
            closed=self.closing,
        )
        self.heartbeat_due = asyncio.Event()
        self.roles.on_doubt(self.heartbeat_due.set)

    def _wire_reading(self, reads: Executor) -> None:
        config, store = self.config, self.store
        self.reads = ReadPool(
            reads,
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
            TableSource(self._disk, self._workers.files),
            self._limits,
            clock,
        )
        ordered = self._workers.ordered
        self.flush = FlushThread(store, self._disk, clock, config.store, self.watch, ordered)
        self.minutes = AcknowledgedMinutes(epoch=lambda: roles.own_epoch, now_ms=clock.now_ms)
        kept = config.metrics
        self.traffic = Traffic(topics_max=kept.topics_max, consumers_max=kept.consumers_max)
        batches = AcknowledgedBatches((self.traffic.acknowledged, self.minutes.acknowledged))
        waiters, failed = timed_waiters(clock), self.failure.report
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
        self.ingest = Ingest(
            self.guard,
            self.appender,
            store.producers,
            self.counters,
            clock,
            delays=DelayRules(levels),
            halves=self.halves,
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
        self.files = TableFiles(
            self._disk, self.clock, self._workers.files, self._on_table_written, watch=self.watch
        )
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
            TableCopies(folder.topics, folder.groups, self.files, self._workers.files),
            self._limits,
            self.clock,
        )
        self.flush.on_flushed(self.follower.on_flushed)

    def _on_table_written(self, path: str) -> None:
        self.sender.on_table_written(path)
        self.topic_ends.wake()  # a slave learns of deleted topics from its master's table

    # ------------------------------------------------------------------------------ groups

    def _wire_journal(self) -> None:
        config, folder, clock, run = self.config, self.folder, self.clock, self.folder.this_run
        self.current_run = CurrentRun(
            partial(self.files.write, LEASES_PATH),
            on_lease_ended=self.egress.on_lease_ended,
            is_popped=lambda key: self.popping.is_popped(key),
            on_popped_wanted=lambda key: self.popping.hand_overs.ask(key),
        )
        self.coordinator = GroupCoordinator(
            self.current_run.members,
            self.current_run.ownership,
            call_soon=asyncio.get_running_loop().call_soon,
            is_acting=self.roles.may_act,
        )
        journal_log = JournalLog(
            JOURNAL_TOPIC,
            self.store,
            self.durability,
            self.roles,
            self.reads,
            self.writes,
            on_store_failed=self.failure.report,
        )
        self.journal_state = OffsetJournalState(
            folder.offsets,
            journal_end=journal_log.records_end,
            now_ms=clock.now_ms(),
            on_group_removed=folder.groups.remove,
            on_topic_ended=lambda: self.topic_ends.wake(),
        )
        self.journal = OffsetJournal(
            self.journal_state,
            journal_log,
            self.current_run,
            clock,
            run=RunIdentity(
                run.boot_id, config.broker_id, folder.previous_run, run_number_min=run.run_number
            ),
            image_interval_bytes=config.store.segment_bytes,
            on_reset=self._on_offset_set,
            on_term=self._on_granting,
        )
        self.files.add(
            CONSUMER_OFFSETS_PATH,
            folder.offsets,
            on_saved=self.journal.on_table_saved,
            before_write=partial(flush_what_was_sent_back, self.journal_state, self.durability),
        )
        add_own_topics(folder.topics, delay_levels=len(config.store.delay_levels_ms))

    def _on_offset_set(self, key: GroupQueue) -> None:
        self.coordinator.ownership.revoke(key)
        self.popping.offset_set(key)

    def _on_granting(self, views_held_back_s: float) -> None:
        self.topic_ends.wake()
        self.retries.send_backs.wake()
        self.coordinator.begin_run(views_held_back_s)

    def _wire_groups(self) -> None:
        """What may be committed, which groups may exist, and how groups and topics end."""
        config, folder, clock = self.config, self.folder, self.clock
        self.member_streams = MemberStreams()
        self.known = KnownGroups(folder.groups, folder.offsets, groups_max=config.groups.max)
        self.offsets = ConsumerOffsets(
            folder.offsets,
            self.journal,
            self.coordinator,
            self.guard,
            clock,
            queue_max=self.queues.max_offset,
            admit=self.known.admit,
        )
        self.removal = GroupRemoval(
            folder.offsets,
            folder.groups,
            self.journal,
            self.coordinator,
            clock,
            save_configs=partial(self.files.save_if_room, SUBSCRIPTION_GROUPS_PATH),
        )
        self.expiry = GroupExpiry(
            folder.groups,
            folder.offsets,
            folder.topics,
            self.coordinator,
            self.journal,
            self.removal,
            clock,
            expire_after_ms=config.groups.expire_after_days * DAY_MS,
            bounds=self.queues.bounds,
        )
        self.topic_ends = TopicEnds(
            folder.topics,
            self.journal_state,
            self.journal,
            self.coordinator,
            self.store,
            self.reads,
            clock,
            save=partial(self.files.save_if_room, TOPICS_PATH),
        )
        self.flush.on_flushed(lambda _: self.topic_ends.wake())
        self.retries = Retries(self)
        self.popping = Popping(
            self, held_until_ms=lambda *taken: self.rocketmq.clients.held_until_ms(*taken)
        )
        self.transactions = Transactions(self)
        retention = self.store.retention
        readers = UnreadReaders(folder.topics, folder.offsets, self.current_run.members, self.store)
        self.cleaning = Cleaning(
            retention,
            (
                JournalHold(self.journal, partial(self.files.save_if_room, CONSUMER_OFFSETS_PATH)),
                self.delays.hold,
                JournalHold(self.delays.journal, self.delays.progress_file.save_if_room),
                self.popping.hold,
                self.transactions.hold,
                GroupsHold(retention, readers),
                self.retries.hold,
            ),
            config.store.retention,
            self.flush.upkeep,
        )

    # ------------------------------------------------------------------------------ the role

    def _wire_duties(self) -> None:
        config, roles, store, clock = self.config, self.roles, self.store, self.clock
        self.address = OwnAddress(config.address or config.listen, config.outside.address)
        self.identity = identity_of(config, instance=self.replica.state.instance)
        self.channels = make_channels(self)
        registry = InSyncRegistry(config.nameservers, self.identity, self.channels)
        names = RequestNames(f"{config.broker_name}-{config.broker_id}-in-sync")
        self.proposer = InSyncProposer(roles, store, clock, registry.alter, names)
        self.duties = Duties(
            (
                self.durability,
                self.sender,
                OnChange(self.egress.wake_all),  # pulls that began under the other role end
                self.member_streams,
                *(self.transactions, self.popping),  # they tell the offset journal their progress
                self.journal,
                self.popping.journal,
                self.delays.duty,
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
            on_store_failed=self.failure.report,
        )
        roles.on_changed(self.manager.wake)
        roles.on_changed(self.proposer.wake)
        roles.on_changed(self.sender.on_replicas_changed)
        self.handover = Handover(roles, store, clock, self.duties, self.watch)
        roles.on_advanced(self.handover.wake)
        self.durability.listen(self.handover.wake)
        self.hung_disk, self.slow_loop = make_leavers(self)

    # ------------------------------------------------------------------------------ who asks

    def _wire_observation(self) -> None:
        roles, coordinator, offsets = self.roles, self.coordinator, self.offsets
        self.report = ReplicationReport(self.replica, roles, self.manager, self.follower)
        self.writability = Writability(self.guard, self.store, self.watch)
        self.state = BrokerState(
            self.config,
            self.clock,
            roles,
            self.store,
            self.folder.topics,
            coordinator,
            offsets,
            self.writability,
            self.report,
            self.counters,
            self.loop_delay,
        )
        self.snapshots = make_snapshots(self)
        self.checksums = LogChecksums(self.store, self.reads)

    def _wire_own_edge(self) -> None:
        config, guard, clock, stats = self.config, self.guard, self.clock, self.state.now
        delivered, expressions = self.traffic.delivered, self.rocketmq.expressions
        self.pull_service = PullService(
            self.egress, guard, self.counters, self.coordinator, clock, expressions, delivered
        )
        self.own_edge: BrokerServer = BrokerServer(
            config,
            clock,
            self.latencies,
            self.peer_limits,
            self.memory,
            self.tls,
            access=self.access,
            send=SendService(
                self.ingest,
                self.encoder,
                self.durability,
                self.counters,
                clock,
                promise=promise_of(config),
                on_acknowledged=partial(count_acknowledged, self.latencies),
            ),
            schedule=self.delays.schedule,
            transactions=self.transactions,
            pull=self.pull_service,
            rings=self.rocketmq.ring_service,
            offsets=offset_service(self),
            groups=GroupService(
                self.coordinator,
                self.offsets,
                clock,
                streams=self.member_streams,
                removal=self.removal,
                sessions=config.sessions,
                on_session_timeout=self.current_run.promise_session,
                on_group=self.known.admit,
                settings=self.retries.settings,
                make_topics=self.retries.topics.make_subscribed,
                bounds=self.queues.bounds,
                clients=self.rocketmq.clients,
                expressions=expressions,
                turns=self.reads.loop_turns,
            ),
            admin=admin_service(self),
            audit=AuditService(
                self.identity, stats, guard, self.roles, self.snapshots, self.checksums
            ),
            replication=ReplicationService(self.sender),
            rocketmq=self.rocketmq.service,
        )

    # ------------------------------------------------------------------------------ the run

    def _make_run(self, health: BrokerHealth, metrics: MetricsEndpoint) -> Run:
        config, roles, store = self.config, self.roles, self.store
        by_time = Timekeeper(
            self.clock,
            self.coordinator,
            store.reads,
            self.writability,
            self.heartbeat_due.set,
        )
        return Run(
            config,
            self.clock,
            self.edges,
            tasks={
                "flush": self.flush.run,
                "cleaning": self.cleaning.run,
                "time": by_time.run,
                "group-expiry": self.expiry.run,
                "snapshots": lambda: self.files.keep_saving(config.snapshot_interval_ms / 1_000),
                "loop-delay": self.loop_delay.run,
                ROLES_TASK: self.manager.run,
                "in-sync-set": self.proposer.run,
                "hung-disk": self.hung_disk.run,
                "slow-loop": self.slow_loop.run,
                "offset-journal": self.journal.run,
                "topic-ends": self.topic_ends.run,
                "delays": self.delays.run,
                "pop": self.popping.run,
                "transactions": self.transactions.run,
                "send-backs": self.retries.send_backs.run,
                "rocketmq-routes": self.rocketmq.run,
            },
            health=health,
            readiness=make_readiness(self),
            metrics=metrics,
            figures=make_figures(self),
            address=self.address,
            registration=self.registration,
            channels=self.channels,
            failure=self.failure,
            guard=self.guard,
            store=store,
            files=self.files,
            folder=self.replica_folder,
            durability=self.durability,
            roles=roles,
            manager=self.manager,
            duties=self.duties,
            journal=self.journal,
            delays=self.delays,
            popping=self.popping,
        )


Mount = Callable[[Wiring], Edge]
"""Makes an edge over a broker's parts: another protocol beside our own."""
