"""One run of the broker over an opened folder: its tasks, and the order in which they end.

Owns: the edges, the registration, and what must finish before either ends. A run ends by a stop, by
a failure of the store, or because this replica must open its folder again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from aerobee.broker.cluster.own_address import OwnAddress
from aerobee.broker.cluster.registration import Registration
from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Edge, Feature, Task
from aerobee.broker.observe.health import BrokerHealth
from aerobee.broker.observe.metrics.figures import NODE_TYPE, BrokerFigures
from aerobee.broker.observe.readiness import Readiness
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.broker.replication.duties import Duties
from aerobee.broker.replication.replica_folder import ReplicaFolder
from aerobee.broker.replication.role_manager import Reopening, RoleManager
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.cluster_view.channels import Channels
from aerobee.rpc.metrics_endpoint import MetricsEndpoint
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotWritable, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.supervise import Lifecycle
from aerobee.runtime.task_groups import first_leaf
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.flush.table_files import TableFiles

log = logging.getLogger(__name__)

DRAIN_TIMEOUT_S = 20.0
"""How long a stop waits for the disk before giving up on unacknowledged sends."""
REPLICATE_TIMEOUT_S = 5.0
"""How long a stop waits for the replicas; one that is gone leaves the in-sync set before that."""
RETIRE_GRACE_S = 0.1
"""How long running calls may continue when the folder is to be opened again."""
LEAVE_TIMEOUT_S = 2.0
"""How long a stop tries to notify a nameserver."""
JOURNAL_TIMEOUT_S = 1.0
"""How long a start waits for groups to be served; after that they are served later."""
ROLES_TASK = "roles"


class Failure:
    """The first failure of the store that any part met; it ends the run."""

    def __init__(self) -> None:
        self.happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def report(self, error: StoreFailed) -> None:
        if not self.happened.done():
            self.happened.set_exception(error)


class Parts(Protocol):
    """What a run starts and ends of the broker. Routes name the first of the `edges`."""

    config: BrokerConfig
    clock: Clock
    edges: Sequence[Edge]
    features: Sequence[Feature]
    address: OwnAddress
    registration: Registration | None
    channels: Channels
    failure: Failure
    guard: Guard
    store: MessageStore
    files: TableFiles
    replica_folder: ReplicaFolder
    durability: Durability
    roles: Roles
    manager: RoleManager
    duties: Duties
    journal: OffsetJournal


class Run:
    """One broker over an opened folder: starts its tasks, and stops them in order."""

    def __init__(
        self,
        parts: Parts,
        tasks: Mapping[str, Task],
        *,
        health: BrokerHealth,
        readiness: Readiness,
        metrics: MetricsEndpoint,
        figures: BrokerFigures,
    ) -> None:
        """`tasks`, among them `ROLES_TASK`, run from when all edges listen until the end; the
        parts' channels are closed after them."""
        self._parts = parts
        self._tasks = tasks
        self._health = health
        self._readiness = readiness
        self._metrics = metrics
        self._figures = figures
        self._running: list[asyncio.Task[Any]] = []
        self.listens_on = parts.config.listen
        """host:port, once it runs."""

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
                self._metrics.show(NODE_TYPE, self._figures.gather)
                await self._set_serving(True)
                self._health.serves(self._readiness.why_not, self._readiness.why_hung)
                on_opened()
                if on_listening is not None:
                    on_listening(port)
                lifecycle.ready()
                log_event(
                    log,
                    "broker serves",
                    broker=self._parts.config.broker_name,
                    port=port,
                    flush=self._parts.config.store.flush_mode,
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
            await self._stop_edges(0)
            await self._parts.channels.close()
            await self._parts.files.close()
        return reopening

    # ---------------------------------------------------------------------- starting

    async def _start(self, tasks: asyncio.TaskGroup) -> int:
        # Before any request: a broker alone is master at once.
        self._parts.manager.begin_alone()
        port, *_ = [await edge.start() for edge in self._parts.edges]
        self.listens_on = f"{self._parts.config.listen.rpartition(':')[0]}:{port}"
        self._parts.address.listens(port)
        for name, run in self._tasks.items():
            self._running.append(tasks.create_task(run(), name=name))
        # Alone, groups continue at once; otherwise once the role is known.
        await self._parts.journal.begun(JOURNAL_TIMEOUT_S)
        if self._parts.registration is not None:
            registering = tasks.create_task(self._parts.registration.run(), name="registration")
            self._running.append(registering)
        return port

    # ---------------------------------------------------------------------- running

    async def _until_ended(self, lifecycle: Lifecycle) -> Reopening | None:
        """Returns at a stop, or with the work to do before the folder is reopened; raises
        StoreFailed on failure."""
        reopening, failed = self._parts.manager.reopening, self._parts.failure.happened
        async with asyncio.TaskGroup() as waiting:
            stop = waiting.create_task(lifecycle.stop.wait(), name="stop")
            await asyncio.wait((stop, failed, reopening), return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
        if failed.done():
            failed.result()
        return reopening.result() if reopening.done() and not lifecycle.stop.is_set() else None

    async def _set_serving(self, serving: bool) -> None:
        for edge in self._parts.edges:
            await edge.set_serving(serving)

    def _end_pulls(self) -> None:
        for edge in self._parts.edges:
            edge.end_pulls()

    async def _stop_edges(self, grace_s: float) -> None:
        async with asyncio.TaskGroup() as stopping:
            for edge in self._parts.edges:
                stopping.create_task(edge.stop(grace_s), name="stop-edge")

    # ---------------------------------------------------------------------- ending

    async def _stop(self) -> None:
        """A graceful stop: nothing that was accepted is left unanswered."""
        self._health.ends()
        self._parts.guard.begin_stopping()
        await self._set_serving(False)
        await self._leave_as_slave()
        await self._end_following()
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await self._parts.durability.drain()
        except TimeoutError:
            log_event(log, "the disk did not take everything in time", level=logging.ERROR)
        self._end_pulls()
        await self._parts.duties.leave()
        await self._replicate()
        if self._parts.registration is not None:
            await self._parts.registration.leave(LEAVE_TIMEOUT_S)
        await self._stop_edges(self._parts.config.stop_grace_ms / 1_000)
        await self._parts.files.save_all()
        for feature in self._parts.features:
            await feature.save()
        try:
            await self._parts.replica_folder.note_closed(self._parts.store.appended_end)
        except NotWritable as error:
            # The next run then treats this one as crashed.
            log_event(log, "the stop could not be recorded", level=logging.WARNING, reason=error)

    async def _leave_as_slave(self) -> None:
        """From here on it is not elected, and its master, which learns this from the nameserver,
        stops waiting for it as soon as the stream ends. A master leaves last."""
        if self._parts.registration is not None and self._parts.roles.term is None:
            await self._parts.registration.leave(LEAVE_TIMEOUT_S)

    async def _end_following(self) -> None:
        """What the master keeps sending could never all reach the disk, and would arrive after the
        log's end was recorded. From here on this replica takes no role; a master's term
        continues."""
        roles = next(task for task in self._running if task.get_name() == ROLES_TASK)
        roles.cancel()
        await asyncio.wait((roles,))

    async def _replicate(self) -> None:
        """A stopping master hands everything to its in-sync replicas, acknowledged or not."""
        if self._parts.roles.is_alone or not self._parts.roles.may_act():
            return
        deadline_s = self._parts.clock.monotonic_s() + REPLICATE_TIMEOUT_S
        if not await self._parts.durability.replicate(deadline_s):
            log_event(log, "the replicas did not take everything in time", level=logging.WARNING)

    async def _retire(self) -> None:
        """End clients' calls; they come back in a moment, or go to the new master."""
        self._health.closes()
        if self._parts.registration is not None and self._parts.roles.is_dispensable(
            self._parts.config.replication.min_insync_replicas
        ):
            # Otherwise the new master could acknowledge nothing until this folder is open again.
            await self._parts.registration.leave(LEAVE_TIMEOUT_S)
        await self._set_serving(False)
        self._end_pulls()
        await self._parts.duties.leave()
        await self._stop_edges(RETIRE_GRACE_S)
        await self._parts.files.save_all()

    async def _give_up(self, group: BaseExceptionGroup[StoreFailed]) -> None:
        error = first_leaf(group)
        self._health.failed(str(error))
        self._parts.guard.begin_failing(str(error))
        self._parts.store.fail(error)
        try:
            await self._parts.replica_folder.note_failed()
        except (NotWritable, StoreFailed) as refused:
            # The master then finds out when this replica rejoins, from where its log ends.
            log_event(log, "the failure could not be recorded", level=logging.ERROR, reason=refused)
        log_event(log, "the store failed; the broker ends", level=logging.ERROR, reason=error)
        await self._set_serving(False)
