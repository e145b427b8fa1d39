"""The broker's parts, put together: which part knows which others stands here and nowhere else.

Owns: nothing at run time. `assemble` is called once, on the loop, with an opened folder.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import random
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from aerobee.broker.config import BrokerConfig
from aerobee.broker.flush.table_files import TableFiles
from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.observe.audit.acknowledged_minutes import AcknowledgedMinutes
from aerobee.broker.observe.audit.log_checksums import LogChecksums
from aerobee.broker.observe.audit.snapshots import Snapshots
from aerobee.broker.observe.metrics.traffic import Traffic
from aerobee.broker.observe.stats import BrokerStatistics, Counters, LoopDelay, process_statistics
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.broker.offsets.parts import Around, Groups, assemble_groups
from aerobee.broker.reading.egress import Egress
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.reading.read_pool import ReadPool
from aerobee.broker.replication.opening import OpenedFolder
from aerobee.broker.replication.read_places import ReadPlaces
from aerobee.broker.replication.replica_folder import OpenedReplica
from aerobee.broker.replication_parts import (
    Cluster,
    Replication,
    Shared,
    assemble_replication,
    roles_of,
)
from aerobee.broker.retention.cleaning import Cleaning
from aerobee.broker.retention.holds import GroupsHold, JournalHold, PendingHold
from aerobee.broker.retention.unread_readers import UnreadReaders
from aerobee.broker.sending.acknowledged import AcknowledgedBatches
from aerobee.broker.sending.append import Appender
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard, Role
from aerobee.broker.sending.ingest import Ingest
from aerobee.broker.sending.message_encoder import MessageEncoder
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.broker.store.disk import Disk
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.store.statistics import StoreState
from aerobee.broker.store.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
)
from aerobee.broker.threads import Threads
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MqError, StoreFailed
from aerobee.runtime.metrics.rpc_latencies import RpcLatencies
from aerobee.store_format.batch import BatchLimits
from aerobee.store_format.record_layout import HostAddress
from aerobee.store_format.tags import TagsCodes


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that serves, without the servers."""

    config: BrokerConfig
    clock: Clock
    folder: OpenedFolder
    guard: Guard
    counters: Counters
    traffic: Traffic
    latencies: RpcLatencies
    loop_delay: LoopDelay
    egress: Egress
    reads: ReadPool
    durability: Durability
    replication: Replication
    ingest: Ingest
    encoder: MessageEncoder
    queues: QueueReader
    lookup: MessageLookup
    cleaning: Cleaning
    current_run: CurrentRun
    coordinator: GroupCoordinator
    journal: OffsetJournal
    offsets: ConsumerOffsets
    groups: Groups
    files: TableFiles
    snapshots: Snapshots
    checksums: LogChecksums
    started_s: float

    def is_current(self, key: GroupQueue, epoch: int) -> bool:
        """Whether a pull under this lease may go on."""
        self.coordinator.expire(self.clock.monotonic_s())
        return self.coordinator.ownership.leases.is_current(key, epoch)

    def not_writable_reason(self) -> str:
        """Why no messages are taken; empty if they are."""
        try:
            self.guard.check_master()
        except MqError as error:
            return str(error)
        return self.no_room_reason()

    def no_room_reason(self) -> str:
        """Why this replica could take no messages if it were master; empty if it could."""
        try:
            self.guard.check_available()
        except MqError as error:
            return str(error)
        state = self.folder.store.state
        if state is StoreState.WRITABLE:
            return ""
        return f"the store is {state}: {self.folder.store.retention.why_full}".rstrip(": ")

    def statistics(self) -> BrokerStatistics:
        reason = self.not_writable_reason()
        store = self.folder.store.statistics()
        now_s = self.clock.monotonic_s()
        return BrokerStatistics(
            is_master=self.guard.role is Role.MASTER,
            epoch=self.guard.epoch,
            version=importlib.metadata.version("aerobee"),
            uptime_ms=int((now_s - self.started_s) * 1_000),
            flush_mode=self.config.store.flush_mode.value,
            is_writable=not reason,
            not_writable_reason=reason,
            # The journal is nobody's but ours.
            topics=len(self.folder.topics) - (JOURNAL_TOPIC in self.folder.topics),
            groups=len({*self.coordinator.members.names(), *self.offsets.groups()}),
            members=self.coordinator.members.member_count,
            loop_delay_p99_ms=self.loop_delay.p99_ms(),
            counters=self.counters,
            store=store,
            replication=self.replication.statistics(store.appended_end, now_s),
            process=process_statistics(),
        )


def assemble(
    config: BrokerConfig,
    folder: OpenedFolder,
    replica: OpenedReplica,
    disk: Disk,
    threads: Threads,
    clock: Clock,
    chance: random.Random,
    cluster: Cluster,
    *,
    store_host: HostAddress,
    on_store_failed: Callable[[StoreFailed], None],
) -> Parts:
    """Make every part and hand each the others that it needs."""
    store = folder.store
    counters = Counters()
    loop_delay = LoopDelay(clock)
    roles = roles_of(config, replica, store, clock)
    guard = Guard(folder.topics, broker_name=config.broker_name, authority=roles)
    reads = _read_pool(config, threads, counters, clock, loop_delay)
    places = ReadPlaces(roles, store, slave_read_bytes=config.replication.slave_read_bytes)
    egress = Egress(guard, store, counters, pool=reads, places=places)
    store.on_grown(egress.on_grown)
    minutes = AcknowledgedMinutes(epoch=lambda: guard.epoch, now_ms=clock.now_ms)
    metrics = config.metrics
    traffic = Traffic(topics_max=metrics.topics_max, consumers_max=metrics.consumers_max)
    batches = AcknowledgedBatches((traffic.acknowledged, minutes.acknowledged))
    durability = Durability(store, roles, batches, config.store, _end_waiters(clock))
    appender = Appender(guard, store, batches, counters, durability.on_appended, on_store_failed)
    ingest = _ingest(config, guard, appender, store, counters, durability, store_host)
    writes = _own_writes(config, appender, clock, store_host)
    files = _table_files(folder, disk, clock, threads.files)
    shared = Shared(folder, guard, egress, durability, reads, files, disk, threads, clock, chance)
    replication = assemble_replication(config, replica, roles, shared, cluster, on_store_failed)
    queues = QueueReader(store, reads)
    around = Around(folder, guard, roles, durability, writes, egress, reads, queues, files, clock)
    groups = assemble_groups(config, around, on_store_failed=on_store_failed)
    return Parts(
        config=config,
        clock=clock,
        folder=folder,
        guard=guard,
        counters=counters,
        traffic=traffic,
        latencies=RpcLatencies(),
        loop_delay=loop_delay,
        egress=egress,
        reads=reads,
        durability=durability,
        replication=replication,
        ingest=ingest,
        encoder=MessageEncoder(guard, clock, chance, store_host, process_id=os.getpid()),
        queues=queues,
        lookup=MessageLookup(guard, store, reads, index_enabled=config.store.index_enabled),
        cleaning=_cleaning(config, folder, groups, files),
        current_run=groups.state,
        coordinator=groups.coordinator,
        journal=groups.journal,
        offsets=groups.offsets,
        groups=groups,
        files=files,
        snapshots=Snapshots(
            folder, groups.coordinator, groups.offsets, roles, minutes, reads, clock
        ),
        checksums=LogChecksums(store, reads),
        started_s=clock.monotonic_s(),
    )


def _read_pool(
    config: BrokerConfig, threads: Threads, counters: Counters, clock: Clock, delay: LoopDelay
) -> ReadPool:
    return ReadPool(
        threads.reads,
        counters,
        clock,
        loop_delay=delay,
        threads=config.read_threads_max,
        bytes_per_s=config.catch_up_bytes_per_s,
    )


def _ingest(
    config: BrokerConfig,
    guard: Guard,
    appender: Appender,
    store: MessageStore,
    counters: Counters,
    durability: Durability,
    store_host: HostAddress,
) -> Ingest:
    return Ingest(
        guard,
        appender,
        store.producers,
        counters,
        limits=BatchLimits(body_bytes_min=1, batch_bytes_max=config.store.batch_bytes_max),
        store_host_ipv6=store_host.is_ipv6,
        tags=TagsCodes(delays_ms=config.store.delay_levels_ms),
        waits=durability.waits,
    )


def _own_writes(
    config: BrokerConfig, appender: Appender, clock: Clock, store_host: HostAddress
) -> OwnWrites:
    return OwnWrites(
        appender,
        clock,
        store_host=store_host,
        limits=BatchLimits(batch_bytes_max=config.store.batch_bytes_max),
        tags=TagsCodes(delays_ms=config.store.delay_levels_ms),
    )


def _end_waiters(clock: Clock) -> Callable[[int], EndWaiters]:
    """Makes waiters whose deadlines are timers of this loop."""
    loop = asyncio.get_running_loop()

    def make(end: int) -> EndWaiters:
        timer: asyncio.TimerHandle | None = None

        def wake_at(deadline_s: float) -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
            delay_s = max(0.0, deadline_s - clock.monotonic_s())
            timer = loop.call_later(delay_s, lambda: waiters.on_time(clock.monotonic_s()))

        waiters = EndWaiters(end, on_deadline_set=wake_at)
        return waiters

    return make


def _cleaning(
    config: BrokerConfig, folder: OpenedFolder, groups: Groups, files: TableFiles
) -> Cleaning:
    store = folder.store
    readers = UnreadReaders(folder.topics, folder.offsets, groups.state.members, store)

    async def save() -> None:
        await files.save_if_room(CONSUMER_OFFSETS_PATH)

    holds = (
        JournalHold(groups.journal, save),
        PendingHold(store.retention, folder.offsets),
        GroupsHold(store.retention, readers),
    )
    return Cleaning(store.retention, holds, config.store.retention)


def _table_files(folder: OpenedFolder, disk: Disk, clock: Clock, pool: Executor) -> TableFiles:
    files = TableFiles(disk, clock, pool)
    files.add(TOPICS_PATH, folder.topics)
    files.add(SUBSCRIPTION_GROUPS_PATH, folder.groups)
    return files
