"""The consumer that is polled: `poll` returns what was fetched ahead."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from types import TracebackType
from typing import Self

from aerobee.access.credentials import Credentials
from aerobee.client_core.defaults import (
    check_whole_number,
    cluster_or_default,
    config_or_default,
    milliseconds,
    nameservers_or_default,
)
from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.offsets import Offsets
from aerobee.client_core.readiness import READY_TIMEOUT_S
from aerobee.client_core.short_tracebacks import TOLD, shortened
from aerobee.client_core.telemetry import Polling, Telemetry
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.answers import Reject
from aerobee.consumer_client.beginnings import StartPolicy
from aerobee.consumer_client.consumer_runtime import (
    ConsumerRuntime,
    ConsumerSettings,
    default_client_id,
)
from aerobee.consumer_client.filters import Expression, compared_tags
from aerobee.consumer_client.options import ConsumerConfig, StartFrom
from aerobee.consumer_client.owned_queue import Assignment, Unleased
from aerobee.consumer_client.processing import Processing
from aerobee.consumer_client.pull_queue import PulledQueues, PullQueue
from aerobee.consumer_client.received_batch import ReceivedBatch
from aerobee.consumer_client.sending_back import reject_at_broker
from aerobee.consumer_client.statistics import ConsumerStatistics
from aerobee.consumer_client.strategies import Averagely, RebalanceStrategy
from aerobee.domain.names import check_topic_name
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime.clock import Clock, clock_here
from aerobee.runtime.errors import InvalidArgument, ShuttingDown
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

FRAME_MESSAGES_MAX = 65_536
POLL_TIMEOUT_S = 1.0


class PullConsumer:
    """Messages on request, from subscribed topics or from queues that you choose.

    With `subscribe` the members of a group share the queues, as with PushConsumer. With `assign`
    this consumer reads just these queues without asking brokers; commits are then accepted only
    while no member of the group holds a queue.

    With `auto_commit` the messages of one `poll` count as done when the next `poll` is called, and
    those of the last one when the `async with` block ends without an exception. If an exception
    ends the block, they come again; so they do after `aclose`, unless `commit` was called. What is
    done is committed every `commit_interval_ms` and on closing. Without `auto_commit` only `commit`
    and `processing` move offsets. Several tasks that share a consumer need that: otherwise the
    `poll` of one would count as done what another is still handling. When a queue moves to another
    member, it waits up to `release_timeout_ms` for the next `poll`, `commit` or end of
    `processing`, so that the messages in hand are not handled twice.

    Args: as PushConsumer. auto_commit: see above.
    Raises: IllegalName, InvalidArgument: a name or setting that can never work.

    Example::

        consumer = PullConsumer("report", start_from=StartFrom.FIRST)
        consumer.subscribe("orders")
        async with consumer:
            while messages := await consumer.poll(500, timeout=1.0):
                print([message.body for message in messages])
    """

    def __init__(
        self,
        group: str,
        *,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        auto_commit: bool = True,
        broadcasting: bool = False,
        strategy: RebalanceStrategy | None = None,
        start_from: StartFrom = StartFrom.LAST,
        start_timestamp_ms: int | None = None,
        client_id: str | None = None,
        tls: bool | TlsConfig | None = None,
        credentials: Credentials | None = None,
        telemetry: Telemetry | None = None,
        offsets_folder: Path | None = None,
        config: ConsumerConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = ConsumerSettings(
            nameservers=nameservers_or_default(nameservers),
            group=group,
            client_id=client_id or default_client_id(broadcasting=broadcasting),
            cluster=cluster_or_default(cluster),
            tls=tls,
            credentials=credentials,
            broadcasting=broadcasting,
            strategy=strategy or Averagely(),
            start_policy=StartPolicy(start_from, start_timestamp_ms),
            offsets_folder=offsets_folder,
            options=replace(
                config_or_default(config, ConsumerConfig), fetch_messages_max=FRAME_MESSAGES_MAX
            ),
            clock=clock or clock_here(),
        )
        self._auto_commit = auto_commit
        self._telemetry = telemetry
        self._subscriptions: dict[str, Expression] = {}
        self._runtime: ConsumerRuntime | None = None
        self._is_closed = False
        self._queues = PulledQueues(self._settings.clock)
        self._handled = 0

    def __repr__(self) -> str:
        return f"PullConsumer(group={self._settings.group!r}, client_id={self.client_id!r})"

    @property
    def client_id(self) -> str:
        return self._settings.client_id

    # ------------------------------------------------------------------------------ life

    def subscribe(self, topic: str, expression: Expression = "*") -> Self:
        """Share a topic's queues with the group: all messages, with a tag of `a || b`, or those for
        which `sql("price > 5")` is true.

        Call it before the start.

        Raises:
            IllegalName, FilterIllegal: no topic has such a name; no message can match.
            InvalidArgument: the consumer has been started.
        """
        if self._runtime is not None:
            raise InvalidArgument("subscribe before the consumer is started")
        check_topic_name(topic)
        compared_tags(expression)  # else it is refused
        self._subscriptions[topic] = expression
        return self

    async def start(self) -> None:
        """Connect, and join the group if something is subscribed; with `StartFrom.LAST`, return
        when everything that is sent from now on will be read. Close it in the same task.

        Raises:
            InvalidArgument: it was started before.
            TopicNotFound: a subscribed topic does not exist.
            Unreachable, DeadlineExceeded: no nameserver answers within `await_cluster_ms`.
            NoBrokerAvailable, DeadlineExceeded: a broker group without which it is not known where
                the group begins was away for `failover_timeout_ms`.
            DuplicateClient: another live member has this client id.
        """
        if self._runtime is not None:
            raise InvalidArgument("a consumer can be started only once; make another one")
        self._runtime = ConsumerRuntime(self._settings, self._subscriptions, self._make_queue)
        try:
            await self._runtime.open()
        except TOLD as error:
            self._is_closed = True
            raise shortened(error) from error.__cause__
        except BaseException:
            self._is_closed = True
            raise

    async def aclose(self) -> None:
        """Commit what is done, give the queues back, leave the group. What the last `poll` returned
        is not done: to leave the `async with` block says that it is, and so does `commit`.

        Commits that no master took in time are given up, with a warning in the log for each queue;
        `commit` before raises instead.

        Raises:
            AerobeeError: what ended the consumer before, if something did.
        """
        await self._close(None, None, None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if kind is None:
            self._settle_on_leaving()
        return await self._close(kind, error, traceback)

    def _settle_on_leaving(self) -> None:
        """The user's block succeeded, and so did the messages in hand."""
        if self._auto_commit:
            self._queues.settle()

    async def _close(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._runtime is None or self._is_closed:
            return False
        self._is_closed = True
        self._queues.close()
        return await self._runtime.close(kind, error, traceback)

    async def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Read exactly these queues from now on, each from its committed offset or, without one,
        from where `start_from` says. Queues that are read already go on.

        Raises:
            InvalidArgument: topics are subscribed.
            FilterIllegal: no message can match the expression.
            AerobeeError: where to begin cannot be asked.
        """
        if self._subscriptions:
            raise InvalidArgument("a consumer either subscribes to topics or is assigned queues")
        compared_tags(expression)  # else it is refused
        runtime = self._started()
        wanted = set(queues)
        for queue in runtime.consumption.queues:
            if queue not in wanted:
                await runtime.consumption.stop(queue)
        fresh = sorted(queue for queue in wanted if not runtime.consumption.has(queue))
        begun = await runtime.beginnings.of_chosen(fresh) if fresh else {}
        for queue in fresh:
            runtime.consumption.take(Assignment(queue, expression, 0, Unleased()), begun[queue])

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues it reads now, ascending."""
        return [] if self._runtime is None else self._runtime.consumption.queues

    # ------------------------------------------------------------------------------ messages

    async def poll(
        self, max_messages: int = 500, *, timeout: float = POLL_TIMEOUT_S
    ) -> list[ReceivedMessage]:
        """Up to `max_messages` messages, as soon as there are any; none after `timeout` seconds.

        Messages of one queue come in order; queues take turns.

        Raises:
            InvalidArgument: it has no topics and was given no queues; less than one message, or no
                number of seconds.
            AerobeeError: what ended the consumer, for example DuplicateClient.
        """
        runtime = self._started()
        check_whole_number("max_messages", max_messages, minimum=1)
        if not self._subscriptions and not runtime.consumption.queues:
            raise InvalidArgument("nothing can come: subscribe to a topic, or assign queues")
        end_s = self._begin_poll(timeout)
        polling = self._polling()
        taken: list[ReceivedMessage] = []
        # A frame may contain nothing but messages with other tags: then keep waiting.
        while not taken and await self._queues.wait(end_s, runtime.failure):
            while len(taken) < max_messages and (pulled := self._queues.next()) is not None:
                taken += pulled.take_messages(max_messages - len(taken))
                self._handed_out(pulled)
        self._handled += len(taken)
        if polling is not None and taken:
            polling.on_received(taken, len(taken))
        return taken

    async def poll_batches(
        self, max_batches: int = 16, *, timeout: float = POLL_TIMEOUT_S
    ) -> list[ReceivedBatch]:
        """Up to `max_batches` batches as they came from the brokers; the fastest way to read.

        A batch is up to 512 KiB of one queue. With a tag filter it may turn out empty when looked
        at.
        """
        runtime = self._started()
        check_whole_number("max_batches", max_batches, minimum=1)
        end_s = self._begin_poll(timeout)
        polling = self._polling()
        taken: list[ReceivedBatch] = []
        while not taken and await self._queues.wait(end_s, runtime.failure):
            while len(taken) < max_batches and (pulled := self._queues.next()) is not None:
                batch = pulled.take_batch()
                self._handed_out(pulled)
                if batch.count:
                    taken.append(batch)
                    self._handled += batch.count
        if polling is not None and taken:
            count = sum(batch.count for batch in taken)
            polling.on_received((message for batch in taken for message in batch), count)
        return taken

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Each message as it comes, without end: `async for message in consumer`.

        With `auto_commit` a message counts as done when the next one is asked for, or when the
        `async with` block ends without an exception.
        """
        return self._endless()

    async def _endless(self) -> AsyncIterator[ReceivedMessage]:
        while True:
            try:
                message = await self.next_message()
            except TOLD as error:
                raise shortened(error) from error.__cause__
            yield message

    async def next_message(self) -> ReceivedMessage:
        """The next message, however long it takes to come. Raises as `poll`."""
        while True:
            found = await self.poll(1, timeout=POLL_TIMEOUT_S)
            if found:
                return found[0]

    def _put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """They were taken for a caller that did not get them: the next poll returns them."""
        consumption = self._started().consumption
        self._handled -= len(messages)
        for message in messages:
            owned = consumption.owned(message.queue)
            if isinstance(owned, PullQueue):
                owned.put_back(message)

    def _begin_poll(self, timeout: float) -> float:
        """Acknowledge the previous poll; returns when this one ends."""
        if not isinstance(timeout, int | float) or isnan(timeout):
            raise InvalidArgument(f"timeout must be a number of seconds, not {timeout!r}")
        if self._auto_commit:
            self._queues.settle()
        return self._settings.clock.monotonic_s() + timeout

    def _polling(self) -> Polling | None:
        telemetry = self._telemetry
        return None if telemetry is None else telemetry.polling(group=self._settings.group)

    def _handed_out(self, pulled: PullQueue) -> None:
        self._queues.on_handed_out(pulled)
        self._started().consumption.refresh_credit(pulled)

    # ------------------------------------------------------------------------------ offsets

    def processing(self, message: ReceivedMessage) -> Processing:
        """Handle one message: it is done when the block ends, and comes again if that raises.

        `RetryLater(after=...)` says that it comes again after a while, and `Reject(reason)` that it
        is a dead letter; neither leaves the block as an exception.

        A failed message comes with the next `poll`, before newer ones of its queue, and its
        `reconsume_times` says how often it failed here. A queue's committed offset is the lowest
        one that is not done, so several messages may be handled at a time, in any order; after a
        crash, those above the lowest come again, too. It is committed as usual, every
        `commit_interval_ms` and on closing.

        Example::

            consumer = PullConsumer("report", auto_commit=False, start_from=StartFrom.FIRST)
            consumer.subscribe("orders")
            async with consumer:
                for message in await consumer.poll(500, timeout=1.0):
                    async with consumer.processing(message):
                        print(message.body)

        Raises:
            InvalidArgument: polling again would acknowledge the message: the consumer was made
                without auto_commit=False; or it is not of `poll`.
            AerobeeError: at the end of the block, its broker could not be told of a `Reject`; the
                message comes again.
        """
        telemetry, group = self._telemetry, self._settings.group
        watched = None if telemetry is None else telemetry.processing(message, group=group)
        return Processing(message, watched, reject=self._reject)

    async def _reject(self, message: ReceivedMessage, error: Reject) -> None:
        """Raises AerobeeError."""
        owned = self._pull_queue(message.queue)
        if self._settings.broadcasting:
            log_event(
                log,
                "message rejected; without a broker there are no dead letters",
                level=logging.ERROR,
                group=self._settings.group,
                queue=message.queue,
                offset=message.queue_offset,
                reason=error.reason,
            )
            return
        await reject_at_broker(
            self._started().connection,
            message,
            error,
            group=self._settings.group,
            client_id=self.client_id,
            lease_epoch=owned.assignment.lease_epoch,
            timeout_ms=self._settings.options.failover_timeout_ms,
        )

    async def commit(self) -> None:
        """All messages handed out so far are done, but for those in a block of `processing` and
        those that failed there: commit that now.

        While a broker group changes its master this waits, for `failover_timeout_ms` at most.

        Raises:
            LeaseExpired: a queue was lost in the meantime; its messages are handled again
            elsewhere.
            LeaseHeld: an assigned queue belongs to a member of the group.
            AerobeeError: a broker could not be reached all the time; a later commit tries again.
        """
        runtime = self._started()
        self._queues.settle()
        wait_ms = self._settings.options.failover_timeout_ms
        refused = await runtime.consumption.commit(wait_ms=wait_ms)
        for error in refused.values():
            raise error

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset of an owned queue; an offset that is not stored is corrected.

        Raises:
            InvalidArgument: the queue is not this consumer's, or the offset is negative.
        """
        runtime = self._started()
        if offset < 0:
            raise InvalidArgument(f"offset {offset} is negative")
        if not runtime.consumption.has(queue):
            raise _not_owned(queue)
        runtime.consumption.restart(queue, offset)

    def position(self, queue: MessageQueue) -> int:
        """The offset that `poll` returns next of an owned queue.

        Raises:
            InvalidArgument: the queue is not this consumer's.
        """
        return self._pull_queue(queue).position

    async def committed(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """The group's committed offsets; None where it never committed.

        Raises:
            AerobeeError: the store cannot be read.
        """
        asked = list(queues)
        found = await self._started().store.read(asked)
        return {queue: found.get(queue) for queue in asked}

    async def begin_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The lowest stored offset of each queue. Raises AerobeeError."""
        return {q: found.min_offset for q, found in (await self._offsets().bounds(queues)).items()}

    async def end_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offset that each queue's next message will get. Raises AerobeeError."""
        found = await self._offsets().bounds(queues)
        return {queue: each.max_offset_end for queue, each in found.items()}

    async def offsets_for_time(
        self, queues: Iterable[MessageQueue], timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        """The first offset stored at or after a time. Raises AerobeeError."""
        return await self._offsets().by_timestamp(queues, timestamp_ms)

    async def queues_of(self, topic: str) -> list[MessageQueue]:
        """A topic's queues, ascending, for `assign`. Raises TopicNotFound, Unreachable."""
        return list((await self._started().connection.routes.route(topic)).readable_queues)

    # ------------------------------------------------------------------------------ flow

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing of these queues until `resume`, even if they move away and back."""
        self._queues.pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Undo `pause`."""
        self._queues.resume(queues)
        for pulled in self._queues.live():
            self._started().consumption.refresh_credit(pulled)

    def statistics(self) -> ConsumerStatistics:
        """What it owns and has done."""
        runtime = self._runtime
        queues = [
            runtime.consumption.statistics(
                pulled,
                position=pulled.position,
                cached_messages=pulled.cached_count,
                cached_bytes=pulled.cached_bytes,
            )
            for pulled in self._queues.live()
            if runtime is not None
        ]
        rebalancer = None if runtime is None else runtime.rebalancer
        return ConsumerStatistics(
            client_id=self.client_id,
            members=() if rebalancer is None else tuple(rebalancer.member_ids),
            queues=tuple(queues),
            handled=self._handled,
            failed_calls=0,
            retrying=0,
            skipped=0,
            duplicates=0,
            queues_lost=0 if rebalancer is None else rebalancer.queues_lost,
        )

    async def ready(self, *, timeout: float = READY_TIMEOUT_S) -> None:
        """Return when this member reads: a nameserver and the brokers of its topics answer, it has
        joined the group at each of them, and has its share of the queues, which may be none.

        Args:
            timeout: seconds.

        Raises:
            DeadlineExceeded: not within the time; the message says what is missing. For example,
                a member that died holds its queues until its session is over.
            InvalidArgument, ShuttingDown: it is not started, or is closed.
            AerobeeError: what ended the consumer, for example DuplicateClient.
        """
        await self._started().ready(self.assignment, milliseconds(timeout))

    def obstacles(self) -> list[str]:
        """What keeps messages of subscribed topics away at this moment, in sentences: a broker
        group without a master, one that does not answer, queues that other members hold, perhaps
        dead ones. Empty if nothing does; moments after the start, and while a master changes,
        something always does."""
        return self._started().obstacles()

    # ------------------------------------------------------------------------------ inside

    def _started(self) -> ConsumerRuntime:
        if self._is_closed:
            raise ShuttingDown("the consumer is closed")
        if self._runtime is None:
            raise InvalidArgument("the consumer is not running: use it inside `async with`")
        self._runtime.check_usable()
        return self._runtime

    def _offsets(self) -> Offsets:
        return Offsets(
            self._started().connection, timeout_ms=self._settings.options.request_timeout_ms
        )

    def _pull_queue(self, queue: MessageQueue) -> PullQueue:
        owned = self._started().consumption.owned(queue)
        if not isinstance(owned, PullQueue):
            raise _not_owned(queue)
        return owned

    def _make_queue(self, assignment: Assignment, start_offset: int) -> PullQueue:
        pulled = PullQueue(
            assignment,
            start_offset,
            self._settings.options.prefetch_bytes_max,
            counts_each=not self._auto_commit,
            on_ready=self._queues.on_ready,
        )
        self._queues.add(pulled)
        return pulled


def _not_owned(queue: MessageQueue) -> InvalidArgument:
    return InvalidArgument(f"{queue} is not read by this consumer now")
