"""One replica set in a process: real stores, real gRPC, and a role decided by the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.edge.replicas.replication_client import connect_to_master
from aerobee.broker.edge.replicas.replication_service import (
    SERVICE_NAME,
    ReplicationService,
    add_replication_service,
)
from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.duties import Duty
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.follower import Connect, Follower
from aerobee.broker.replication.joining import LogState
from aerobee.broker.replication.log_copy import SlaveSide
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName, TermPolicy
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.broker.replication.sender import ReplicationSender
from aerobee.broker.replication.table_copies import TableCopies
from aerobee.broker.replication.table_source import TableSource
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import DuplicateBroker, NotMaster, StaleEpoch, Unreachable
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.disk import Disk, RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.tables.config_tables import (
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    SubscriptionGroupTable,
    TopicTable,
)
from aerobee.store.flush.flush_thread import FlushThread
from aerobee.store.flush.table_files import TableFiles

KIB = 1024
MIB = 1024 * KIB
CLUSTER, GROUP = "test", "broker-a"

STORE = StoreConfig(
    segment_bytes=4 * MIB,
    disk_free_bytes_min=0,
    flush_interval_ms=50,
    retention=RetentionConfig(enabled=False),
)


@dataclass
class ToldRoles:
    """The master's role, as set by a test; its term is a real one."""

    store: MessageStore
    segment_bytes: int
    history: EpochHistory = field(default_factory=lambda: EpochHistory.of([(1, 0)]))
    term: MasterTerm | None = None
    replica_set: ReplicaSetView | None = None
    replicas: set[int] = field(default_factory=lambda: {1, 2})
    instances: dict[int, str] = field(default_factory=dict)
    """Registered processes; for a replica not listed here every process counts."""
    duty: Duty | None = None
    """Notified of the terms."""
    events: list[tuple[str, ReplicaName]] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)
    on_confirmed: Callable[[], None] = lambda: None

    def begin_term(self, epoch: int = 1, in_sync: tuple[ReplicaName, ...] = ()) -> MasterTerm:
        """Master under `epoch`, which must already be in the history."""
        own = ReplicaName(0, "master")
        self.term = MasterTerm(
            epoch=epoch,
            own=own,
            in_sync=(own, *in_sync),
            revision=1,
            log_end=self.store.appended_end,
            confirmed_end=self.store.confirmed_end,
            policy=TermPolicy(),
            now_s=0.0,
        )
        if self.duty is not None:
            self.duty.begin(self.term)
        return self.term

    def end_term(self) -> None:
        self.term = None
        if self.duty is not None:
            self.duty.end()

    @property
    def epoch(self) -> int:
        return self.history.latest_epoch

    def log_state(self) -> LogState:
        store = self.store
        return LogState(
            store.min_offset,
            store.appended_end,
            self.history,
            self.segment_bytes,
            store.confirmed_end,
        )

    def is_registered(self, name: ReplicaName, instance: str) -> bool:
        return self.instances.get(name.broker_id, instance) == instance

    def check_joining(self, name: ReplicaName, instance: str, epoch: int) -> None:
        if self.term is None:
            raise NotMaster("this replica is a slave; ask the route again")
        if epoch != self.term.epoch:
            if epoch > self.term.epoch:
                self.heard_epoch(epoch)
            raise StaleEpoch(f"epoch {epoch} is not {self.term.epoch}")
        if name.broker_id not in self.replicas:
            raise NotMaster(f"replica {name.broker_id} must register first")
        if not self.is_registered(name, instance):
            raise DuplicateBroker("another process is registered")

    def replica_joined(self, name: ReplicaName, end: int) -> None:
        self.events.append(("joined", name))
        if self.term is not None:
            self.term.joined(name, end, self.store.appended_end, 0.0)
            self.advance()

    def replica_acknowledged(self, name: ReplicaName, end: int) -> None:
        assert self.term is not None, "nothing counts without a term"
        self.term.acknowledged(name, end, self.store.appended_end, 0.0)
        self.advance()

    def replica_left(self, name: ReplicaName) -> None:
        self.events.append(("left", name))
        if self.term is not None:
            self.term.left(name)

    def heard_epoch(self, epoch: int) -> None:
        self.heard.append(epoch)

    def advance(self) -> None:
        """Confirm what the in-sync set has."""
        if self.term is not None:
            end = self.term.confirm(self.store.appended_end)
            if end > self.store.confirmed_end:
                self.store.confirm(end)
                self.on_confirmed()


@dataclass
class Replica:
    """One store with its threads."""

    store: MessageStore
    config: StoreConfig
    disk: Disk
    files: ThreadPoolExecutor
    flush: FlushThread


@asynccontextmanager
async def running_replica(root: Path | Disk, config: StoreConfig = STORE) -> AsyncIterator[Replica]:
    if isinstance(root, Path):
        root.mkdir(parents=True, exist_ok=True)
    disk = RealDisk(root) if isinstance(root, Path) else root
    clock = SystemClock()
    store = MessageStore.open(disk, clock, config)
    flush = FlushThread(store, disk, clock, config)
    with ThreadPoolExecutor(2) as files:
        running = asyncio.create_task(flush.run())
        await asyncio.sleep(0)
        try:
            yield Replica(store, config, disk, files, flush)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            store.close()


def read_pool(replica: Replica, counters: Counters) -> ReadPool:
    clock = SystemClock()
    return ReadPool(
        replica.files, counters, clock, loop_delay=LoopDelay(clock), threads=2, bytes_per_s=0
    )


class Master:
    """A replica that serves the replication stream."""

    def __init__(self, replica: Replica, limits: StreamLimits) -> None:
        clock = SystemClock()
        self.replica = replica
        self.store = replica.store
        self.roles = ToldRoles(replica.store, replica.config.segment_bytes)
        self.counters = Counters()
        pool = read_pool(replica, self.counters)
        tables = TableSource(replica.disk, replica.files)
        self.sender = ReplicationSender(
            CLUSTER, GROUP, self.roles, self.store, pool, tables, limits, clock
        )
        self.roles.on_confirmed = self.sender.on_confirmed
        self.roles.duty = self.sender
        self.address = ""

    def append(self, batch: Any, queue_id: int = 0) -> int:
        """Append and notify everyone; returns the log's end."""
        end = self.store.append(batch, queue_id=queue_id).end
        self.appended()
        return end

    def appended(self) -> None:
        self.roles.advance()
        self.replica.flush.appended()
        self.sender.on_appended()


@asynccontextmanager
async def running_master(
    root: Path | Disk, config: StoreConfig = STORE, **limits: Any
) -> AsyncIterator[Master]:
    """A master under epoch 1, alone in sync."""
    async with running_replica(root, config) as replica:
        master = Master(replica, StreamLimits(**limits))
        server = RpcServer(say_error, [SERVICE_NAME])
        add_replication_service(ReplicationService(master.sender), server.server)
        master.address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
        master.roles.begin_term()
        try:
            yield master
        finally:
            await server.stop(0)


class Slave:
    """A replica that follows."""

    def __init__(
        self,
        replica: Replica,
        limits: StreamLimits,
        *,
        broker_id: int,
        instance: str,
        connect: Connect,
        cluster: str,
    ) -> None:
        self.replica = replica
        self.store = replica.store
        self.history = EpochHistory()
        self.adopted: list[EpochHistory] = []
        self.known_confirmed_end = 0
        self.topics = TopicTable()
        self.groups = SubscriptionGroupTable()
        self.name = ReplicaName(broker_id, f"incarnation-{broker_id}")
        clock = SystemClock()
        files = TableFiles(replica.disk, clock, replica.files)
        files.add(TOPICS_PATH, self.topics)
        files.add(SUBSCRIPTION_GROUPS_PATH, self.groups)
        self.tables = TableCopies(self.topics, self.groups, files, replica.files)
        self.follower = Follower(
            cluster,
            GROUP,
            self.name,
            instance,
            connect,
            replica.store,
            read_pool(replica, Counters()),
            SlaveSide(
                log_state=self.log_state,
                adopt_history=lambda history: self.adopt(history),
                on_appended=replica.flush.appended,
                on_confirmed=self.on_confirmed,
            ),
            self.tables,
            limits,
            clock,
        )
        replica.flush.on_flushed(self.follower.on_flushed)
        self._running: asyncio.Task[Any] | None = None
        self._followed = ("", 0)

    def log_state(self) -> LogState:
        store = self.store
        return LogState(
            store.min_offset,
            store.appended_end,
            self.history,
            self.replica.config.segment_bytes,
            self.known_confirmed_end,
        )

    async def adopt(self, history: EpochHistory) -> None:
        await asyncio.sleep(0)
        self.history = history
        self.adopted.append(history)

    def on_confirmed(self, confirmed_end: int) -> None:
        end = min(confirmed_end, self.store.appended_end)
        self.known_confirmed_end = max(self.known_confirmed_end, end)
        if end > self.store.confirmed_end:
            self.store.confirm(end)

    def follow(self, address: str, epoch: int = 1) -> asyncio.Task[Any]:
        self._followed = address, epoch
        self._running = asyncio.create_task(self.follower.follow(address, epoch))
        return self._running

    def follow_on(self) -> None:
        """Follow again, as a broker does, if a busy machine left the stream silent for too long.
        Raises all else that ended it."""
        if self._running is not None and self._running.done():
            # The master may not have heard yet that the former stream is over.
            with contextlib.suppress(Unreachable, DuplicateBroker):
                raise AssertionError(f"the stream ended with {self._running.result()}")
            self.follow(*self._followed)

    async def stop(self) -> None:
        """Cancel the stream, whatever its state."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait((running,))
            if not running.cancelled():
                running.exception()


@asynccontextmanager
async def running_slave(
    root: Path | Disk,
    config: StoreConfig = STORE,
    *,
    broker_id: int = 1,
    instance: str = "instance",
    connect: Connect = connect_to_master,
    cluster: str = CLUSTER,
    **limits: Any,
) -> AsyncIterator[Slave]:
    limits.setdefault("flush_is_sync", config.flush_mode is FlushMode.SYNC)
    async with running_replica(root, config) as replica:
        slave = Slave(
            replica,
            StreamLimits(**limits),
            broker_id=broker_id,
            instance=instance,
            connect=connect,
            cluster=cluster,
        )
        try:
            yield slave
        finally:
            await slave.stop()
