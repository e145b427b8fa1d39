"""The consumer that takes messages one by one: each is acknowledged for itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self

from aerobee.access.credentials import Credentials
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.defaults import check_whole_number, config_or_default
from aerobee.client_core.readiness import READY_TIMEOUT_S, missing_brokers, until_ready
from aerobee.client_core.telemetry import Telemetry
from aerobee.consumer_client.answers import Reject, milliseconds_of
from aerobee.consumer_client.background_tasks import BackgroundTasks
from aerobee.consumer_client.consumer_runtime import default_client_id
from aerobee.consumer_client.ending_signals import stopped_by_signals
from aerobee.consumer_client.filters import ALL_TAGS, Expression, compared_tags
from aerobee.consumer_client.listener import Listener
from aerobee.consumer_client.listener_shape import gets_batches
from aerobee.consumer_client.listener_threads import threads_for
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.consumer_client.pop_calls import Answered, PopCalls
from aerobee.consumer_client.popped_listening import ListeningOptions, PoppedListening
from aerobee.consumer_client.popped_message import PoppedMessage, Source
from aerobee.consumer_client.retry_schedule import RetryPolicy
from aerobee.consumer_client.sending_back import reason_of
from aerobee.consumer_client.statistics import SimpleConsumerStatistics
from aerobee.domain.names import check_client_id, check_group_name, check_topic_name
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, InvalidArgument, ShuttingDown
from aerobee.runtime.log import log_event
from aerobee.runtime.task_groups import run_together

log = logging.getLogger(__name__)

INVISIBLE_S = 30.0
RECEIVE_S = 1.0
LISTEN_S = 15.0
KEEP_S_MAX = 3_600.0
RENEW_S_MIN = 0.1
RENEW_AGAIN_S = 1.0
"""After a renewal that failed."""
WAIT_MS_MAX = 20_000

Time = float | timedelta
Messages = PoppedMessage | Iterable[PoppedMessage]


class SimpleConsumer:
    """Receives messages and acknowledges each of them for itself, in any order.

    Members own no queues: any number of them share every queue, and what one receives is invisible
    to the others for a while. A message that is not acknowledged in that time comes again, to any
    member; so it does if its member is killed. After the group's attempts it is a dead letter.
    Queues are not in order, unless the group is ordered: then one message of a sharding key is out
    at a time, at any member. A new group begins with the oldest stored message.

    A group consumes a topic either in this way or with push and pull consumers, never both at once.

    Args:
        group: the consumer group. All members must have the same subscriptions.
        invisible: how long received messages are invisible, 10 s to 12 h; a number is seconds.
        client_id: this member's name. By default made from host and process.
        nameservers, cluster, tls, credentials: as for `ClusterConnection`.
        telemetry: records traces and metrics; see docs/tracing.md.
        config: its `request_timeout_ms`, `failover_timeout_ms` and `release_timeout_ms` are used.

    Raises:
        IllegalName, InvalidArgument: a name or setting that can never work.

    Example::

        consumer = SimpleConsumer("billing").subscribe("orders")
        async with consumer:
            for message in await consumer.receive(32, timeout=5.0):
                print(message.body)
                await consumer.ack(message)
    """

    def __init__(
        self,
        group: str,
        *,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        invisible: Time = INVISIBLE_S,
        client_id: str | None = None,
        tls: bool | TlsConfig | None = None,
        credentials: Credentials | None = None,
        telemetry: Telemetry | None = None,
        config: ConsumerConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_group_name(group)
        self.client_id = client_id or default_client_id(broadcasting=False)
        check_client_id(self.client_id)
        options = config_or_default(config, ConsumerConfig)
        self._group = group
        self._invisible_ms = milliseconds_of("invisible", invisible)
        self._telemetry = telemetry
        self._connection = ClusterConnection(
            nameservers,
            cluster,
            clock=clock,
            tls=tls,
            credentials=credentials,
            await_cluster_ms=options.await_cluster_ms,
        )
        self._calls = PopCalls(
            self._connection,
            group=group,
            client_id=self.client_id,
            request_timeout_ms=options.request_timeout_ms,
            failover_timeout_ms=options.failover_timeout_ms,
        )
        self._subscriptions: dict[str, Expression] = {}
        self._stack: AsyncExitStack | None = None
        self._is_closed = False
        self._turn = 0
        self._tasks = BackgroundTasks()
        self._release_ms = options.release_timeout_ms
        self._listening: PoppedListening | None = None

    def __repr__(self) -> str:
        return f"SimpleConsumer(group={self._group!r}, client_id={self.client_id!r})"

    # ------------------------------------------------------------------------------ life

    def subscribe(self, topic: str, expression: Expression = ALL_TAGS) -> Self:
        """Receive a topic: all of it, what has one of the tags `a || b`, or the messages for which
        `sql("price > 5")` is true. A second call for a topic replaces its expression.

        Raises:
            IllegalName, FilterIllegal: no topic has such a name; no message can match.
        """
        check_topic_name(topic)
        compared_tags(expression)  # else it is refused
        self._subscriptions[topic] = expression
        return self

    async def start(self) -> None:
        """Connect. Close it in the same task.

        Raises:
            InvalidArgument: nothing is subscribed, or it was started before.
            TopicNotFound: a subscribed topic does not exist.
            Unreachable, DeadlineExceeded: no nameserver answers within `await_cluster_ms`.
        """
        if self._stack is not None:
            raise InvalidArgument("a consumer can be started only once; make another one")
        if not self._subscriptions:
            raise InvalidArgument("subscribe to at least one topic before the start")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._connection)
            await stack.enter_async_context(self._tasks)
            stack.callback(self._tasks.cancel_all)
            for topic in sorted(self._subscriptions):
                await self._connection.routes.route(topic)
            self._stack = stack.pop_all()

    async def aclose(self) -> None:
        """End running calls and disconnect. What was received and not acknowledged comes again
        when its time is over. Closing again does nothing."""
        self._is_closed = True
        if self._listening is not None:
            listening = self._listening
            listening.stop()
            await listening.ended.wait()
        stack, self._stack = self._stack, AsyncExitStack()
        if stack is not None:
            await stack.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # ------------------------------------------------------------------------------ messages

    async def receive(
        self,
        max_messages: int = 32,
        *,
        timeout: float = RECEIVE_S,
        invisible: Time | None = None,
    ) -> list[PoppedMessage]:
        """Up to `max_messages` messages, as soon as there are any; none after `timeout` seconds.
        A broker hands out up to 32 at a time.

        Args:
            invisible: how long these are invisible; by default as the consumer says.

        Raises:
            LeaseHeld: members of the group consume the queues under leases.
            AccessDenied, InvalidArgument: it may not, or less than one message, or a time that
                cannot be.
            AerobeeError: no broker of the topics could be asked.
        """
        check_whole_number("max_messages", max_messages, minimum=1)
        self._check_running()
        polling = None if self._telemetry is None else self._telemetry.polling(group=self._group)
        invisible_ms = self._invisible_ms
        if invisible is not None:
            invisible_ms = milliseconds_of("invisible", invisible)
        wait_ms = milliseconds_of("timeout", timeout)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + wait_ms / 1_000
        taken: list[PoppedMessage] = []
        while not taken:
            left_ms = max(0, int((end_s - loop.time()) * 1_000))
            taken = await self._receive_once(max_messages, invisible_ms, min(left_ms, WAIT_MS_MAX))
            if not left_ms:
                break
        if polling is not None and taken:
            polling.on_received(taken, len(taken))
        return taken

    async def _receive_once(
        self, count: int, invisible_ms: int, wait_ms: int
    ) -> list[PoppedMessage]:
        sources = await self._sources()
        taken: list[PoppedMessage] = []
        refusals: list[AerobeeError] = []
        for source in sources:
            # The only broker may wait at once.
            first_wait_ms = wait_ms if len(sources) == 1 else 0
            try:
                taken += await self._poll(source, count - len(taken), invisible_ms, first_wait_ms)
            except AerobeeError as error:
                refusals.append(error)
            if len(taken) >= count:
                return taken
        if taken or (not refusals and (len(sources) == 1 or not wait_ms)):
            return taken
        if len(refusals) == len(sources):
            raise refusals[0]
        return await self._first_of(sources, count, invisible_ms, wait_ms)

    async def _first_of(
        self, sources: Sequence[Source], count: int, invisible_ms: int, wait_ms: int
    ) -> list[PoppedMessage]:
        """Wait at all brokers; the first one with messages ends the wait. Those of a broker that
        answers at that very moment come again when their time is over, or are in the result."""
        count = max(1, count // len(sources))
        taken: list[PoppedMessage] = []
        refusals: list[AerobeeError] = []
        left = len(sources)
        is_over = asyncio.Event()

        async def ask(source: Source) -> None:
            nonlocal left
            try:
                taken.extend(await self._poll(source, count, invisible_ms, wait_ms))
            except AerobeeError as error:
                refusals.append(error)
            left -= 1
            if taken or not left:
                is_over.set()

        await run_together(is_over.wait(), **{str(source): ask(source) for source in sources})
        if refusals and not taken:
            log_event(
                log,
                "a broker cannot be polled",
                level=logging.WARNING,
                group=self._group,
                reason=refusals[0],
            )
        return taken

    async def _poll(
        self, source: Source, count: int, invisible_ms: int, wait_ms: int
    ) -> list[PoppedMessage]:
        return await self._calls.poll(
            source,
            self._subscriptions[source.topic],
            count=count,
            invisible_ms=invisible_ms,
            wait_ms=wait_ms,
        )

    async def _sources(self) -> list[Source]:
        """Each broker of each topic, another one first each time."""
        routes = self._connection.routes
        sources = [
            Source(topic, name)
            for topic in sorted(self._subscriptions)
            for name in sorted(
                {queue.broker_name for queue in (await routes.route(topic)).readable_queues}
            )
        ]
        if not sources:
            raise errors.NoBrokerAvailable("no broker has a readable queue of the topics")
        self._turn += 1
        at = self._turn % len(sources)
        return sources[at:] + sources[:at]

    async def ack(self, messages: Messages) -> None:
        """The messages are done. It is durable when this returns.

        Raises:
            StaleHandle: the time of a message was over, and it comes again, or came; all others
                are acknowledged.
            AerobeeError: a broker could not be reached for `failover_timeout_ms`; acknowledge
                again.
        """
        async with self._quiet(messages) as several:
            await self._calls.acknowledge(several)

    async def nack(self, messages: Messages, *, after: Time = 0.0) -> None:
        """The messages failed: they come again, as another attempt, `after` this time (a number is
        seconds). Raises as `ack`."""
        after_ms = milliseconds_of("after", after)
        async with self._quiet(messages) as several:
            await self._calls.change(several, after_ms, settles=True)

    async def reject(self, messages: Messages, reason: str | Reject) -> None:
        """The messages can never be handled: they are dead letters. Raises as `ack`."""
        error = reason if isinstance(reason, Reject) else Reject(reason)
        async with self._quiet(messages) as several:
            await self._calls.reject(several, *reason_of(error))

    async def change_invisible(self, messages: Messages, invisible: Time) -> None:
        """The messages are invisible for this time from now on, at most 12 h; a number is seconds.
        Raises as `ack`."""
        invisible_ms = milliseconds_of("invisible", invisible)
        async with self._quiet(messages) as several:
            await self._calls.change(several, invisible_ms, settles=not invisible_ms)

    async def listen(
        self,
        listener: Listener,
        *,
        max_concurrency: int = 20,
        run_in_thread: bool = True,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Call the listener with one message after another until `stop`, the close or a
        cancellation, and do with each what it
        answers; answers are those of a push consumer. If the group is ordered, each sharding key is
        handled in order, and keys beside each other, by any number of members.

        A message is renewed while its call runs. A call of an `async` function is cancelled if that
        fails for longer than the message's time: another member may have the message then. On the
        end, running calls may go on for `release_timeout_ms`; what they do not finish comes again
        at once. In the main task of `asyncio.run`, Ctrl-C and SIGTERM are a `stop`.

        Args:
            listener: gets one message in a list. A plain function is called in threads.
            max_concurrency: calls at the same time.
            run_in_thread: False: a plain function that never blocks is called on the event loop.
            retry: how long a message that failed waits, by its attempts, unless the listener says.
                How many attempts it has is for the group to say.

        Raises:
            InvalidArgument: it cannot be a listener, or the consumer is not running or listens.
            LeaseHeld, AccessDenied: as `receive`. Other failures are logged and tried again.
        """
        self._check_running()
        check_whole_number("max_concurrency", max_concurrency, minimum=1)
        if self._listening is not None:
            raise InvalidArgument("the consumer listens already: make another one")
        called: Listener = threads_for(listener, max_concurrency, wanted=run_in_thread) or listener
        if self._telemetry is not None:
            called = self._telemetry.listening(called, group=self._group)
        wait_s = min(LISTEN_S, self._invisible_ms / 3_000)
        listening = self._listening = PoppedListening(
            self._calls,
            lambda count: self.receive(count, timeout=wait_s),
            called,
            ListeningOptions(
                max_concurrency=max_concurrency,
                gets_batches=gets_batches(listener),
                retry=retry or RetryPolicy(),
                release_s=self._release_ms / 1_000,
            ),
            group=self._group,
            clock=self._connection.clock,
        )
        try:
            with stopped_by_signals(listening.stop):
                await listening.run()
        finally:
            self._listening = None

    def stop(self) -> None:
        """Have `listen` return once its running calls have ended. From the loop's thread."""
        if self._listening is not None:
            self._listening.stop()

    @asynccontextmanager
    async def keeping(
        self, messages: Messages, *, at_most: Time = KEEP_S_MAX
    ) -> AsyncIterator[None]:
        """Keep messages invisible while the block runs, but not longer than `at_most` (a number is
        seconds): the time of each, as it was received or changed, is renewed when a third of it
        is over. Acknowledge them inside or after the block, which neither does nor undoes that.

        For example::

            consumer = SimpleConsumer("films", invisible=30).subscribe("films")
            async with consumer:
                for message in await consumer.receive(1):
                    async with consumer.keeping(message, at_most=1_800):
                        await asyncio.sleep(90)
                    await consumer.ack(message)
        """
        several = _several(messages)
        end_s = asyncio.get_running_loop().time() + milliseconds_of("at_most", at_most) / 1_000
        for message in several:
            message.changing = message.changing or asyncio.Lock()
        renewing = self._tasks.create_task(self._renew(several, end_s), name="keep")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, messages: Sequence[PoppedMessage], end_s: float) -> None:
        loop = asyncio.get_running_loop()
        pause_s = 0.0
        while kept := [message for message in messages if not message.is_settled]:
            next_s = max(min(message.renew_s for message in kept), loop.time() + pause_s)
            if next_s >= end_s:
                return
            await asyncio.sleep(next_s - loop.time())
            due = [message for message in kept if message.renew_s <= next_s]
            # An answer that nobody waits for would leave an old handle here.
            await asyncio.shield(self._tasks.create_task(self._renew_once(due), name="renew"))
            has_failed = any(each.renew_s <= next_s and not each.is_settled for each in due)
            pause_s = RENEW_AGAIN_S if has_failed else RENEW_S_MIN

    async def _renew_once(self, messages: Sequence[PoppedMessage]) -> None:
        """Each for its own time."""
        refusal: AerobeeError | None = None
        try:
            async with self._quiet(messages) as several:
                kept = [message for message in several if not message.is_settled]
                for invisible_ms in {message.invisible_ms for message in kept}:
                    some = [message for message in kept if message.invisible_ms == invisible_ms]
                    try:
                        await self._calls.change(some, invisible_ms, settles=False)
                    except AerobeeError as error:
                        refusal = error
        except AerobeeError as error:
            refusal = error  # the consumer is being closed
        if refusal is not None:
            log_event(
                log,
                "the time of messages could not be renewed",
                level=logging.WARNING,
                group=self._group,
                messages=len(messages),
                reason=refusal,
            )

    @asynccontextmanager
    async def _quiet(self, messages: Messages) -> AsyncIterator[list[PoppedMessage]]:
        """While no handle of these is being changed."""
        self._check_running()
        several = list({id(message): message for message in _several(messages)}.values())
        # Each lock once, and in one order for all calls: else two could wait for each other.
        locks = {id(each.changing): each.changing for each in several if each.changing is not None}
        async with AsyncExitStack() as stack:
            for _, lock in sorted(locks.items()):
                await stack.enter_async_context(lock)
            yield several

    # ------------------------------------------------------------------------------ its state

    def statistics(self) -> SimpleConsumerStatistics:
        """What it has done since it was made."""
        calls, listening = self._calls, self._listening
        return SimpleConsumerStatistics(
            client_id=self.client_id,
            received=calls.received,
            acknowledged=calls.counts[Answered.ACKNOWLEDGED],
            given_back=calls.counts[Answered.GIVEN_BACK],
            rejected=calls.counts[Answered.REJECTED],
            refused=calls.counts[Answered.REFUSED],
            running_calls=0 if listening is None else listening.running_calls,
        )

    async def ready(self, *, timeout: float = READY_TIMEOUT_S) -> None:
        """Return when a nameserver and the brokers of its topics answer. It receives nothing.

        Args:
            timeout: seconds.

        Raises:
            DeadlineExceeded: they did not within the time; the message says what is missing.
            InvalidArgument, ShuttingDown: it is not started, or is closed.
        """
        self._check_running()
        topics = sorted(self._subscriptions)

        async def look(timeout_ms: int) -> list[str]:
            return await missing_brokers(self._connection, topics, timeout_ms=timeout_ms)

        await until_ready(look, self._connection.clock, milliseconds_of("timeout", timeout))

    def obstacles(self) -> list[str]:
        """What keeps messages away, in sentences: that no nameserver answers, and why the last poll
        of a topic at a broker failed. Empty if nothing does; what was never asked is not known."""
        self._check_running()
        polls = (
            f"{source.topic} cannot be polled at broker {source.broker_name}: {error}"
            for source, error in sorted(self._calls.troubles.items())
        )
        return [*self._connection.routes.obstacles(), *polls]

    def _check_running(self) -> None:
        if self._is_closed:
            raise ShuttingDown("the consumer is closed")
        if self._stack is None:
            raise InvalidArgument("the consumer is not running: use it inside `async with`")


def _several(messages: Messages) -> list[PoppedMessage]:
    several = [messages] if isinstance(messages, PoppedMessage) else list(messages)
    for message in several:
        if not isinstance(message, PoppedMessage):
            raise InvalidArgument(f"{message!r} was not received by a SimpleConsumer")
    return several
