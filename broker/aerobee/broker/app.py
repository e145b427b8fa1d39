"""The broker's life: open, serve, stop.

    report health -> open the folder (on a thread) -> listen -> register -> serve
    SIGTERM: refuse sends -> flush, acknowledge what waits -> end the streams -> leave the routes
             -> write tables -> close the store (removes `abort`)
    another replica became master, or the log must be cut or renamed: end the streams
             -> close the store -> do that -> open the folder again, as a new instance in the same
             process

A failed write or fsync ends the process: health turns NOT_SERVING, one line says why, and the exit
code is not zero. Nothing is retried, because the state of the disk is unknown.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from aerobee.access.node import NodeAccess
from aerobee.access.recording import recording
from aerobee.broker.cluster.cluster_link import node_name
from aerobee.broker.cluster.own_address import store_host_of
from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Kind
from aerobee.broker.observe.health import BrokerHealth
from aerobee.broker.observe.metrics.figures import NODE_TYPE
from aerobee.broker.opened import Opened
from aerobee.broker.opening import change_log, close_replicated, open_replicated
from aerobee.broker.replication.role_manager import Reopening
from aerobee.broker.run import Run
from aerobee.broker.wiring import FEATURES, Wiring
from aerobee.rpc.memory_budget import BROKER_MEMORY, MemoryBudget
from aerobee.rpc.node_ports import serve_node_ports
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.runtime.clock import Clock, SystemClock, system_random
from aerobee.runtime.log import log_event
from aerobee.runtime.machine import connections_max, raise_limit, usable_memory
from aerobee.runtime.private_files import close_to_others
from aerobee.runtime.spared_collector import SparedCollector
from aerobee.runtime.supervise import ExitCode, Lifecycle, run_service
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk, RealDisk
from aerobee.store.engine.flush_ledger import BEHIND_FACTOR
from aerobee.store.flush.workers import DiskWorkers, Threads, Workers

log = logging.getLogger(__name__)

FILE_THREADS = 2
"""Threads that replace small files."""


def run_broker(config: BrokerConfig, *, on_hangup: Callable[[], None] | None = None) -> ExitCode:
    """A whole broker process, until a signal or a failure ends it; SIGHUP calls `on_hangup`."""
    raise_limit()

    async def service(lifecycle: Lifecycle) -> None:
        clock = SystemClock()
        collector = SparedCollector(clock, usable_memory().bytes)
        collector.begin()
        try:
            await serve_broker(
                config,
                lifecycle,
                clock=clock,
                chance=system_random(),
                on_opened=collector.opened,
            )
        finally:
            collector.end()

    return run_service("broker", service, on_hangup=on_hangup)


async def serve_broker(
    config: BrokerConfig,
    lifecycle: Lifecycle,
    *,
    clock: Clock,
    chance: random.Random,
    disk: Disk | None = None,
    on_listening: Callable[[int], None] | None = None,
    on_opened: Callable[[], None] = lambda: None,
    features: Sequence[Kind[Wiring]] = FEATURES,
    workers: Workers | None = None,
) -> None:
    """Serve until `lifecycle.stop`; `on_listening` gets the port once clients are served.

    A replica may have to reopen its folder, as a new instance on the same port; `on_opened` is
    called each time. `features`: what the broker has, in order of dependence.

    For tests, `disk` replaces the file system below `config.store_root`, and `workers` the threads
    that wait for it.

    Raises:
        InvalidArgument: the folder cannot be used, the address cannot be listened on, or the limit
            of open files or the memory is too low.
        DuplicateBroker: another live broker has this identity.
        StoreFailed: a write or fsync failed while running.
    """
    connections_max(config.own_files)
    memory = MemoryBudget(BROKER_MEMORY, usable_memory())
    config = _with_budgets(config, memory)
    disk = _own_folder(config.store_root) if disk is None else disk
    workers = Threads() if workers is None else workers
    health = BrokerHealth(clock)
    peer_limits = PeerLimits()
    async with (
        serve_node_ports(config, NODE_TYPE, health, peer_limits, clock=clock) as (tls, metrics),
        recording(config, str(node_name(config)), NODE_TYPE, clock, metrics) as recorder,
    ):
        store_host = await store_host_of(config, clock)
        with (
            workers.pool("read", config.read_threads_max) as reads,
            workers.pool("files", FILE_THREADS) as files,
        ):
            store_config = replace(config.store, store_host=store_host)
            folder = _Folder(disk, store_config, features, files, clock, chance, health)

            def wire(config: BrokerConfig, opened: Opened) -> Run:
                return Wiring(
                    config,
                    opened,
                    disk=disk,
                    workers=DiskWorkers(reads, files, workers),
                    clock=clock,
                    chance=chance,
                    health=health,
                    metrics=metrics,
                    peer_limits=peer_limits,
                    memory=memory,
                    store_host=store_host,
                    tls=tls,
                    access=NodeAccess(
                        config.access, node_name(config), clock=clock, recorder=recorder
                    ),
                    features=features,
                ).run

            await _serve_again_and_again(config, folder, wire, lifecycle, on_listening, on_opened)
    log_event(log, "broker stopped", broker=config.broker_name)


def _own_folder(root: Path) -> RealDisk:
    """The folder, closed to other users; logs what was open to them."""
    try:
        found = close_to_others(root)
    except OSError as error:
        # Opening the folder decides whether it can be used at all.
        log_event(
            log,
            "the store cannot be closed to other users",
            level=logging.WARNING,
            path=root,
            reason=error.strerror or error,
        )
    else:
        if found.closed:
            log_event(log, "the store is closed to other users", path=root, parts=len(found.closed))
        for path in found.still_open:
            log_event(
                log,
                "other users may reach a part of the store: another user owns it",
                level=logging.WARNING,
                path=path,
            )
    return RealDisk(root)


class _Folder:
    """The work on the folder before and after each run, on a thread."""

    def __init__(
        self,
        disk: Disk,
        store_config: StoreConfig,
        features: Sequence[Kind[Wiring]],
        pool: Executor,
        clock: Clock,
        chance: random.Random,
        health: BrokerHealth,
    ) -> None:
        self._disk = disk
        self._store_config = store_config
        self._features = features
        self._pool = pool
        self._clock = clock
        self._chance = chance
        self._health = health

    async def open(self, config: BrokerConfig) -> Opened:
        """For a new instance. Raises as `open_replicated`."""
        self._health.opens()
        return await asyncio.get_running_loop().run_in_executor(
            self._pool,
            open_replicated,
            config,
            self._store_config,
            self._disk,
            self._clock,
            self._chance,
            self._features,
            self._health.advanced,
        )

    async def close(self, opened: Opened) -> None:
        """Raises as `close_replicated`."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, close_replicated, self._disk, opened)

    async def change(self, reopening: Reopening) -> None:
        """While the folder is closed. Raises as `change_log`."""
        self._health.opens()
        await asyncio.get_running_loop().run_in_executor(
            self._pool,
            change_log,
            self._disk,
            self._store_config,
            reopening.change,
            self._chance,
            self._features,
            self._health.advanced,
        )


async def _serve_again_and_again(
    config: BrokerConfig,
    folder: _Folder,
    wire: Callable[[BrokerConfig, Opened], Run],
    lifecycle: Lifecycle,
    on_listening: Callable[[int], None] | None,
    on_opened: Callable[[], None],
) -> None:
    """Run one instance after another over the same folder, until one ends by a stop."""
    while True:
        opened = await folder.open(config)
        try:
            run = wire(config, opened)
            reopening = await run.run(lifecycle, on_listening, on_opened)
        finally:
            await folder.close(opened)
        if reopening is None:
            break
        await folder.change(reopening)
        # Clients and replicas know the port that was reported at the start.
        config, on_listening = replace(config, listen=run.listens_on), None


def _with_budgets(config: BrokerConfig, memory: MemoryBudget) -> BrokerConfig:
    """The configuration with what depends on the memory: where nothing is set, and where less is
    possible."""
    usable, replication = memory.memory, config.replication
    budget = replication.slave_read_bytes_of(usable.bytes)
    log_event(
        log,
        "memory",
        bytes=usable.bytes,
        source=usable.source,
        slave_read_bytes=budget,
        parts_mib=memory,
    )
    window = max(
        replication.chunk_bytes, min(replication.window_bytes, memory.bytes_of["replication"])
    )
    changed = replace(replication, slave_read_bytes=budget, window_bytes=window)
    return replace(config, replication=changed, store=_store_within(config.store, memory))


def _store_within(config: StoreConfig, memory: MemoryBudget) -> StoreConfig:
    """What waits for the disk stays within its part, also while the disk cannot keep up."""
    queues, index = memory.least(
        "store",
        BEHIND_FACTOR * config.queue_tail_bytes_max,
        BEHIND_FACTOR * config.index_pending_bytes_max,
    )
    (recovery,) = memory.least("store", config.recovery_tail_bytes_max)
    return replace(
        config,
        queue_tail_bytes_max=queues // BEHIND_FACTOR,
        index_pending_bytes_max=index // BEHIND_FACTOR,
        recovery_tail_bytes_max=recovery,
    )
