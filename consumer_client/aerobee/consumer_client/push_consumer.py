"""The consumer that calls: a listener is given messages as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from aerobee.access.credentials import Credentials
from aerobee.client_core.defaults import (
    cluster_or_default,
    config_or_default,
    milliseconds,
    nameservers_or_default,
)
from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.readiness import READY_TIMEOUT_S
from aerobee.client_core.short_tracebacks import TOLD, shortened
from aerobee.client_core.telemetry import Telemetry
from aerobee.consumer_client.attempts import Attempts
from aerobee.consumer_client.attempts_file import AttemptsFile, attempts_folder, default_folder
from aerobee.consumer_client.beginnings import StartPolicy
from aerobee.consumer_client.consumer_runtime import (
    ConsumerRuntime,
    ConsumerSettings,
    default_client_id,
)
from aerobee.consumer_client.ending_signals import stopped_by_signals
from aerobee.consumer_client.failed_calls import Exit
from aerobee.consumer_client.filters import ALL_TAGS, Expression, compared_tags, is_wanted
from aerobee.consumer_client.flow_control import FlowLimits
from aerobee.consumer_client.keyed_queue import key_reader
from aerobee.consumer_client.listener import (
    Listener,
    ListenerOptions,
    OnExhausted,
    OrderBy,
    Ordering,
)
from aerobee.consumer_client.listener_pool import ListenerPool
from aerobee.consumer_client.listener_shape import gets_batches
from aerobee.consumer_client.listener_threads import threads_for
from aerobee.consumer_client.options import ConsumerConfig, StartFrom
from aerobee.consumer_client.owned_queue import Assignment
from aerobee.consumer_client.push_queue import PushQueue
from aerobee.consumer_client.retry_schedule import RetryPolicy
from aerobee.consumer_client.sending_back import FailedWork, SendingBack
from aerobee.consumer_client.statistics import ConsumerStatistics, QueueStatistics
from aerobee.consumer_client.strategies import Averagely, RebalanceStrategy
from aerobee.domain.names import check_topic_name, is_retry_topic
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime.clock import Clock, clock_here
from aerobee.runtime.errors import InvalidArgument, ShuttingDown
from aerobee.store.format.dead_letter_fields import retry_topic

KEYED_SPAN = 25
"""How many times farther than `FlowLimits.span_max` a queue is read past a key that is held up."""
RETRIES_WITHOUT_END = (1 << 31) - 1
"""The broker counts, and the member decides."""


class PushConsumer:
    """Calls a listener with the messages of subscribed topics, at least once each.

    In clustering mode (the default) the members of a group share the queues; a queue has one
    owner at a time, and the group's offsets are kept by the brokers. In broadcasting mode every
    member gets everything and keeps its own offsets in a local file.

    A message whose listener fails is handled again, as the group is configured, and ends as a dead
    letter. A listener that raises or returns `RetryLater(after=...)` says when it is handled again,
    and one that raises or returns `Reject(reason)` makes it a dead letter at once. With `retry` or
    `on_exhausted` it is handled again until it succeeds or `on_exhausted` decides to skip it.
    Nothing is dropped silently.
    The committed offset never passes a message that is not finished. A message is seen again
    after a crash, and when its queue moves to another member in the middle of its handling:
    listeners must be ready for that.

    Up to `max_concurrency` calls run at a time: of a coroutine function on the event loop, of a
    plain function in threads, so that it may block. A plain function that is quick and never blocks
    is called faster on the event loop, with `run_in_thread=False`; nothing else runs meanwhile,
    heartbeats included.

    Args:
        group: the consumer group. All members must have the same subscriptions.
        listener: gets 1 to `consume_batch_max` messages of one queue; see `Listener`.
        ordering: CONCURRENT, or ORDERLY: one call at a time per queue, in order, and a failure
            suspends the queue and repeats the same messages, without limit unless the group has
            `retries_max`.
        suspend_ms: how long a failure suspends a queue. None: as the group is configured, by
            default 1 s, then twice as long each time, up to 1 min.
        order_by: "key": messages with the same sharding key are handled one after another, in the
            order of their queue, and other keys beside them; or a function that makes a key of a
            message. A failure holds up only its key, is repeated like one of ORDERLY, and keeps the
            committed offset before it. Messages without a key are in no order.
        max_concurrency: calls of the listener at a time, over all queues.
        consume_batch_max: most messages in one call; in order 256 at most.
        run_in_thread: whether a plain function is called in a thread.
        handle_timeout: seconds after which a call of a coroutine function is cancelled and counts
            as failed. None: a call may take as long as it wants; its queue stays with this member.
        retry: failed messages wait in this member, and this says for how long. None: they are sent
            back to the broker, and come again to any member as the group is configured, or end as
            dead letters; in order they stay until they do; when broadcasting, they wait here as
            `RetryPolicy()` says.
        on_exhausted: decides after `retry.attempts_max` failures of messages that wait here; with
            it messages are not sent back, and end as no dead letters.
        broadcasting: every member gets every message.
        strategy: how members share queues; the same on all members.
        start_from: where to begin in a queue on which the group never committed.
        start_timestamp_ms: Unix ms, with StartFrom.TIMESTAMP.
        client_id: this member's name, unique in the group. By default made from host and process;
            in broadcasting mode `host@DEFAULT`, so that a restart finds its local offsets.
        offsets_folder: of local offsets, and of what was in the listener's hands when a process
            died; default `~/.rocketmq_offsets`.
        nameservers, cluster, tls, credentials: as for `ClusterConnection`.
        telemetry: records traces and metrics; see docs/tracing.md.
        config: timeouts, intervals, limits.

    Raises:
        IllegalName, InvalidArgument: a name or setting that can never work.

    Example::

        def handle(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                print(message.queue, message.queue_offset, message.body)

        consumer = PushConsumer("billing", handle, start_from=StartFrom.FIRST)
        consumer.subscribe("orders", "paid || refunded")
        await consumer.run()  # until consumer.stop(), cancellation or a signal; closes gracefully
    """

    _runtime: ConsumerRuntime | None = None
    _sending_back: SendingBack | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _starting: asyncio.Timeout | None = None  # Of `run`, until the start has returned.
    _block: asyncio.Task[object] | None = None  # Of `async with`.
    _exit: Exit | None = None  # Of the user's code; raised again once all is closed.
    _is_closed = False
    _duplicates_of_past_queues = 0

    def __init__(
        self,
        group: str,
        listener: Listener,
        *,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        ordering: Ordering = Ordering.CONCURRENT,
        order_by: OrderBy | None = None,
        max_concurrency: int = 20,
        consume_batch_max: int = 1,
        run_in_thread: bool = True,
        handle_timeout: float | None = None,
        retry: RetryPolicy | None = None,
        suspend_ms: int | None = None,
        on_exhausted: OnExhausted | None = None,
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
        self._telemetry = telemetry
        self._threads = threads_for(listener, max_concurrency, wanted=run_in_thread)
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
            options=config_or_default(config, ConsumerConfig),
            clock=clock or clock_here(),
        )
        if handle_timeout is not None:
            _check_can_end(self._threads)
        self._order_by = order_by
        self._in_order = ordering == Ordering.ORDERLY or order_by is not None
        self._retries_max = RETRIES_WITHOUT_END if retry or on_exhausted else None
        self._sends_back = not (self._in_order or broadcasting or self._retries_max)
        self._attempts = Attempts()
        self._attempts_file = self._make_attempts_file()
        self._pool = self._make_pool(
            self._threads or listener,
            ListenerOptions(
                ordering=ordering,
                order_by=order_by,
                handle_timeout=handle_timeout,
                max_concurrency=max_concurrency,
                consume_batch_max=consume_batch_max,
                retry=retry or RetryPolicy(),
                suspend_ms=suspend_ms,
                on_exhausted=on_exhausted,
                gets_batches=gets_batches(listener),
            ),
        )
        self._subscriptions: dict[str, Expression] = {}
        self._stopping = asyncio.Event()

    def _make_pool(self, listener: Listener, options: ListenerOptions) -> ListenerPool:
        settings = self._settings
        counts_at_broker = self._in_order and not settings.broadcasting
        if self._telemetry is not None:
            listener = self._telemetry.listening(listener, group=settings.group)
        return ListenerPool(
            listener,
            options,
            clock=settings.clock,
            attempts=self._attempts,
            group=settings.group,
            send_back=self._send_back if self._sends_back or counts_at_broker else None,
            reject=None if settings.broadcasting else self._send_back,
            on_exit=self._on_exit,
        )

    def _make_attempts_file(self) -> AttemptsFile:
        settings = self._settings
        return AttemptsFile(
            attempts_folder(
                Path(settings.offsets_folder or default_folder()),
                nameservers=settings.nameservers,
                cluster=settings.cluster,
                group=settings.group,
                member=settings.client_id if settings.broadcasting else "",
            ),
            self._attempts,
            group=settings.group,
            clock=settings.clock,
        )

    def __repr__(self) -> str:
        return f"PushConsumer(group={self._settings.group!r}, client_id={self.client_id!r})"

    @property
    def client_id(self) -> str:
        return self._settings.client_id

    def subscribe(self, topic: str, expression: Expression = "*") -> Self:
        """Consume a topic: all of it, what has one of the tags `a || b`, or the messages for which
        `sql("price > 5")` is true.

        Call it before the start; a second call for a topic replaces its expression.

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
        """Join the group and begin; with `StartFrom.LAST`, return when everything that is sent
        from now on will be read. Close it in the same task.

        Raises:
            InvalidArgument: nothing is subscribed, or it was started before.
            TopicNotFound: a subscribed topic does not exist.
            Unreachable, DeadlineExceeded: no nameserver answers within `await_cluster_ms`.
            NoBrokerAvailable, DeadlineExceeded: a broker group without which it is not known where
                the group begins was away for `failover_timeout_ms`.
            DuplicateClient: another live member has this client id.
        """
        if self._runtime is not None:
            raise InvalidArgument("a consumer can be started only once; make another one")
        self._loop = asyncio.get_running_loop()
        if not self._subscriptions:
            raise InvalidArgument("subscribe to at least one topic before the start")
        subscriptions = dict(self._subscriptions)
        if self._sends_back:
            subscriptions[retry_topic(self._settings.group)] = ALL_TAGS
        self._runtime = ConsumerRuntime(
            self._settings, subscriptions, self._make_queue, work=self._pool.run
        )
        self._sending_back = SendingBack(
            self._runtime.connection,
            group=self._settings.group,
            client_id=self.client_id,
            options=self._settings.options,
            tasks=self._runtime.tasks,
            on_sent_back=self._pool.failed.on_sent_back,
            on_refused=self._pool.failed.on_kept,
            on_counted=self._pool.failed.on_kept,
            on_unanswered=self._pool.failed.on_unanswered,
            in_order=self._in_order,
            retries_max=self._retries_max,
            telemetry=self._telemetry,
        )
        if self._threads is not None:
            self._threads.open()
        try:
            await asyncio.to_thread(self._attempts_file.open)
            await self._runtime.open()
        except TOLD as error:
            self._is_closed = True
            self._end()
            raise shortened(error) from error.__cause__
        except BaseException:
            self._is_closed = True
            self._end()
            raise

    def _end(self) -> None:
        self._attempts_file.close()
        if self._threads is not None:
            self._threads.close()

    async def aclose(self) -> None:
        """Let running listeners end, commit, give the queues back, leave the group.

        Takes `close_timeout_ms` at most. Closing again does nothing.

        Raises:
            AerobeeError: what ended the consumer before, if something did.
        """
        await self.__aexit__(None, None, None)

    async def run(self) -> None:
        """Start, work until `stop` or cancellation, close gracefully.

        In the main task of `asyncio.run`, Ctrl-C and SIGTERM are a `stop`, unless the program has a
        handler of its own for them. A second one does not wait.

        Raises:
            AerobeeError: as `start`; DuplicateClient: another live member has this client id.
            SystemExit, KeyboardInterrupt: of a listener or of `on_exhausted`; it closes as for
                `stop` before.
        """
        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(stopped_by_signals(self.stop))
                if await self._start_unless_stopped():
                    stack.push_async_exit(self)
                    await self._stopping.wait()
        except TOLD as error:
            raise shortened(error) from error.__cause__
        if self._exit is not None:  # It came before the start was over.
            raise self._exit

    async def stopped(self) -> None:
        """Returns once `stop` was called, or the consumer is closed."""
        await self._stopping.wait()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called, or the consumer is closed."""
        return self._stopping.is_set()

    async def _start_unless_stopped(self) -> bool:
        self._loop = asyncio.get_running_loop()
        if self._stopping.is_set():
            return False
        scope = self._starting = asyncio.timeout(None)
        try:
            async with scope:
                await self.start()
        except TimeoutError:
            if not scope.expired():
                raise
            return False
        finally:
            self._starting = None
        return True

    def stop(self) -> None:
        """Have `run` return, also while it waits for a cluster to start with. From any thread, a
        listener, or a handler of signals."""
        try:
            is_here = self._loop is None or asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._stop()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._stopping.set()
        if self._starting is not None and not self._starting.expired():
            self._starting.reschedule(asyncio.get_running_loop().time())

    def _on_exit(self, error: Exit) -> None:
        """No further call begins; `run` and `async with` close, and then raise it."""
        assert self._runtime is not None, "its listener is called after the start"
        consumption = self._runtime.consumption
        for queue in consumption.queues:
            owned = consumption.owned(queue)
            assert isinstance(owned, PushQueue)
            owned.is_stopped = True
        if self._exit is None:
            self._exit = error
            self._stop()
            if self._block is not None and not self._is_closed:
                self._block.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        if self._exit is not None:
            await self.aclose()
        self._block = asyncio.current_task()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._stopping.set()
        if self._runtime is None or self._is_closed:
            return False
        self._is_closed = True
        if self._exit is not None and self._block is not None:
            self._block.uncancel()
            kind = error = traceback = None
        try:
            return await self._runtime.close(kind, error, traceback)
        finally:
            self._end()
            if self._exit is not None:
                raise self._exit

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
        await self._started().ready((), milliseconds(timeout))

    def obstacles(self) -> list[str]:
        """As `PullConsumer.obstacles`: what keeps messages away at this moment, in sentences."""
        return self._started().obstacles()

    def _started(self) -> ConsumerRuntime:
        if self._runtime is None:
            raise InvalidArgument("the consumer is not running: run it, or use it in `async with`")
        if self._is_closed:
            raise ShuttingDown("the consumer is closed")
        self._runtime.check_usable()
        return self._runtime

    def statistics(self) -> ConsumerStatistics:
        """What it owns and has done."""
        runtime = self._runtime
        queues: list[QueueStatistics] = []
        retry_queues: list[QueueStatistics] = []
        duplicates = self._duplicates_of_past_queues
        if runtime is not None:
            for queue in runtime.consumption.queues:
                owned = runtime.consumption.owned(queue)
                assert isinstance(owned, PushQueue)
                held = owned.messages
                duplicates += held.duplicates_total
                (retry_queues if is_retry_topic(queue.topic) else queues).append(
                    runtime.consumption.statistics(
                        owned,
                        position=held.fetched_end,
                        cached_messages=held.cached_count,
                        cached_bytes=held.cached_bytes,
                    )
                )
        rebalancer = None if runtime is None else runtime.rebalancer
        return ConsumerStatistics(
            client_id=self.client_id,
            members=() if rebalancer is None else tuple(rebalancer.member_ids),
            queues=tuple(queues),
            handled=self._pool.counters.handled,
            failed_calls=self._pool.counters.failed_calls,
            retrying=self._pool.retrying + len(self._sending_back or ()),
            sent_back=self._pool.counters.sent_back,
            retry_queues=tuple(retry_queues),
            skipped=self._pool.counters.skipped,
            duplicates=duplicates,
            queues_lost=0 if rebalancer is None else rebalancer.queues_lost,
        )

    def _make_queue(self, assignment: Assignment, start_offset: int) -> PushQueue:
        assert self._runtime is not None, "it makes its queues when it is started"
        # Its last owner may have died on this machine, while its listener was handling messages.
        self._attempts_file.take_over()
        return PushQueue(
            assignment,
            start_offset,
            self._flow,
            on_ready=self._pool.on_ready,
            on_room=self._runtime.consumption.refresh_credit,
            on_dropped=self._on_dropped,
            attempts=self._attempts,
            is_wanted=self._is_wanted if is_retry_topic(assignment.queue.topic) else None,
            in_order=self._in_order,
            key_of=key_reader(self._order_by),
        )

    @property
    def _flow(self) -> FlowLimits:
        flow = self._settings.options.flow
        if self._order_by is None:
            return flow
        # One slow key must not stop the others, and what is finished takes little memory.
        return replace(flow, span_max=flow.span_max * KEYED_SPAN)

    def _send_back(self, work: FailedWork) -> None:
        assert self._sending_back is not None, "its listener is called after the start"
        self._sending_back.add(work)

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        """Whether a redelivered message passes the filter of the topic to which it was sent. For a
        topic that is not subscribed here, for example by a former member, it does."""
        return is_wanted(message, self._subscriptions.get(message.origin_topic, ALL_TAGS))

    def _on_dropped(self, queue: PushQueue) -> None:
        self._pool.forget(queue)
        if self._sending_back is not None:
            self._sending_back.on_dropped(queue)
        self._duplicates_of_past_queues += queue.messages.duplicates_total


def _check_can_end(threads: object) -> None:
    if threads is not None:
        raise InvalidArgument(
            "handle_timeout needs a coroutine function: a thread cannot be ended from outside"
        )
