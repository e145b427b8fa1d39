"""The producer's public interface: send one, send many, send and forget.

Here a message gets its id and its queue and joins a batch; `delivery.py` does the rest. Nothing is
awaited between choosing the queue and joining the batch, so messages that one task sends to a
chosen queue are stored in the order of sending, and others are too unless an attempt fails.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self, overload

from aerobee.access.credentials import Credentials
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.defaults import config_or_default, milliseconds
from aerobee.client_core.message import Message
from aerobee.client_core.readiness import READY_TIMEOUT_S, missing_brokers, until_ready
from aerobee.client_core.short_tracebacks import end_with
from aerobee.client_core.telemetry import Telemetry, TracedMessage
from aerobee.client_core.transactions import TransactionOutcome
from aerobee.cluster_view.own_process import OwnProcess
from aerobee.cluster_view.route import MessageQueue, TopicRoute
from aerobee.producer_client.blocks import BlockSender
from aerobee.producer_client.checks import CheckListener, CheckTransaction
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.delivery import Delivery
from aerobee.producer_client.entries import Entries
from aerobee.producer_client.receipt import Receipt, Receipts
from aerobee.producer_client.refusals import check_all, checked_size
from aerobee.producer_client.several import TransactionOfSeveral
from aerobee.producer_client.statistics import ProducerStatistics
from aerobee.producer_client.targets import Targets
from aerobee.producer_client.transaction_blocks import TransactionBlocks
from aerobee.producer_client.transactions import Transaction, TransactionSender
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock
from aerobee.store.format.message_id import UniqueIdGenerator

log = logging.getLogger(__name__)


class Producer:
    """Sends messages, between `start` and `aclose` or inside `async with`; safe for any number of
    tasks of one loop.

    Args:
        nameservers, cluster: as for `ClusterConnection`.
        check_transaction: is asked how a transaction ends that has been open for long. It may be
            one of another producer of the topic, or of this one before it was restarted.
        transaction_topics: topics about which it is asked as soon as it starts; about other topics
            it is asked once it has begun a transaction there.
        config: limits and times.
        connection: an open connection to be shared; its owner closes it.
        tls, credentials: as for `ClusterConnection`.
        telemetry: records traces and metrics; see docs/tracing.md.

    A message is stored once, however often it has to be sent until a broker acknowledges it; the
    configuration's `idempotent` says how. With equal sharding keys, or an explicit queue, the
    order of sending is kept.

    Example::

        async with Producer(nameservers="127.0.0.1:8081") as producer:
            receipt = await producer.send(Message("orders", b"{}", tag="new", keys=["order-7"]))
            print(receipt.message_id, receipt.queue, receipt.queue_offset, receipt.durability)
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        *,
        check_transaction: CheckTransaction | None = None,
        transaction_topics: Sequence[str] = (),
        config: ProducerConfig | None = None,
        connection: ClusterConnection | None = None,
        tls: bool | TlsConfig | None = None,
        credentials: Credentials | None = None,
        telemetry: Telemetry | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._config = config_or_default(config, ProducerConfig)
        self._telemetry = telemetry
        self._owns_connection = connection is None
        self._connection = connection or ClusterConnection(
            nameservers, cluster, clock=clock, chance=chance, tls=tls, credentials=credentials
        )
        self._clock = self._connection.clock
        self._ids: UniqueIdGenerator  # Created on opening, in the process that does it.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = OwnProcess("producer")
        self._targets = Targets(
            self._connection.routes,
            create_missing=self._config.create_missing_topics,
            on_route=self._on_route,
            await_cluster_ms=self._config.await_cluster_ms,
        )
        self._tasks = asyncio.TaskGroup()
        self._entries = Entries(self._tasks)
        self._delivery: Delivery | None = None
        self._checking: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_started = False
        self._transactions = TransactionSender(
            self._connection,
            self._config,
            self._targets,
            delivery=self._opened,
            entering=self._entries.entering,
            telemetry=telemetry,
        )
        self._blocks = TransactionBlocks(
            self._begin, do_later=self._entries.do_later, is_closing=lambda: self._is_closing
        )
        if transaction_topics and check_transaction is None:
            raise errors.InvalidArgument(
                "transaction_topics says what check_transaction is asked about: give both"
            )
        self._transaction_topics = tuple(transaction_topics)
        self._checks = self._listener(check_transaction, transaction_topics)

    async def start(self) -> None:
        """Open it; nothing is asked of the cluster before the first send. Close it in the same
        task.

        Raises:
            InvalidArgument: it was started before.
        """
        if self._is_started:
            raise errors.InvalidArgument("a producer can be started only once; make another one")
        self._is_started = True
        self._loop = asyncio.get_running_loop()
        self._process = OwnProcess("producer")
        self._ids = UniqueIdGenerator(
            self._connection.random, ip=self._connection.local_host.ip, process_id=os.getpid()
        )
        if self._owns_connection:
            await self._connection.__aenter__()
        await self._tasks.__aenter__()
        self._delivery = Delivery(self._connection, self._config, self._ids, self._tasks)
        if self._checks is not None:
            self._checking = self._tasks.create_task(self._checks.run(), name="send:checks")

    async def aclose(self) -> None:
        """Wait up to `close_timeout_ms` for open receipts, then fail the rest. Closing again does
        nothing."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        delivery = self._delivery
        if delivery is None or self._process.is_left:
            return
        try:
            await self._finish(delivery)
        finally:
            try:
                await end_with(self._tasks, error)
            finally:
                if self._owns_connection:
                    await self._connection.__aexit__(None, None, None)

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        skip_wait: bool = False,
    ) -> Receipt:
        """Sends one message and waits until it is stored as the broker promises.

        Sends of the same moment share batches, so many concurrent `send`s are cheap.

        Args:
            message: what to send.
            queue: where to; by default by sharding key, or else in turn.
            timeout: seconds from the call to its return, instead of the configured ones: for the
                route, for room in the buffer, and for all attempts together.
            skip_wait: return once the broker has the message in its page cache, whatever its flush
                mode.

        Raises:
            MessageTooLarge: the body is above the configured limit; nothing was sent.
            MessageIllegal: it is to arrive in more than ten years; nothing was sent.
            TopicNotFound, NotWritableTopic, QueueNotFound: there is nowhere to send to.
            Unreachable, NoBrokerAvailable, NotWritable: not stored within the time.
            Busy: the buffer had no room within the time, or brokers took no more; not stored.
            DeadlineExceeded: not acknowledged in time; whether it is stored is unknown.
            OutOfSequence: the broker has forgotten so old a batch; whether it is stored is unknown.
            ShuttingDown: the producer is closed.
        """
        if self._telemetry is not None and not isinstance(message, TracedMessage):
            with self._telemetry.sending((message,)) as sending:
                receipt = await self.send(
                    sending.messages[0], queue=queue, timeout=timeout, skip_wait=skip_wait
                )
                sending.on_stored((receipt,))
                return receipt
        timeout_ms = self._config.send_timeout_ms if timeout is None else milliseconds(timeout)
        delivery = self._opened()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise self._on_foreign_loop()
        end_s = self._clock.monotonic_s() + timeout_ms / 1_000
        try:
            size = checked_size(message, self._config, self._clock.now_ms())
            target = self._targets.known(message.topic)
            if target is None:
                with self._entries.entering():
                    target = await self._targets.find(message.topic, timeout_ms=timeout_ms)
            if queue is not None:
                target.check_queue(queue)
            if not delivery.budget.take_nowait(size):
                with self._entries.entering():
                    await delivery.wait_for_room(size, end_s=end_s)
        except errors.AerobeeError:
            delivery.counts.messages_failed += 1
            raise
        waiter: asyncio.Future[Receipt] = loop.create_future()
        delivery.join(target, message, queue, size, timeout_ms, skip_wait, waiter, end_s=end_s)
        return await waiter

    def send_one_way(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Sends without a receipt and without waiting; a loss is logged and counted.

        Raises:
            MessageTooLarge: the body is above the configured limit.
            Busy: the buffer is full.
            ShuttingDown: the producer is closed.
        """
        if self._telemetry is not None and not isinstance(message, TracedMessage):
            with self._telemetry.sending((message,)) as sending:
                return self.send_one_way(sending.messages[0], queue=queue)
        delivery = self._opened()
        try:
            size = checked_size(message, self._config, self._clock.now_ms())
            if not delivery.budget.take_nowait(size):
                raise delivery.no_room()
        except errors.AerobeeError:
            delivery.counts.messages_failed += 1
            raise
        try:
            target = self._targets.known(message.topic)
            if target is not None:
                if queue is not None:
                    target.check_queue(queue)
                timeout_ms = self._config.send_timeout_ms
                delivery.join(target, message, queue, size, timeout_ms, True, None)
                return
        except errors.AerobeeError:
            delivery.counts.messages_failed += 1
            delivery.budget.release(size)
            raise
        self._entries.do_later(
            self._send_when_known(delivery, message, queue, size), "send:one-way"
        )

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> Receipts:
        """Sends many messages, of any topics, as large batches; the fastest way.

        Messages are stored in their order within each queue. Up to `batch_bytes_max` the messages
        of one topic without sharding keys go to one queue, all or none; larger calls are cut.

        Args:
            timeout: seconds from the call to its return. Without it, each batch has the configured
                time for room in the buffer, and again from then on, however long all of them take.

        Returns:
            The receipts in the order of the messages; each is made when it is looked at.

        Raises:
            PartlySent: some messages are stored and others not; it says which.
            AerobeeError: as `send`; none is known to be stored.
        """
        timeout_ms = self._config.send_timeout_ms if timeout is None else milliseconds(timeout)
        if isinstance(messages, Message):
            raise TypeError("send_batch takes a list of messages; send takes one")
        if not messages:
            return Receipts([])
        if self._telemetry is not None and not isinstance(messages[0], TracedMessage):
            with self._telemetry.sending(messages) as sending:
                receipts = await self.send_batch(sending.messages, queue=queue, timeout=timeout)
                sending.on_stored(receipts)
                return receipts
        if asyncio.get_running_loop() is not self._loop:
            raise self._on_foreign_loop()
        delivery = self._opened()
        try:
            check_all(messages, self._config, self._clock.now_ms())
        except errors.AerobeeError:
            delivery.counts.messages_failed += len(messages)
            raise
        sender = BlockSender(delivery, self._targets, self._ids, self._clock, self._config)
        with self._entries.entering():
            return await sender.send(messages, queue, timeout_ms, is_bounded=timeout is not None)

    async def begin(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        check_after_s: int | None = None,
    ) -> Transaction:
        """Begins a transaction: the message is stored, and nobody sees it before `commit`.

        A transaction that is never ended is decided by a check, or by an operator; see
        docs/transactions.md. `transaction` ends it by itself.

        Args:
            message: it cannot ask for a later delivery.
            queue: where to; by default by sharding key, or else in turn. Its place there is the
                one of its commit.
            timeout: seconds, instead of the configured ones.
            check_after_s: for how many seconds nobody is asked about it; by default for as long as
                the broker is configured.

        Raises:
            AerobeeError: as `send`. Unless it is DeadlineExceeded, nothing was begun; else it may
                be open, and is decided by a check.
        """
        return await self._begin(
            message, queue=queue, timeout=timeout, check_after_s=check_after_s, lead=None
        )

    async def _begin(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        timeout: float | None,
        check_after_s: int | None,
        lead: Transaction | None,
    ) -> Transaction:
        if self._telemetry is not None and not isinstance(message, TracedMessage):
            with self._telemetry.sending((message,), operation="begin") as sending:
                begun = await self._begin(
                    sending.messages[0],
                    queue=queue,
                    timeout=timeout,
                    check_after_s=check_after_s,
                    lead=lead,
                )
                sending.on_stored((begun.receipt,))
                return begun
        timeout_ms = self._config.send_timeout_ms if timeout is None else milliseconds(timeout)
        self._opened()
        if asyncio.get_running_loop() is not self._loop:
            raise self._on_foreign_loop()
        size = checked_size(message, self._config, self._clock.now_ms())
        return await self._transactions.begin(message, size, queue, timeout_ms, check_after_s, lead)

    @overload
    def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        check_after_s: int | None = None,
    ) -> AbstractAsyncContextManager[Transaction]: ...

    @overload
    def transaction(
        self, *, timeout: float | None = None, check_after_s: int | None = None
    ) -> AbstractAsyncContextManager[TransactionOfSeveral]: ...

    def transaction(
        self,
        message: Message | None = None,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        check_after_s: int | None = None,
    ) -> (
        AbstractAsyncContextManager[Transaction] | AbstractAsyncContextManager[TransactionOfSeveral]
    ):
        """A block that is a transaction: committed on leaving, and rolled back when an exception
        leaves it.

        With a message, that is begun on entering as `begin` does, and the block may also end it
        itself. Without one, the block sends any number of messages, and all of them are delivered
        or none::

            async with producer.transaction() as tx:
                await tx.send(Message("orders", b"..."))
                await tx.send(Message("invoices", b"..."))

        Raises:
            AerobeeError: as `begin` and `Transaction.commit`. A rollback that fails is logged,
                since the block's own exception is on its way; a check decides then.
        """
        if message is None:
            return self._blocks.several(timeout, check_after_s)
        return self._blocks.one(message, queue, timeout, check_after_s)

    async def end(self, place: str, outcome: TransactionOutcome) -> TransactionOutcome:
        """Commit or roll back a transaction that any producer began, by its `Transaction.place`;
        returns how it ended. Raises as `Transaction.commit`, except TransactionEnded."""
        self._opened()
        return await self._transactions.end_place(place, outcome)

    async def ended(self, place: str) -> TransactionOutcome | None:
        """How such a transaction ended; None: it is open. Raises AerobeeError."""
        self._opened()
        return await self._transactions.ended_at(place)

    def _listener(
        self, check: CheckTransaction | None, topics: Sequence[str]
    ) -> CheckListener | None:
        if check is None:
            return None

        async def end(
            topic: str, broker_name: str, transaction_id: str, outcome: TransactionOutcome
        ) -> None:
            timeout_ms = self._config.send_timeout_ms
            await self._transactions.end_at(topic, broker_name, transaction_id, outcome, timeout_ms)

        listener = CheckListener(
            self._connection,
            check,
            topics,
            end=end,
            ended=self._transactions.ended_at,
            is_under_way=self._blocks.is_under_way,
        )
        self._transactions.on_topic = listener.add
        return listener

    async def recall(self, delayed: Receipt | str) -> None:
        """A message that was sent with a delay or a time is never delivered; by its receipt, or by
        the `recall_handle` of that.

        Raises as `Schedules.recall`, and InvalidArgument if the message was sent without a time.
        """
        handle = delayed.recall_handle if isinstance(delayed, Receipt) else delayed
        if not handle:
            raise errors.InvalidArgument("it was sent without a delay or a time: nothing to recall")
        self._opened()
        # Few producers recall, and all would load the administration at their start.
        from aerobee.client_core.schedules import Schedules

        await Schedules(self._connection, timeout_ms=self._config.send_timeout_ms).recall(handle)

    async def flush(self) -> None:
        """Waits until every message sent so far has its receipt or its error."""
        await self._entries.over()
        if self._delivery is not None:
            await self._delivery.flush()

    async def _finish(self, delivery: Delivery) -> None:
        self._is_closing = True
        try:
            async with asyncio.timeout(self._config.close_timeout_ms / 1_000):
                await self.flush()
        except TimeoutError:
            pass
        finally:
            self._delivery = None
            if self._checking is not None:
                self._checking.cancel()
            self._entries.cancel()
            delivery.stop()
            self._transactions.stop()

    def statistics(self) -> ProducerStatistics:
        """Counts since opening.

        Raises:
            ShuttingDown: the producer is not open.
        """
        delivery = self._opened()
        counts = delivery.counts
        return ProducerStatistics(
            messages_stored=counts.messages_stored,
            messages_failed=counts.messages_failed,
            batches_stored=counts.batches_stored,
            batches_retried=counts.batches_retried,
            buffered_bytes=delivery.budget.bytes_used,
        )

    def obstacles(self) -> list[str]:
        """What has been wrong for over a second, one sentence each: that no nameserver answers,
        even if nothing is to be sent; and what keeps messages waiting: the last failure of a batch
        that is tried again, or which node does not answer. Empty if nothing is wrong.

        What was never asked is not known: `ready` asks.

        Raises:
            ShuttingDown: the producer is not open.
        """
        return self._connection.routes.obstacles() + self._opened().obstacles()

    async def ready(self, *topics: str, timeout: float = READY_TIMEOUT_S) -> None:
        """Return when a nameserver and the brokers of these topics answer; without any, of the
        topics that were sent to before or given as `transaction_topics`. It stores nothing and
        creates no topic: one that the first send would create is ready when the brokers that would
        have its queues answer; one that would not be created is not ready.

        Args:
            timeout: seconds.

        Raises:
            DeadlineExceeded: they did not within the time; the message says what is missing.
            IllegalName: no topic can have such a name.
            ShuttingDown: the producer is not open.
        """
        self._opened()
        if asyncio.get_running_loop() is not self._loop:
            raise self._on_foreign_loop()
        names = sorted({*topics} or {*self._targets.topics, *self._transaction_topics})

        async def look(timeout_ms: int) -> list[str]:
            return await missing_brokers(
                self._connection,
                names,
                create_missing=self._config.create_missing_topics,
                timeout_ms=timeout_ms,
            )

        await until_ready(look, self._clock, milliseconds(timeout))

    async def _send_when_known(
        self, delivery: Delivery, message: Message, queue: MessageQueue | None, size: int
    ) -> None:
        timeout_ms = self._config.send_timeout_ms
        try:
            target = await self._targets.find(message.topic, timeout_ms=timeout_ms)
            if queue is not None:
                target.check_queue(queue)
        except errors.AerobeeError as error:
            delivery.drop(message.topic, size, error)
        except asyncio.CancelledError:
            delivery.drop(message.topic, size, errors.ShuttingDown("the producer was closed"))
            raise
        else:
            delivery.join(target, message, queue, size, timeout_ms, True, None)

    def _on_route(self, route: TopicRoute) -> None:
        if self._delivery is not None:
            self._delivery.on_route(route)

    def _opened(self) -> Delivery:
        delivery = self._delivery
        if delivery is None or self._is_closing:
            raise errors.ShuttingDown(
                "the producer is not open: use it inside `async with`, or start it"
            )
        return delivery

    def _on_foreign_loop(self) -> errors.AerobeeError:
        """Its tasks live on another loop, and would never notice this."""
        self._process.check()
        return errors.InvalidArgument(
            "the producer was opened on another event loop: open one on each, or a BlockingProducer"
        )
