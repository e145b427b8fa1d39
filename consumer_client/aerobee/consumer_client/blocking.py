"""Consumers for code without an event loop: the same calls, but blocking.

Each owns a thread in which its asynchronous twin lives; any number of threads may call it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from aerobee.access.credentials import Credentials
from aerobee.client_core.loop_thread import BlockingClient, LoopThread
from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.readiness import READY_TIMEOUT_S
from aerobee.client_core.telemetry import Telemetry
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.ending_signals import sigterm_interrupts
from aerobee.consumer_client.filters import Expression
from aerobee.consumer_client.listener import Listener, OnExhausted, OrderBy, Ordering
from aerobee.consumer_client.options import ConsumerConfig, StartFrom
from aerobee.consumer_client.pull_consumer import POLL_TIMEOUT_S, PullConsumer
from aerobee.consumer_client.push_consumer import PushConsumer
from aerobee.consumer_client.received_batch import ReceivedBatch
from aerobee.consumer_client.retry_schedule import RetryPolicy
from aerobee.consumer_client.statistics import ConsumerStatistics
from aerobee.consumer_client.strategies import RebalanceStrategy
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime import errors

Consumer = TypeVar("Consumer", bound=PullConsumer | PushConsumer)
Taken = TypeVar("Taken", ReceivedMessage, ReceivedBatch)


class _BlockingConsumer(BlockingClient[Consumer]):
    """What both kinds share."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__(LoopThread("consumer", lambda: consumer))
        self._consumer = consumer

    def __repr__(self) -> str:
        return f"Blocking{self._consumer!r}"

    @property
    def client_id(self) -> str:
        return self._consumer.client_id

    def ready(self, *, timeout: float = READY_TIMEOUT_S) -> None:
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
        self._thread.call(lambda consumer: consumer.ready(timeout=timeout))

    def obstacles(self) -> list[str]:
        """What keeps messages of subscribed topics away at this moment, in sentences: a broker
        group without a master, one that does not answer, queues that other members hold, perhaps
        dead ones. Empty if nothing does; moments after the start, and while a master changes,
        something always does."""
        return self._thread.do(lambda consumer: consumer.obstacles())

    def subscribe(self, topic: str, expression: Expression = "*") -> Self:
        """Consume a topic: all of it, what has one of the tags `a || b`, or the messages for which
        `sql("price > 5")` is true.

        Call it before the start; a second call for a topic replaces its expression.

        Raises:
            IllegalName, FilterIllegal: no topic has such a name; no message can match.
            InvalidArgument: the consumer has been started.
        """
        self._consumer.subscribe(topic, expression)
        return self


class _PullConsumerOfThread(PullConsumer):
    """Its thread leaves it differently than its user leaves the `with` block."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return await self._close(kind, error, traceback)

    async def poll_until_one(self) -> list[ReceivedMessage]:
        return [await self.next_message()]

    def settle_on_leaving(self) -> None:
        self._settle_on_leaving()

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        self._put_back(messages)


class _HandingOut:
    """Around a call that takes messages: if an interrupt ends it, messages taken for a caller that
    never receives them are put back."""

    def __init__(self, thread: LoopThread[_PullConsumerOfThread]) -> None:
        self._thread = thread
        self._task: asyncio.Task[Any] | None = None
        self._taken: Sequence[ReceivedMessage] | Sequence[ReceivedBatch] = ()

    async def take(self, asked: Coroutine[Any, Any, list[Taken]]) -> list[Taken]:
        """Called in the consumer's thread."""
        self._task = asyncio.current_task()
        self._taken = taken = await asked
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            with suppress(errors.AerobeeError):  # The consumer has ended.
                self._thread.call(self._put_back)

    async def _put_back(self, consumer: _PullConsumerOfThread) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for each in self._taken:
            messages = [each] if isinstance(each, ReceivedMessage) else each.messages()
            consumer.put_back(messages)


class BlockingPullConsumer(_BlockingConsumer[_PullConsumerOfThread]):
    """A `PullConsumer` for code without an event loop; the arguments are the same.

    For example::

        with BlockingPullConsumer("report").subscribe("orders") as consumer:
            for message in consumer:
                print(message.body)
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
    ) -> None:
        super().__init__(
            _PullConsumerOfThread(
                group,
                nameservers=nameservers,
                cluster=cluster,
                auto_commit=auto_commit,
                broadcasting=broadcasting,
                strategy=strategy,
                start_from=start_from,
                start_timestamp_ms=start_timestamp_ms,
                client_id=client_id,
                tls=tls,
                credentials=credentials,
                telemetry=telemetry,
                offsets_folder=offsets_folder,
                config=config,
            )
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                with suppress(errors.AerobeeError):  # Closing reports what ended the consumer.
                    self._thread.do(lambda consumer: consumer.settle_on_leaving())
        finally:
            self.close()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Each message as it arrives, endlessly; see `PullConsumer.__aiter__`."""
        while True:
            with _HandingOut(self._thread) as handing:
                (message,) = self._thread.call(
                    lambda consumer: handing.take(consumer.poll_until_one())
                )
            yield message

    def poll(
        self, max_messages: int = 500, *, timeout: float = POLL_TIMEOUT_S
    ) -> list[ReceivedMessage]:
        """Up to `max_messages` messages, as soon as there are any; none after `timeout` seconds.

        Messages of one queue come in order; queues take turns.

        Raises:
            InvalidArgument: it has no topics and was given no queues; less than one message, or no
                number of seconds.
            AerobeeError: what ended the consumer, for example DuplicateClient.
        """
        with _HandingOut(self._thread) as handing:
            return self._thread.call(
                lambda consumer: handing.take(consumer.poll(max_messages, timeout=timeout))
            )

    def poll_batches(
        self, max_batches: int = 16, *, timeout: float = POLL_TIMEOUT_S
    ) -> list[ReceivedBatch]:
        """Up to `max_batches` batches as they came from the brokers; the fastest way to read.

        A batch is up to 512 KiB of one queue. With a tag filter it may turn out empty when looked
        at.
        """
        with _HandingOut(self._thread) as handing:
            return self._thread.call(
                lambda consumer: handing.take(consumer.poll_batches(max_batches, timeout=timeout))
            )

    @contextmanager
    def processing(self, message: ReceivedMessage) -> Iterator[ReceivedMessage]:
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
        block = self._thread.do(lambda consumer: consumer.processing(message))
        self._thread.do(lambda _: block.begin())
        try:
            with block.watched:
                yield message
        except BaseException as error:
            failure = error  # `except` deletes its name before the thread uses it.
            if not self._thread.call(lambda _: block.answered(failure)):
                raise
        else:
            self._thread.call(lambda _: block.answered(None))

    def commit(self) -> None:
        """All messages handed out so far are done, but for those in a block of `processing` and
        those that failed there: commit that now.

        While a broker group changes its master this waits, for `failover_timeout_ms` at most.

        Raises:
            LeaseExpired: a queue was lost in the meantime; its messages are handled again
            elsewhere.
            LeaseHeld: an assigned queue belongs to a member of the group.
            AerobeeError: a broker could not be reached all the time; a later commit tries again.
        """
        self._thread.call(lambda consumer: consumer.commit())

    def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Read exactly these queues from now on, each from its committed offset or, without one,
        from where `start_from` says. Queues that are read already go on.

        Raises:
            InvalidArgument: topics are subscribed.
            FilterIllegal: no message can match the expression.
            AerobeeError: where to begin cannot be asked.
        """
        self._thread.call(lambda consumer: consumer.assign(queues, expression))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues it reads now, ascending."""
        return self._thread.do(lambda consumer: consumer.assignment)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset of an owned queue; an offset that is not stored is corrected.

        Raises:
            InvalidArgument: the queue is not this consumer's, or the offset is negative.
        """
        self._thread.do(lambda consumer: consumer.seek(queue, offset))

    def position(self, queue: MessageQueue) -> int:
        """The offset that `poll` returns next of an owned queue.

        Raises:
            InvalidArgument: the queue is not this consumer's.
        """
        return self._thread.do(lambda consumer: consumer.position(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing of these queues until `resume`, even if they move away and back."""
        self._thread.do(lambda consumer: consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Undo `pause`."""
        self._thread.do(lambda consumer: consumer.resume(queues))

    def committed(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """The group's committed offsets; None where it never committed.

        Raises:
            AerobeeError: the store cannot be read.
        """
        return self._thread.call(lambda consumer: consumer.committed(queues))

    def begin_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The lowest stored offset of each queue. Raises AerobeeError."""
        return self._thread.call(lambda consumer: consumer.begin_offsets(queues))

    def end_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offset that each queue's next message will get. Raises AerobeeError."""
        return self._thread.call(lambda consumer: consumer.end_offsets(queues))

    def offsets_for_time(
        self, queues: Iterable[MessageQueue], timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        """The first offset stored at or after a time. Raises AerobeeError."""
        return self._thread.call(lambda consumer: consumer.offsets_for_time(queues, timestamp_ms))

    def queues_of(self, topic: str) -> list[MessageQueue]:
        """A topic's queues, ascending, for `assign`. Raises TopicNotFound, Unreachable."""
        return self._thread.call(lambda consumer: consumer.queues_of(topic))

    def statistics(self) -> ConsumerStatistics:
        """What it owns and has done."""
        return self._thread.do(lambda consumer: consumer.statistics())


class BlockingPushConsumer(_BlockingConsumer[PushConsumer]):
    """A `PushConsumer` for code without an event loop; the arguments are the same.

    For example::

        def handle(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                print(message.body)

        consumer = BlockingPushConsumer("billing", handle).subscribe("orders")
        consumer.run()  # until consumer.stop(), Ctrl-C or SIGTERM; closes gracefully
    """

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
    ) -> None:
        super().__init__(
            PushConsumer(
                group,
                listener,
                nameservers=nameservers,
                cluster=cluster,
                ordering=ordering,
                order_by=order_by,
                max_concurrency=max_concurrency,
                consume_batch_max=consume_batch_max,
                run_in_thread=run_in_thread,
                handle_timeout=handle_timeout,
                retry=retry,
                suspend_ms=suspend_ms,
                on_exhausted=on_exhausted,
                broadcasting=broadcasting,
                strategy=strategy,
                start_from=start_from,
                start_timestamp_ms=start_timestamp_ms,
                client_id=client_id,
                tls=tls,
                credentials=credentials,
                telemetry=telemetry,
                offsets_folder=offsets_folder,
                config=config,
            )
        )

    def run(self) -> None:
        """Start, work until `stop`, Ctrl-C or SIGTERM, close gracefully, return.

        SIGTERM counts if this is the main thread, and the program has no handler of its own for it.
        Closing waits for running listeners, `release_timeout_ms` at most, and commits; what is
        unfinished then comes again. A second Ctrl-C or SIGTERM returns without waiting.

        Raises: as `start`, and what ended the consumer.
        """
        if self._consumer.is_stopping:
            return
        with suppress(KeyboardInterrupt), sigterm_interrupts(), self:
            self._thread.call(lambda consumer: consumer.stopped())

    def stop(self) -> None:
        """Make `run` return. From any thread, a listener, or a signal handler."""
        self._consumer.stop()

    def statistics(self) -> ConsumerStatistics:
        """What it owns and has done; also after closing."""
        return self._consumer.statistics()
