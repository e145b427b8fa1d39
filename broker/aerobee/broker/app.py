"""The broker's composition root and its life: open, serve, stop.

    open the folder (on a thread) -> listen -> register -> serve
    SIGTERM: refuse sends -> flush, acknowledge what waits -> end the streams -> leave the routes
             -> write tables -> close the store (removes `abort`)

A failed write or fsync ends the process: health turns NOT_SERVING, one line says why, and the exit
code is not zero. Nothing is retried, because nothing is known of the disk any more.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from aerobee.broker.config import BrokerConfig
from aerobee.broker.flush.flush_thread import FlushThread
from aerobee.broker.opening import OpenedFolder, open_folder
from aerobee.broker.parts import Parts, Threads, assemble
from aerobee.broker.registration import Registration, RegistrationConfig
from aerobee.broker.rpc.cluster_link import ClusterLink, identity_of
from aerobee.broker.rpc.server import BrokerServer
from aerobee.broker.store.disk import Disk, RealDisk
from aerobee.runtime.boot import boot_id
from aerobee.runtime.clock import Clock, SystemClock, system_random
from aerobee.runtime.errors import InvalidArgument, NotWritable, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.open_files import connections_max, raise_limit
from aerobee.runtime.supervise import ExitCode, Lifecycle, run_service
from aerobee.store_format.record_layout import HostAddress

log = logging.getLogger(__name__)

DRAIN_TIMEOUT_S = 20.0
"""How long a stop waits for the disk before it gives up on unacknowledged sends."""
LEAVE_TIMEOUT_S = 2.0
"""How long a stop tries to tell a nameserver."""
EXPIRY_INTERVAL_S = 0.25
FILE_THREADS = 2
"""Threads that replace small files."""
WRITABLE_INTERVAL_S = 1.0


def run_broker(config: BrokerConfig) -> ExitCode:
    """A whole broker process, until a signal or a failure ends it."""
    raise_limit()

    async def service(lifecycle: Lifecycle) -> None:
        await serve_broker(
            config,
            lifecycle,
            clock=SystemClock(),
            chance=system_random(),
            on_listening=lambda _: _spare_collector(),
        )

    return run_service("broker", service)


def _spare_collector() -> None:
    """What was opened lives as long as the process: with 80,000 queues, looking through it again
    and again would stop the loop for tens of milliseconds each time."""
    gc.collect()
    gc.freeze()


async def serve_broker(
    config: BrokerConfig,
    lifecycle: Lifecycle,
    *,
    clock: Clock,
    chance: random.Random,
    disk: Disk | None = None,
    on_listening: Callable[[int], None] | None = None,
) -> None:
    """Serve until `lifecycle.stop`; `on_listening` is told the port once clients are served.

    `disk` replaces the file system below `config.store_root`, for tests.

    Raises:
        InvalidArgument: the folder cannot be used, the address cannot be listened on, or too few
            files may be open.
        DuplicateBroker: another live broker has this identity.
        StoreFailed: a write or fsync failed while running.
    """
    connections_max(config.own_files)
    disk = RealDisk(config.store_root) if disk is None else disk
    loop = asyncio.get_running_loop()
    store_host = await _store_host(config)
    store_config = replace(config.store, store_host=store_host)
    with (
        ThreadPoolExecutor(config.read_threads_max, thread_name_prefix="read") as reads,
        ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files") as files,
    ):
        folder = await loop.run_in_executor(
            files,
            lambda: open_folder(
                disk,
                clock,
                store_config,
                boot_id(),
                session_timeout_max_ms=config.sessions.timeout_max_ms,
            ),
        )
        try:
            threads = Threads(reads, files)
            broker = Broker(config, folder, disk, threads, clock, chance, store_host=store_host)
            await broker.run(lifecycle, on_listening)
        finally:
            await loop.run_in_executor(files, folder.store.close)
    log_event(log, "broker stopped", broker=config.broker_name)


class Broker:
    """One broker over an opened folder: starts its tasks, and stops them in order."""

    def __init__(
        self,
        config: BrokerConfig,
        folder: OpenedFolder,
        disk: Disk,
        threads: Threads,
        clock: Clock,
        chance: random.Random,
        *,
        store_host: HostAddress,
    ) -> None:
        self._config = config
        self._clock = clock
        self._chance = chance
        self._store_host = store_host
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.parts: Parts = assemble(
            config,
            folder,
            disk,
            threads,
            clock,
            chance,
            store_host=store_host,
            on_store_failed=self._on_store_failed,
        )
        self._flush = FlushThread(
            folder.store, disk, clock, config.store, on_flushed=self.parts.durability.on_flushed
        )
        self.parts.durability.attach(self._flush)
        self.parts.cleaning.attach(self._flush.upkeep)
        self._identity = identity_of(config, instance=f"{chance.getrandbits(64):016x}")
        self._server = BrokerServer(self.parts, self._identity)
        self._running: list[asyncio.Task[Any]] = []

    async def run(self, lifecycle: Lifecycle, on_listening: Callable[[int], None] | None) -> None:
        """Serve until told to stop. Raises as `serve_broker`."""
        try:
            async with asyncio.TaskGroup() as tasks:
                port = await self._start(tasks)
                registration = self._register(tasks, port)
                await self._server.set_serving(True)
                if on_listening is not None:
                    on_listening(port)
                lifecycle.ready()
                log_event(
                    log,
                    "broker serves",
                    broker=self._config.broker_name,
                    port=port,
                    flush=self._config.store.flush_mode,
                )
                await self._until_stopped(lifecycle)
                await self._stop(registration)
                for task in self._running:
                    task.cancel()
        except* StoreFailed as group:
            await self._give_up(group)
            raise
        finally:
            await self._server.stop(0)

    # ---------------------------------------------------------------------- starting

    async def _start(self, tasks: asyncio.TaskGroup) -> int:
        port = await self._server.start(self._config.listen)

        def run(name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
            self._running.append(tasks.create_task(coroutine, name=name))

        run("flush", self._flush.run())
        run("cleaning", self.parts.cleaning.run())
        run("expiry", self._expire_sessions())
        run("snapshots", self._save_tables())
        run("loop-delay", self.parts.loop_delay.run())
        if self.parts.group_state.views_held_back_s > 0:
            self.parts.coordinator.hold_views_back()
            run("rejoin", self._release_views())
        return port

    def _register(self, tasks: asyncio.TaskGroup, port: int) -> Registration | None:
        config = self._config
        if not config.nameservers:
            return None
        host, _, listen_port = (config.address or config.listen).rpartition(":")
        address = f"{host}:{port if listen_port == '0' else listen_port}"
        link = ClusterLink(
            self.parts, self._identity, address, store_host_ipv6=self._store_host.is_ipv6
        )
        registration = Registration(
            RegistrationConfig(
                nameservers=config.nameservers, lease_duration_ms=config.registration_lease_ms
            ),
            clock=self._clock,
            chance=self._chance,
            heartbeat=link.heartbeat,
            on_directive=link.follow,
        )
        tasks.create_task(registration.run(), name="registration")
        self._running.append(
            tasks.create_task(self._report_writable(registration), name="writable")
        )
        return registration

    # ---------------------------------------------------------------------- running

    async def _until_stopped(self, lifecycle: Lifecycle) -> None:
        """Returns at a stop; raises StoreFailed at a failure."""
        async with asyncio.TaskGroup() as waiting:
            stop = waiting.create_task(lifecycle.stop.wait(), name="stop")
            await asyncio.wait((stop, self._failed), return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
        if self._failed.done():
            self._failed.result()

    def _on_store_failed(self, error: StoreFailed) -> None:
        """An append failed: end the broker, once."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _expire_sessions(self) -> None:
        while True:
            now_s = self._clock.monotonic_s()
            self.parts.coordinator.expire(now_s)
            self.parts.folder.store.reads.tidy()
            next_s = self.parts.coordinator.next_expiry_s()
            due_s = EXPIRY_INTERVAL_S if next_s is None else max(0.01, next_s - now_s)
            await asyncio.sleep(min(EXPIRY_INTERVAL_S, due_s))

    async def _release_views(self) -> None:
        await asyncio.sleep(self.parts.group_state.views_held_back_s)
        self.parts.coordinator.release_views()

    async def _save_tables(self) -> None:
        while True:
            await asyncio.sleep(self._config.snapshot_interval_ms / 1_000)
            await self.parts.files.save_all()

    async def _report_writable(self, registration: Registration) -> None:
        """Let routes show at once that this broker takes messages no more, or again."""
        reported = self.parts.not_writable_reason()
        while True:
            await asyncio.sleep(WRITABLE_INTERVAL_S)
            reason = self.parts.not_writable_reason()
            if bool(reason) != bool(reported):
                log_event(log, "writable", writable=not reason, reason=reason)
                registration.send_soon()
            reported = reason

    # ---------------------------------------------------------------------- ending

    async def _stop(self, registration: Registration | None) -> None:
        """A graceful stop: nothing that was accepted is left unanswered."""
        parts = self.parts
        parts.guard.begin_stopping()
        await self._server.set_serving(False)
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await parts.durability.drain()
        except TimeoutError:
            log_event(log, "the disk did not take everything in time", level=logging.ERROR)
        self._server.end_pulls()
        self._server.end_memberships()
        if registration is not None:
            await registration.leave(LEAVE_TIMEOUT_S)
        await self._server.stop(self._config.stop_grace_ms / 1_000)
        await parts.files.save_all()
        try:
            await parts.group_state.record_clean_stop()
        except NotWritable as error:
            # The next run then waits one session before it grants queues, as after a crash.
            log_event(log, "leases not saved", level=logging.WARNING, reason=error)

    async def _give_up(self, group: BaseExceptionGroup[StoreFailed]) -> None:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        self.parts.guard.begin_failing(str(error))
        self.parts.folder.store.fail(error)
        log_event(log, "the store failed; the broker ends", level=logging.ERROR, reason=error)
        await self._server.set_serving(False)


async def _store_host(config: BrokerConfig) -> HostAddress:
    """The address stamped into records.

    Raises:
        InvalidArgument: it is a name that cannot be resolved.
    """
    known = config.known_store_host()
    if known is not None:
        return known
    host, _, port = (config.address or config.listen).rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidArgument(
            f"cannot resolve {host!r} of the broker's address: {error}; set store_host to an IP "
            "address and port"
        ) from error
    return HostAddress(socket.inet_pton(found[0][0], str(found[0][4][0])), int(port))
