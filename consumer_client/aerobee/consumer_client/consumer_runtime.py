"""What runs between the start and the close of a consumer, push or pull: the composition root.

Owns: the connection and every background task. A failure that waiting cannot fix (a client id in
use, an illegal subscription) ends the `async with` block with that error. Closing is graceful and
bounded: no more messages, running listeners end, safe offsets are committed, leases are returned,
the group is left; then the tasks end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from aerobee.access.credentials import Credentials
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.defaults import CLUSTER_DEFAULT
from aerobee.client_core.offsets import all_of
from aerobee.client_core.readiness import missing_brokers, until_ready
from aerobee.client_core.short_tracebacks import shortened
from aerobee.cluster_view.cluster_wait import ClusterWait
from aerobee.cluster_view.own_process import OwnProcess
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.background_tasks import BackgroundTasks
from aerobee.consumer_client.beginnings import Beginnings, StartPolicy
from aerobee.consumer_client.broadcasting import Broadcasting
from aerobee.consumer_client.broker_offsets import BrokerOffsetStore
from aerobee.consumer_client.committing import OffsetStore
from aerobee.consumer_client.consumption import Consumption
from aerobee.consumer_client.filters import Expression
from aerobee.consumer_client.local_offsets import FileOffsetStore
from aerobee.consumer_client.loop_watch import watch_loop
from aerobee.consumer_client.membership import Identity
from aerobee.consumer_client.options import ConsumerConfig, StartFrom
from aerobee.consumer_client.owned_queue import Assignment, OwnedQueue
from aerobee.consumer_client.rebalancer import Rebalancer
from aerobee.consumer_client.strategies import Averagely, RebalanceStrategy
from aerobee.domain.names import (
    check_client_id,
    check_group_name,
    check_topic_name,
    is_retry_topic,
)
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock, clock_here, system_random
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

NOT_YET = (
    errors.TopicNotFound,
    errors.Unreachable,
    errors.DeadlineExceeded,
    errors.RegistryUnavailable,
    errors.ShuttingDown,
)
"""Waiting can fix it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """All settings of a consumer, checked."""

    nameservers: tuple[str, ...] | str
    group: str
    client_id: str
    cluster: str = CLUSTER_DEFAULT
    tls: bool | TlsConfig | None = None
    credentials: Credentials | None = None
    broadcasting: bool = False
    strategy: RebalanceStrategy = field(default_factory=Averagely)
    start_policy: StartPolicy = field(default_factory=StartPolicy)
    offsets_folder: Path | None = None
    options: ConsumerConfig = field(default_factory=ConsumerConfig)
    clock: Clock = field(default_factory=clock_here)

    def __post_init__(self) -> None:
        check_group_name(self.group)
        check_client_id(self.client_id)
        if self.offsets_folder is not None:
            object.__setattr__(self, "offsets_folder", Path(self.offsets_folder))


def default_client_id(*, broadcasting: bool) -> str:
    """`host@pid#random` for a member that shares queues; `host@DEFAULT` for one whose local
    offsets must be found again after a restart."""
    host = socket.gethostname() or "localhost"
    if broadcasting:
        return f"{host}@DEFAULT"
    return f"{host}@{os.getpid()}#{system_random().getrandbits(32):08x}"


class ConsumerRuntime:
    """A started consumer. Use as an asynchronous context manager, once."""

    def __init__(
        self,
        settings: ConsumerSettings,
        subscriptions: Mapping[str, Expression],
        make_queue: Callable[[Assignment, int], OwnedQueue],
        *,
        work: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`subscriptions` by topic. `make_queue` gets the offset to begin at.
        `work`: a task to run beside the others."""
        for topic in subscriptions:
            check_topic_name(topic)
        self.settings = settings
        self.subscriptions = dict(subscriptions)
        self.connection = ClusterConnection(
            settings.nameservers,
            settings.cluster,
            clock=settings.clock,
            tls=settings.tls,
            credentials=settings.credentials,
        )
        self.tasks = BackgroundTasks()
        self.store = self._make_store()
        self.beginnings = Beginnings(
            self.connection,
            self.store,
            settings.start_policy,
            group=settings.group,
            options=settings.options,
        )
        self.consumption = Consumption(
            self.connection,
            group=settings.group,
            client_id=settings.client_id,
            is_broadcasting=settings.broadcasting,
            store=self.store,
            beginnings=self.beginnings,
            options=settings.options,
            make_queue=make_queue,
            tasks=self.tasks,
        )
        self.rebalancer: Rebalancer | None = None
        self._broadcasting: Broadcasting | None = None
        self._work = work
        self._stack = AsyncExitStack()
        self._process = OwnProcess("consumer")

    def _make_store(self) -> OffsetStore:
        settings = self.settings
        if settings.broadcasting:
            return FileOffsetStore(
                settings.client_id,
                settings.group,
                folder=settings.offsets_folder,
                deleted_at_ms=self._deleted_at_ms,
            )
        return BrokerOffsetStore(
            self.connection,
            group=settings.group,
            client_id=settings.client_id,
            timeout_ms=settings.options.request_timeout_ms,
            read_timeout_ms=settings.options.failover_timeout_ms,
        )

    def _deleted_at_ms(self, topic: str) -> int:
        route = self.connection.routes.cached(topic)
        return 0 if route is None else route.deleted_at_ms

    async def open(self) -> None:
        """Connect, join the group, and fix where it begins: nothing sent after this is missed.

        Raises:
            TopicNotFound: a subscribed topic does not exist (unless `await_topics`).
            Unreachable, DeadlineExceeded, RegistryUnavailable: no nameserver answers (likewise).
            NoBrokerAvailable, DeadlineExceeded: the group is just beginning, or could not be joined
            anywhere,
                and a broker group was without a master for `failover_timeout_ms`.
            DuplicateClient: another live member has this client id.
        """
        try:
            await self._stack.enter_async_context(self.connection)
            topics = await self._await_topics()
            await self._stack.enter_async_context(self.tasks)
            self._stack.push_async_exit(self._close_gracefully)
            self._start_tasks()
            await self._begin(topics)
            self._log_life("consumer started")
        except BaseException as error:
            await self.close(type(error), error, error.__traceback__)
            raise

    async def close(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> bool:
        """Close gracefully; an error of the `async with` block itself is passed on unchanged.

        Raises:
            AerobeeError: what ended the consumer before, if anything did.
        """
        try:
            return bool(await self._stack.__aexit__(kind, error, traceback))
        except BaseExceptionGroup as group:
            reasons = [leaf for leaf in _leaves(group) if leaf is not error]
            if not reasons:
                return False
            if all(isinstance(reason, errors.AerobeeError) for reason in reasons):
                raise shortened(reasons[0]) from None
            raise

    def check_usable(self) -> None:
        """Raises what ended the consumer, if anything did; UsedAfterFork in a child of the process
        that started it."""
        self._process.check()
        if self.tasks.failure is not None:
            raise shortened(self.tasks.failure) from None

    def failure(self) -> errors.AerobeeError | None:
        """What ended the consumer, if anything did."""
        return self.tasks.failure

    def obstacles(self) -> list[str]:
        """What prevents delivery now, in sentences."""
        routes = self.connection.routes
        missing = routes.obstacles()
        missing += [
            f"no broker or nameserver knows topic {topic!r}"
            for topic in sorted(self.subscriptions)
            if routes.cached(topic) is None and not is_retry_topic(topic)
        ]
        if self.rebalancer is not None:
            return missing + self.rebalancer.obstacles()
        return missing + (
            [] if self._broadcasting is None else self._broadcasting.sessions.obstacles()
        )

    async def ready(self, assigned: Iterable[MessageQueue], timeout_ms: int) -> None:
        """See `PullConsumer.ready`; `assigned`: the queues that the program chose."""
        chosen = {queue.topic for queue in assigned}
        topics = [
            topic for topic in sorted({*self.subscriptions, *chosen}) if not is_retry_topic(topic)
        ]

        async def look(timeout_ms: int) -> list[str]:
            self.check_usable()
            missing = await missing_brokers(self.connection, topics, timeout_ms=timeout_ms)
            if missing:
                return missing
            if self.rebalancer is not None:
                return self.rebalancer.missing()
            return [] if self._broadcasting is None else self._broadcasting.missing()

        await until_ready(look, self.connection.clock, timeout_ms)

    async def _await_topics(self) -> list[str]:
        """The subscribed topics that exist, once a nameserver answers."""
        options = self.settings.options
        end_s = self._now_s() + options.await_cluster_ms / 1_000
        found: list[str] = []
        for topic in sorted(self.subscriptions):
            try:
                await self._await_topic(topic, end_s)
            except errors.TopicNotFound:
                if not options.await_topics and not is_retry_topic(topic):
                    raise
                self.beginnings.settle_as_new(topic)
            except NOT_YET:
                if not options.await_topics:
                    raise
            else:
                if is_retry_topic(topic):
                    self.beginnings.settle_as_new(topic)
                else:
                    found.append(topic)
        return found

    async def _await_topic(self, topic: str, end_s: float) -> None:
        """A cluster may be started after its consumers."""
        options = self.settings.options
        wait = ClusterWait(end_s - self._now_s(), self._now_s)
        while True:
            try:
                await self.connection.routes.route(topic, timeout_ms=options.request_timeout_ms)
                return
            except errors.TopicNotFound:
                raise
            except NOT_YET as error:
                if options.await_topics or wait.is_over():
                    raise
                if wait.is_long():
                    log_event(
                        log,
                        "the start waits for the cluster",
                        level=logging.WARNING,
                        group=self.settings.group,
                        topic=topic,
                        reason=error,
                        left_s=wait.left_s,
                    )
            await wait.pause()

    async def _begin(self, topics: Sequence[str]) -> None:
        """Joined, and where the group begins is fixed."""
        options = self.settings.options
        if self.settings.start_policy.start_from is not StartFrom.LAST:
            for topic in self.subscriptions:
                self.beginnings.settle_as_new(topic)
            return
        for topic in self.subscriptions.keys() - set(topics):
            if is_retry_topic(topic):
                continue
            self.tasks.create_task(self._settle_later(topic), name=f"settle:{topic}")
        group = self.rebalancer or self._broadcasting
        if group is None:
            return
        end_s = self._now_s() + options.failover_timeout_ms / 1_000
        settled = await all_of(
            [
                self.beginnings.settle(topic, timeout_ms=options.failover_timeout_ms)
                for topic in topics
            ]
        )
        brokers = frozenset[str]().union(*settled)
        try:
            async with asyncio.timeout(max(0.0, end_s - self._now_s())) as scope:
                await group.sessions.joined(brokers)
        except TimeoutError:
            if not scope.expired():
                raise
            raise errors.DeadlineExceeded(
                f"group {self.settings.group!r} could not be joined within "
                f"{options.failover_timeout_ms} ms: {'; '.join(self.obstacles())}"
            ) from None

    async def _settle_later(self, topic: str) -> None:
        """With `await_topics`: once a broker can be asked."""
        options = self.settings.options
        failures = 0
        while not self.beginnings.is_settled(topic):
            try:
                await self.beginnings.settle(topic, timeout_ms=options.failover_timeout_ms)
            except errors.TopicNotFound:
                self.beginnings.settle_as_new(topic)
            except errors.AerobeeError as error:
                log_event(
                    log,
                    "the group's start offsets are not known yet, asking again",
                    level=logging.DEBUG,
                    group=self.settings.group,
                    topic=topic,
                    reason=error,
                )
                await asyncio.sleep(options.backoff.delay_s(failures, self.connection.random))
                failures += 1

    def _now_s(self) -> float:
        return self.settings.clock.monotonic_s()

    def _start_tasks(self) -> None:
        settings = self.settings
        jobs = [("commit", self.consumption.run()), ("loop-watch", watch_loop(settings.group))]
        if self._work is not None:
            jobs.append(("work", self._work()))
        if self.subscriptions:
            identity = Identity(
                group=settings.group,
                client_id=settings.client_id,
                instance=f"{self.connection.random.getrandbits(64):016x}",
                subscriptions=tuple(sorted(self.subscriptions.items())),
                session_timeout_ms=settings.options.session_timeout_ms,
                heartbeat_interval_ms=settings.options.heartbeat_interval_ms,
                broadcasting=settings.broadcasting,
            )
            if settings.broadcasting:
                self._broadcasting = Broadcasting(
                    self.connection,
                    self.consumption,
                    identity,
                    self.store,
                    options=settings.options,
                    tasks=self.tasks,
                )
                jobs.append(("broadcasting", self._broadcasting.run()))
            else:
                self.rebalancer = Rebalancer(
                    self.connection,
                    self.consumption,
                    identity,
                    settings.strategy,
                    options=settings.options,
                    tasks=self.tasks,
                )
                jobs.append(("rebalance", self.rebalancer.run()))
        for name, job in jobs:
            self.tasks.create_task(job, name=f"consumer:{settings.group}:{name}")

    async def _close_gracefully(self, *_: object) -> None:
        """Runs before the task group ends, so that its parts can still be used."""
        timeout_s = self.settings.options.close_timeout_ms / 1_000
        self._log_life("consumer stopping")
        try:
            async with asyncio.timeout(timeout_s) as scope:
                await self._give_everything_back()
        except TimeoutError:
            if not scope.expired():
                raise
            log_event(
                log,
                "close took too long; leases end by themselves",
                level=logging.WARNING,
                group=self.settings.group,
                close_timeout_ms=self.settings.options.close_timeout_ms,
            )
        finally:
            self.consumption.end()
            self.tasks.cancel_all()
            self._log_life("consumer stopped")

    def _log_life(self, event: str) -> None:
        log_event(
            log,
            event,
            level=logging.INFO,
            group=self.settings.group,
            client_id=self.settings.client_id,
            topics=" ".join(
                sorted(each for each in self.subscriptions if not is_retry_topic(each))
            ),
            queues=len(self.consumption.queues),
        )

    async def _give_everything_back(self) -> None:
        if self.rebalancer is not None:
            await self.rebalancer.close()
        elif self._broadcasting is not None:
            await self._broadcasting.close()
        else:
            self.consumption.begin_close()
            async with asyncio.TaskGroup() as tasks:
                for queue in self.consumption.queues:
                    tasks.create_task(self.consumption.stop(queue), name=f"stop:{queue}")


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
