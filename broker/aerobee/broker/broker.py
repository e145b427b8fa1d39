"""One run of the broker over an opened folder: its tasks, and the order in which they end.

Owns: the servers, the registration, and what is waited for before either ends. A run ends by a
stop, by a failure of the store, or because this replica must open its folder again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from aerobee.broker.cluster.cluster_link import ClusterLink, identity_of
from aerobee.broker.cluster.in_sync_registry import InSyncRegistry
from aerobee.broker.cluster.registration import Registration, RegistrationConfig
from aerobee.broker.config import BrokerConfig
from aerobee.broker.edge.replicas.replication_client import connect_to_master
from aerobee.broker.edge.server import BrokerServer
from aerobee.broker.flush.flush_thread import FlushThread
from aerobee.broker.observe.health import BrokerHealth
from aerobee.broker.observe.metrics.figures import NODE_TYPE, BrokerFigures
from aerobee.broker.observe.readiness import readiness_of
from aerobee.broker.parts import Parts, assemble
from aerobee.broker.replication.opening import Opened
from aerobee.broker.replication.role_manager import Reopening
from aerobee.broker.replication_parts import Cluster
from aerobee.broker.store.disk import Disk
from aerobee.broker.threads import Threads
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotMaster, NotWritable, StoreFailed
from aerobee.runtime.exception_groups import first_leaf
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.endpoint import MetricsEndpoint
from aerobee.runtime.supervise import Lifecycle
from aerobee.store_format.record_layout import HostAddress

log = logging.getLogger(__name__)

DRAIN_TIMEOUT_S = 20.0
"""How long a stop waits for the disk before it gives up on unacknowledged sends."""
REPLICATE_TIMEOUT_S = 5.0
"""How long a stop waits for the replicas; one that is gone leaves the in-sync set before that."""
MEMBERS_LEAVE_S = 0.1
"""How long members' streams may take to end before their leases are written down."""
RETIRE_GRACE_S = 0.1
"""How long running calls may go on when the folder is to be opened again."""
LEAVE_TIMEOUT_S = 2.0
"""How long a stop tries to tell a nameserver."""
JOURNAL_TIMEOUT_S = 1.0
"""How long a start waits until groups are served; then they follow."""
ROLES_TASK = "roles"
LOOK_INTERVAL_S = 1.0
"""How often a broker without members looks what time has brought; no shorter session is promised
by default."""
MEMBERS_INTERVAL_S = 0.25
"""The same with members: what they do may let something expire at any time."""


class Broker:
    """One broker over an opened folder: starts its tasks, and stops them in order."""

    def __init__(
        self,
        config: BrokerConfig,
        opened: Opened,
        disk: Disk,
        threads: Threads,
        clock: Clock,
        chance: random.Random,
        health: BrokerHealth,
        metrics: MetricsEndpoint,
        *,
        store_host: HostAddress,
    ) -> None:
        self._config = config
        self._health = health
        self._metrics = metrics
        self._clock = clock
        self._chance = chance
        self._store_host = store_host
        self.listens_on = config.listen
        """host:port, once it runs."""
        self._registration: Registration | None = None
        folder = opened.folder
        self._identity = identity_of(config, instance=opened.replica.state.instance)
        self._registry = InSyncRegistry(config.nameservers, self._identity)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.parts: Parts = assemble(
            config,
            folder,
            opened.replica,
            disk,
            threads,
            clock,
            chance,
            Cluster(connect_to_master, self._registry.alter, self._send_soon),
            store_host=store_host,
            on_store_failed=self._on_store_failed,
        )
        self._flush = FlushThread(
            folder.store, disk, clock, config.store, on_flushed=self.parts.durability.on_flushed
        )
        self.parts.durability.attach(self._flush)
        self.parts.cleaning.attach(self._flush.upkeep)
        self.parts.replication.handover.attach(self._leave_groups, self.parts.journal.go_on)
        self._server = BrokerServer(self.parts, self._identity)
        self._is_writable = not self.parts.no_room_reason()
        """As routes show it, or will."""
        self._running: list[asyncio.Task[Any]] = []

    async def run(
        self,
        lifecycle: Lifecycle,
        on_listening: Callable[[int], None] | None,
        on_opened: Callable[[], None],
    ) -> Reopening | None:
        """Serve until told to stop, or until the folder must be opened again.

        Raises as `serve_broker`.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                port = await self._start(tasks)
                self._register(tasks, port)
                self._metrics.show(NODE_TYPE, self._figures(port).gather)
                await self._server.set_serving(True)
                self._health.serves(readiness_of(self.parts, self._registration))
                on_opened()
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
                reopening = await self._until_ended(lifecycle)
                if reopening is None:
                    await self._stop()
                else:
                    await self._retire()
                for task in self._running:
                    task.cancel()
        except* StoreFailed as group:
            await self._give_up(group)
            raise
        finally:
            self._metrics.hide(NODE_TYPE)
            await self._server.stop(0)
            await self._registry.close()
            await self.parts.files.close()
        return reopening

    # ---------------------------------------------------------------------- starting

    async def _start(self, tasks: asyncio.TaskGroup) -> int:
        replication = self.parts.replication
        # Before anybody asks: alone it is master at once.
        replication.manager.begin_alone()
        port = await self._server.start(self._config.listen)
        self.listens_on = f"{self._config.listen.rpartition(':')[0]}:{port}"

        def run(name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
            self._running.append(tasks.create_task(coroutine, name=name))

        run("flush", self._flush.run())
        run("cleaning", self.parts.cleaning.run())
        run("time", self._look_what_is_due())
        run("group-expiry", self.parts.groups.expiry.run())
        run("snapshots", self._save_tables())
        run("loop-delay", self.parts.loop_delay.run())
        run(ROLES_TASK, replication.manager.run())
        run("in-sync-set", replication.proposer.run())
        run("offset-journal", self.parts.journal.run())
        run("topic-ends", self.parts.groups.topic_ends.run())
        # Alone, groups go on at once; elsewhere when the role is known.
        await self.parts.journal.begun(JOURNAL_TIMEOUT_S)
        return port

    def _register(self, tasks: asyncio.TaskGroup, port: int) -> None:
        config = self._config
        if not config.nameservers:
            return
        link = ClusterLink(
            self.parts,
            self._identity,
            self._address(port),
            store_host_ipv6=self._store_host.is_ipv6,
        )
        registration = Registration(
            RegistrationConfig(
                nameservers=config.nameservers, lease_duration_ms=config.registration_lease_ms
            ),
            clock=self._clock,
            chance=self._chance,
            heartbeat=link.heartbeat,
            on_directive=link.follow,
            on_sending=link.sending,
            on_incomplete=self.parts.replication.manager.count_as_another_log,
        )
        self._registration = registration
        self._running.append(tasks.create_task(registration.run(), name="registration"))

    def _figures(self, port: int) -> BrokerFigures:
        return BrokerFigures(
            self.parts,
            address=self._address(port),
            registration=self._registration,
            sessions=self._server.pull_sessions,
        )

    def _address(self, port: int) -> str:
        """Where clients reach this broker, which listens on `port`."""
        host, _, listen_port = (self._config.address or self._config.listen).rpartition(":")
        return f"{host}:{port if listen_port == '0' else listen_port}"

    def _send_soon(self) -> None:
        """A heartbeat now: the nameserver should know at once."""
        if self._registration is not None:
            self._registration.send_soon()

    # ---------------------------------------------------------------------- running

    async def _until_ended(self, lifecycle: Lifecycle) -> Reopening | None:
        """Returns at a stop, or with what is to be done before the folder is opened again; raises
        StoreFailed at a failure."""
        reopening = self.parts.replication.manager.reopening
        async with asyncio.TaskGroup() as waiting:
            stop = waiting.create_task(lifecycle.stop.wait(), name="stop")
            await asyncio.wait((stop, self._failed, reopening), return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
        if self._failed.done():
            self._failed.result()
        return reopening.result() if reopening.done() and not lifecycle.stop.is_set() else None

    def _on_store_failed(self, error: StoreFailed) -> None:
        """An append failed: end the broker, once."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _look_what_is_due(self) -> None:
        """What comes with time alone, in one task, so that an idle broker wakes once for all."""
        parts = self.parts
        while True:
            now_s = self._clock.monotonic_s()
            parts.coordinator.expire(now_s)
            parts.folder.store.reads.tidy()
            self._report_writable()
            next_s = parts.coordinator.next_expiry_s()
            if next_s is None:
                await asyncio.sleep(LOOK_INTERVAL_S)
            else:
                await asyncio.sleep(min(MEMBERS_INTERVAL_S, max(0.01, next_s - now_s)))

    async def _save_tables(self) -> None:
        while True:
            await asyncio.sleep(self._config.snapshot_interval_ms / 1_000)
            await self.parts.files.save_all()

    def _report_writable(self) -> None:
        """Let routes show at once that this broker takes messages no more, or again."""
        reason = self.parts.no_room_reason()
        if bool(reason) == self._is_writable:
            self._is_writable = not reason
            log_event(log, "writable", writable=not reason, reason=reason)
            self._send_soon()

    # ---------------------------------------------------------------------- ending

    async def _stop(self) -> None:
        """A graceful stop: nothing that was accepted is left unanswered."""
        parts = self.parts
        self._health.ends()
        parts.guard.begin_stopping()
        await self._server.set_serving(False)
        await self._leave_as_slave()
        await self._end_following()
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await parts.durability.drain()
        except TimeoutError:
            log_event(log, "the disk did not take everything in time", level=logging.ERROR)
        self._server.end_pulls()
        await self._leave_groups()
        await self._replicate()
        if self._registration is not None:
            await self._registration.leave(LEAVE_TIMEOUT_S)
        await self._server.stop(self._config.stop_grace_ms / 1_000)
        await parts.files.save_all()
        try:
            await parts.replication.folder.note_closed(parts.folder.store.appended_end)
        except NotWritable as error:
            # The next run then takes this one for crashed.
            log_event(log, "the stop is not noted", level=logging.WARNING, reason=error)

    async def _leave_as_slave(self) -> None:
        """Nobody elects it from here on; and its master, who hears of it from the nameserver, waits
        for it no more as soon as the stream ends. A master leaves last."""
        if self._registration is not None and self.parts.replication.roles.term is None:
            await self._registration.leave(LEAVE_TIMEOUT_S)

    async def _end_following(self) -> None:
        """What a master goes on sending would never be on the disk as a whole, and come after the
        log's end was noted. From here on no role is taken; a master's term goes on."""
        roles = next(task for task in self._running if task.get_name() == ROLES_TASK)
        roles.cancel()
        await asyncio.wait((roles,))

    async def _leave_groups(self) -> None:
        """What members hold goes to the next master, or to the next run."""
        await self._server.end_memberships(MEMBERS_LEAVE_S)
        await self.parts.journal.leave()

    async def _replicate(self) -> None:
        """A master that stops leaves everything to its in-sync replicas, acknowledged or not."""
        roles = self.parts.replication.roles
        if roles.is_alone or not roles.may_act():
            return
        deadline_s = self._clock.monotonic_s() + REPLICATE_TIMEOUT_S
        if not await self.parts.durability.replicate(deadline_s):
            log_event(log, "the replicas did not take everything in time", level=logging.WARNING)

    async def _retire(self) -> None:
        """End what clients have here; they come back in a moment, or go to the new master."""
        self._health.closes()
        await self._server.set_serving(False)
        self._server.end_pulls()
        await self._server.end_memberships(0)
        self.parts.replication.sender.end_streams(NotMaster("this replica begins anew"))
        await self._server.stop(RETIRE_GRACE_S)
        await self.parts.files.save_all()

    async def _give_up(self, group: BaseExceptionGroup[StoreFailed]) -> None:
        error = first_leaf(group)
        self._health.failed(str(error))
        self.parts.guard.begin_failing(str(error))
        self.parts.folder.store.fail(error)
        try:
            await self.parts.replication.folder.note_failed()
        except (NotWritable, StoreFailed) as refused:
            # Then the master finds out, from where the log ends when this replica joins again.
            log_event(log, "the failure is not noted", level=logging.ERROR, reason=refused)
        log_event(log, "the store failed; the broker ends", level=logging.ERROR, reason=error)
        await self._server.set_serving(False)
