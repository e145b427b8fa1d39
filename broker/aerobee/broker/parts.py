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

from aerobee.broker.cleaning import Cleaning
from aerobee.broker.config import BrokerConfig
from aerobee.broker.consumer_offsets import ConsumerOffsets
from aerobee.broker.durability import Durability
from aerobee.broker.egress import Egress
from aerobee.broker.group_coordinator import GroupCoordinator
from aerobee.broker.group_state import GroupState
from aerobee.broker.guard import Guard, Role
from aerobee.broker.ingest import Ingest
from aerobee.broker.lease_journal import LEASES_PATH
from aerobee.broker.message_encoder import MessageEncoder
from aerobee.broker.message_lookup import MessageLookup
from aerobee.broker.opening import OpenedFolder
from aerobee.broker.queue_leases import QueueKey
from aerobee.broker.queue_reader import QueueReader
from aerobee.broker.read_pool import ReadPool
from aerobee.broker.stats import BrokerStatistics, Counters, LoopDelay, process_statistics
from aerobee.broker.store.config import FlushMode
from aerobee.broker.store.disk import Disk
from aerobee.broker.store.statistics import StoreState
from aerobee.broker.store.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    SubscriptionGroupConfig,
)
from aerobee.broker.table_files import TableFiles
from aerobee.broker.unread_readers import UnreadReaders
from aerobee.broker.watermarks import FlushWaiters
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MqError, StoreFailed
from aerobee.store_format.batch import BatchLimits
from aerobee.store_format.record_layout import HostAddress
from aerobee.store_format.tags import TagsCodes


@dataclass(frozen=True, slots=True)
class Threads:
    """Where works wait for the disk: small files never behind a reader that catches up."""

    reads: Executor
    files: Executor


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that serves, without the servers."""

    config: BrokerConfig
    clock: Clock
    folder: OpenedFolder
    guard: Guard
    counters: Counters
    loop_delay: LoopDelay
    egress: Egress
    waiters: FlushWaiters
    durability: Durability
    ingest: Ingest
    encoder: MessageEncoder
    queues: QueueReader
    lookup: MessageLookup
    cleaning: Cleaning
    group_state: GroupState
    coordinator: GroupCoordinator
    offsets: ConsumerOffsets
    files: TableFiles
    started_s: float

    def is_current(self, key: QueueKey, epoch: int) -> bool:
        """Whether a pull under this lease may go on."""
        self.coordinator.expire(self.clock.monotonic_s())
        return self.coordinator.is_current(key, epoch)

    async def save_offsets(self) -> None:
        """Return once the committed offsets are on disk; on a full one they wait in memory."""
        await self.files.save_if_room(CONSUMER_OFFSETS_PATH)

    def note_group(self, name: str) -> None:
        """A group is created by its first member."""
        if name not in self.folder.groups:
            self.folder.groups.put(SubscriptionGroupConfig(name=name))

    def not_writable_reason(self) -> str:
        """Why no messages are taken; empty if they are."""
        try:
            self.guard.check_master()
        except MqError as error:
            return str(error)
        state = self.folder.store.state
        if state is StoreState.WRITABLE:
            return ""
        return f"the store is {state}: {self.folder.store.retention.why_full}".rstrip(": ")

    def statistics(self) -> BrokerStatistics:
        reason = self.not_writable_reason()
        return BrokerStatistics(
            is_master=self.guard.role is Role.MASTER,
            epoch=self.guard.epoch,
            version=importlib.metadata.version("aerobee"),
            uptime_ms=int((self.clock.monotonic_s() - self.started_s) * 1_000),
            flush_mode=self.config.store.flush_mode.value,
            is_writable=not reason,
            not_writable_reason=reason,
            topics=len(self.folder.topics),
            groups=len({*self.coordinator.groups.names(), *self.offsets.groups()}),
            members=self.coordinator.groups.member_count,
            loop_delay_p99_ms=self.loop_delay.p99_ms(),
            counters=self.counters,
            store=self.folder.store.statistics(),
            process=process_statistics(),
        )


def assemble(
    config: BrokerConfig,
    folder: OpenedFolder,
    disk: Disk,
    threads: Threads,
    clock: Clock,
    chance: random.Random,
    *,
    store_host: HostAddress,
    on_store_failed: Callable[[StoreFailed], None],
) -> Parts:
    """Make every part and hand each the others that it needs."""
    store = folder.store
    counters = Counters()
    loop_delay = LoopDelay(clock)
    guard = Guard(folder.topics, broker_name=config.broker_name)
    reads = ReadPool(
        threads.reads,
        counters,
        clock,
        loop_delay=loop_delay,
        threads=config.read_threads_max,
        bytes_per_s=config.catch_up_bytes_per_s,
    )
    egress = Egress(guard, store, counters, pool=reads)
    waiters = _flush_waiters(store.flushed_end, clock)
    durability = Durability(store, egress, waiters, config.store)
    ingest = Ingest(
        guard,
        store,
        counters,
        limits=BatchLimits(body_bytes_min=1, batch_bytes_max=config.store.batch_bytes_max),
        store_host_ipv6=store_host.is_ipv6,
        tags=TagsCodes(delays_ms=config.store.delay_levels_ms),
        waits_for_flush=config.store.flush_mode is FlushMode.SYNC,
        on_appended=durability.on_appended,
        on_store_failed=on_store_failed,
    )
    files = _table_files(folder, disk, clock, threads.files)
    group_state = GroupState(
        folder.previous_run,
        folder.this_run,
        clock.monotonic_s(),
        lambda data: files.write(LEASES_PATH, data),
    )
    coordinator = _coordinator(group_state, egress)
    queues = QueueReader(store, reads)
    return Parts(
        config=config,
        clock=clock,
        folder=folder,
        guard=guard,
        counters=counters,
        loop_delay=loop_delay,
        egress=egress,
        waiters=waiters,
        durability=durability,
        ingest=ingest,
        encoder=MessageEncoder(guard, clock, chance, store_host, process_id=os.getpid()),
        queues=queues,
        lookup=MessageLookup(guard, store, reads, index_enabled=config.store.index_enabled),
        cleaning=_cleaning(config, folder, group_state),
        group_state=group_state,
        coordinator=coordinator,
        offsets=ConsumerOffsets(
            folder.offsets, coordinator, guard, clock, queue_max=queues.max_offset
        ),
        files=files,
        started_s=clock.monotonic_s(),
    )


def _flush_waiters(flushed_end: int, clock: Clock) -> FlushWaiters:
    """Waiters whose deadlines are timers of this loop."""
    loop = asyncio.get_running_loop()

    def wake_at(deadline_s: float) -> None:
        delay_s = max(0.0, deadline_s - clock.monotonic_s())
        loop.call_later(delay_s, lambda: waiters.on_time(clock.monotonic_s()))

    waiters = FlushWaiters(flushed_end, on_deadline_set=wake_at)
    return waiters


def _coordinator(group_state: GroupState, egress: Egress) -> GroupCoordinator:
    """Changes of membership are told once per turn of this loop."""
    loop = asyncio.get_running_loop()

    def push_views_soon() -> None:
        loop.call_soon(coordinator.push_views)

    coordinator = GroupCoordinator(
        group_state.groups,
        group_state.leases,
        on_lease_ended=egress.on_lease_ended,
        on_views_changed=push_views_soon,
    )
    return coordinator


def _cleaning(config: BrokerConfig, folder: OpenedFolder, group_state: GroupState) -> Cleaning:
    store = folder.store
    readers = UnreadReaders(folder.topics, folder.offsets, group_state.groups, store)
    return Cleaning(store.retention, readers, config.store.retention)


def _table_files(folder: OpenedFolder, disk: Disk, clock: Clock, pool: Executor) -> TableFiles:
    files = TableFiles(disk, clock, pool)
    files.add(TOPICS_PATH, folder.topics)
    files.add(SUBSCRIPTION_GROUPS_PATH, folder.groups)
    files.add(CONSUMER_OFFSETS_PATH, folder.offsets)
    return files
