"""The queues that one consumer reads: started, read, committed, stopped.

Owns: the owned queues, and when they are committed. Other parts decide which queues are ours
(leases, broadcasting, the user), from which replica they are read (GroupReads), how a commit
reaches its broker (Committing), and what is done with messages.
Invariants: a queue is owned once; its reading ends before its last commit; a lost queue is never
committed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.background_tasks import BackgroundTasks, wait_event
from aerobee.consumer_client.beginnings import Beginnings
from aerobee.consumer_client.committing import (
    LEASE_ERRORS,
    ROUTE_ERRORS,
    Committing,
    Holding,
    OffsetStore,
)
from aerobee.consumer_client.group_reads import GroupReads
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.consumer_client.owned_queue import Assignment, OwnedQueue
from aerobee.consumer_client.pull_frames import Pulled
from aerobee.consumer_client.statistics import QueueStatistics
from aerobee.domain.names import is_retry_topic
from aerobee.runtime import errors
from aerobee.runtime.log import log_event
from aerobee.v1 import common_pb2

log = logging.getLogger(__name__)

_MOVED = "queue continues at another offset"


class Consumption:
    """All owned queues of one consumer."""

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        group: str,
        client_id: str,
        is_broadcasting: bool,
        store: OffsetStore,
        beginnings: Beginnings,
        options: ConsumerConfig,
        make_queue: Callable[[Assignment, int], OwnedQueue],
        tasks: BackgroundTasks,
    ) -> None:
        self._connection = connection
        self._group = group
        self._client_id = client_id
        self._is_broadcasting = is_broadcasting
        self._beginnings = beginnings
        self._options = options
        self._make_queue = make_queue
        self._tasks = tasks
        self._holdings: dict[MessageQueue, Holding] = {}
        self._starting: dict[MessageQueue, Assignment] = {}
        self._reads: dict[str, GroupReads] = {}
        self._committing = Committing(connection, store, group=group)
        self._commit_now = asyncio.Event()
        self._failure: errors.AerobeeError | None = None
        self._is_closing = False

    def __repr__(self) -> str:
        return f"Consumption(owned={len(self._holdings)}, starting={len(self._starting)})"

    # ------------------------------------------------------------------------------ queues

    @property
    def queues(self) -> list[MessageQueue]:
        """Currently owned, ascending."""
        return sorted(self._holdings)

    def owned(self, queue: MessageQueue) -> OwnedQueue | None:
        holding = self._holdings.get(queue)
        return None if holding is None else holding.owned

    def has(self, queue: MessageQueue) -> bool:
        """Owned, or about to be."""
        return queue in self._holdings or queue in self._starting

    def statistics(
        self, owned: OwnedQueue, *, position: int, cached_messages: int, cached_bytes: int
    ) -> QueueStatistics:
        """Of an owned queue that is not dropped."""
        queue = owned.assignment.queue
        holding = self._holdings[queue]
        return QueueStatistics(
            queue=queue,
            lease_epoch=owned.assignment.lease_epoch,
            position=position,
            safe_offset=owned.safe_offset,
            max_offset=holding.max_offset,
            lag=max(0, holding.max_offset - owned.safe_offset),
            cached_messages=cached_messages,
            cached_bytes=cached_bytes,
            reads_from=holding.reads.place_of(owned),
        )

    def take(self, assignment: Assignment, committed_offset: int | None) -> None:
        """Own a queue from now on, at its committed offset or, if the group never committed, where
        it begins."""
        queue = assignment.queue
        self.drop(queue)
        if self._is_closing:
            return
        if committed_offset is not None:
            self._own(assignment, committed_offset, committed_offset)
            return
        self._starting[queue] = assignment
        self._tasks.create_task(self._find_start(assignment), name=f"start:{queue}")

    async def _find_start(self, assignment: Assignment) -> None:
        queue = assignment.queue
        failures = 0
        offset: int | None = None
        while self._starting.get(queue) is assignment and offset is None:
            try:
                offset = await self._beginnings.of_queue(queue)
            except errors.AerobeeError as error:
                self._on_start_failed(queue, error)
                await asyncio.sleep(
                    self._options.backoff.delay_s(failures, self._connection.random)
                )
                failures += 1
        if self._starting.get(queue) is not assignment or offset is None:
            return
        del self._starting[queue]
        self._own(assignment, offset, None)
        # Tell the group at once, even if it could not be stored before.
        self._commit_now.set()

    async def stop(self, queue: MessageQueue) -> None:
        """Give a queue up in order: no more messages, running listeners end, commit."""
        self._starting.pop(queue, None)
        holding = self._holdings.get(queue)
        if holding is None:
            return
        holding.reads.remove(holding.owned)
        drain_ms, report_ms = self._options.release_timeout_ms, self._options.failover_timeout_ms
        if self._is_closing:
            # Slow listeners must leave time to commit what others have finished.
            drain_ms = report_ms = min(drain_ms, self._options.close_timeout_ms * 3 // 4)
        await holding.owned.drain(drain_ms / 1_000, report_ms / 1_000)
        if self._holdings.get(queue) is holding:
            await self._committing.commit([holding], wait_ms=self._options.release_timeout_ms)
        if self._holdings.get(queue) is holding:
            self._tell_if_uncommitted(holding)
            self.drop(queue)
            log_event(
                log,
                "queue given up",
                level=_level(queue),
                group=self._group,
                queue=queue,
                committed_offset=holding.committed_offset,
                reason="the consumer closes" if self._is_closing else "it is no longer assigned",
            )

    def drop(self, queue: MessageQueue) -> None:
        """Stop a queue at once, without a commit: it belongs to another member by now."""
        self._starting.pop(queue, None)
        holding = self._holdings.pop(queue, None)
        if holding is not None:
            holding.reads.remove(holding.owned)
            holding.owned.drop()

    def restart(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset; what was fetched is dropped, running listeners are
        cancelled."""
        starting = self._starting.pop(queue, None)
        holding = self._holdings.get(queue)
        if starting is not None:
            self._own(starting, offset, None, event=_MOVED)
        elif holding is not None:
            self.drop(queue)
            self._own(holding.owned.assignment, offset, holding.committed_offset, event=_MOVED)

    def refresh_credit(self, owned: OwnedQueue) -> None:
        """The queue may have room for more messages."""
        holding = self._holdings.get(owned.assignment.queue)
        if holding is not None and holding.owned is owned:
            holding.reads.refresh_credit(owned)

    def _own(
        self,
        assignment: Assignment,
        offset: int,
        committed_offset: int | None,
        *,
        event: str = "queue gained",
    ) -> None:
        owned = self._make_queue(assignment, offset)
        reads = self._reads_of(assignment.queue)
        self._holdings[assignment.queue] = Holding(owned, reads, committed_offset)
        reads.add(owned)
        log_event(
            log,
            event,
            level=_level(assignment.queue),
            group=self._group,
            queue=assignment.queue,
            offset=offset,
            lease_epoch=assignment.lease_epoch,
        )

    def _on_start_failed(self, queue: MessageQueue, error: errors.AerobeeError) -> None:
        self._connection.routes.invalidate(queue.topic)
        log_event(
            log,
            "start offset unknown, trying again",
            level=logging.WARNING,
            group=self._group,
            queue=queue,
            reason=error,
        )

    def _reads_of(self, queue: MessageQueue) -> GroupReads:
        known = self._reads.get(queue.broker_name)
        if known is not None:
            return known
        reads = GroupReads(
            self._connection,
            queue,
            group=self._group,
            client_id=self._client_id,
            options=self._options,
            tasks=self._tasks,
            on_result=self._on_result,
            on_refused=self._on_refused,
        )
        self._tasks.create_task(reads.run(), name=f"reads:{queue.broker_name}")
        self._reads[queue.broker_name] = reads
        return reads

    # ------------------------------------------------------------------------------ reading

    def _on_result(self, owned: OwnedQueue, pulled: Pulled) -> None:
        """Messages, or an offset that the broker corrected."""
        result = pulled.result
        queue = owned.assignment.queue
        holding = self._holdings.get(queue)
        if holding is None or holding.owned is not owned:
            return
        holding.max_offset = result.max_offset
        if result.code == common_pb2.OK:
            holding.has_read = True
            owned.on_records(pulled.records, result.record_count, result.next_offset)
            return
        next_offset = result.next_offset
        if result.code == common_pb2.OFFSET_TOO_LARGE and self._keeps_position(holding):
            # What was read there is gone, and what came in its place may be any of these.
            next_offset = result.min_offset
        log_event(
            log,
            "offset corrected by the broker",
            level=logging.WARNING,
            group=self._group,
            queue=queue,
            code=common_pb2.Code.Name(result.code),
            asked=owned.fetch_offset,
            next_offset=next_offset,
        )
        if next_offset < owned.fetch_offset:
            self.restart(queue, next_offset)
        else:
            owned.on_records(b"", 0, next_offset)

    def _keeps_position(self, holding: Holding) -> bool:
        """Whether only this consumer knows that it has read up to where it is: the queue's broker
        neither keeps the group's offset there nor removes it with the messages."""
        is_leased = holding.owned.assignment.lease_epoch != 0
        return not is_leased and (holding.has_read or self._is_broadcasting)

    def _on_refused(self, owned: OwnedQueue, error: errors.AerobeeError) -> None:
        """A replica ended a queue's subscription: it is lost, illegal, or retried automatically."""
        queue = owned.assignment.queue
        holding = self._holdings.get(queue)
        if holding is None or holding.owned is not owned:
            return
        if isinstance(error, LEASE_ERRORS) and owned.assignment.lease_epoch:
            owned.assignment.trust.on_refused(queue, owned.assignment.lease_epoch, str(error))
        elif isinstance(
            error, (errors.InvalidArgument, errors.AccessDenied, errors.Unauthenticated)
        ):
            self._fail(error)
        elif isinstance(error, ROUTE_ERRORS):
            self._connection.routes.invalidate(queue.topic)

    def _fail(self, error: errors.AerobeeError) -> None:
        self._failure = error
        self._commit_now.set()

    # ------------------------------------------------------------------------------ committing

    async def run(self) -> None:
        """Commit at intervals; never returns.

        Raises:
            InvalidArgument: a broker will never serve a subscription as it is.
        """
        interval_s = self._options.commit_interval_ms / 1_000
        while True:
            await wait_event(self._commit_now, interval_s)
            self._commit_now.clear()
            if self._failure is not None:
                raise self._failure
            await self.commit()

    async def commit(
        self, queues: Iterable[MessageQueue] | None = None, *, wait_ms: int = 0
    ) -> Mapping[MessageQueue, errors.AerobeeError]:
        """Commit the safe offsets of some or all owned queues; returns what was not committed.

        A queue whose lease turns out to be lost is dropped. While a broker group has no master, or
        a master that does not know our leases yet, its queues are retried for up to `wait_ms`.
        """
        wanted = list(self._holdings) if queues is None else list(queues)
        holdings = [self._holdings[queue] for queue in wanted if queue in self._holdings]
        return await self._committing.commit(holdings, wait_ms=wait_ms)

    def on_confirmed(self, broker_name: str) -> None:
        """A master knows our leases: continue there. What its predecessor was told is committed
        again, because it may have crashed and lost that."""
        for queue, holding in self._holdings.items():
            if queue.broker_name == broker_name:
                holding.committed_offset = None
        if (reads := self._reads.get(broker_name)) is not None:
            reads.on_confirmed()
        self._commit_now.set()
        self._committing.on_confirmed()
        for topic in self._beginnings.to_begin_again(broker_name):
            self._tasks.create_task(
                self._begin_again(topic, broker_name), name=f"begin-again:{topic}@{broker_name}"
            )

    def on_group_deleted(self, broker_name: str, topics: Iterable[str]) -> None:
        """The group's data there is gone: its queues are granted again as those of a new group."""
        self._beginnings.on_group_deleted(broker_name, topics)

    async def _begin_again(self, topic: str, broker_name: str) -> None:
        """Immediately, not when a queue is granted, which may be to a member that never appears."""
        try:
            await self._beginnings.begin_again(topic, broker_name)
        except errors.AerobeeError as error:
            log_event(
                log,
                "the group's new start offset is not stored yet: it will be with the next grant",
                level=logging.DEBUG,
                group=self._group,
                topic=topic,
                broker=broker_name,
                reason=error,
            )

    def begin_close(self) -> None:
        """Take no more queues."""
        self._is_closing = True
        self._starting.clear()

    def end(self) -> None:
        """Drop what is left: the last step of closing a consumer."""
        self.begin_close()
        for queue in self.queues:
            self._tell_if_uncommitted(self._holdings[queue])
            self.drop(queue)

    def _tell_if_uncommitted(self, holding: Holding) -> None:
        """A queue is given up: anything finished after this is not committed."""
        if holding.is_committed:
            return
        log_event(
            log,
            "queue given up, its last commit was not acknowledged",
            level=logging.WARNING,
            group=self._group,
            queue=holding.owned.assignment.queue,
            safe_offset=holding.owned.safe_offset,
            committed_offset=holding.committed_offset,
            reason=str(holding.refusal or "there was no time left for it"),
        )


def _level(queue: MessageQueue) -> int:
    """Of lines about a queue's life: each group has the retry topic without asking for it."""
    return logging.DEBUG if is_retry_topic(queue.topic) else logging.INFO
