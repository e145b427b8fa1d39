"""The producer for scripts: the same calls, but blocking.

Owns: a thread in which an ordinary Producer lives; any number of threads may use one
BlockingProducer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, TypeVar, overload

from aerobee.access.credentials import Credentials
from aerobee.client_core.defaults import config_or_default
from aerobee.client_core.loop_thread import BlockingClient, LoopThread
from aerobee.client_core.message import Message
from aerobee.client_core.readiness import READY_TIMEOUT_S
from aerobee.client_core.telemetry import Telemetry
from aerobee.client_core.transactions import TransactionOutcome
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.checks import CheckAnswer, TransactionCheck
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.producer import Producer
from aerobee.producer_client.receipt import Receipt, Receipts
from aerobee.producer_client.several import TransactionOfSeveral
from aerobee.producer_client.statistics import ProducerStatistics
from aerobee.producer_client.transactions import Transaction
from aerobee.rpc.tls_config import TlsConfig

Begun = TypeVar("Begun")
Blocking = TypeVar("Blocking")
CheckAnswerOf = Callable[[TransactionCheck], CheckAnswer]


class BlockingTransaction:
    """A `Transaction` for code without an event loop."""

    def __init__(
        self, transaction: Transaction, call: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._transaction = transaction
        self._call = call

    @property
    def receipt(self) -> Receipt:
        """Of the message. It has no place in its queue yet."""
        return self._transaction.receipt

    @property
    def transaction_id(self) -> str:
        """The message's id."""
        return self._transaction.transaction_id

    @property
    def outcome(self) -> TransactionOutcome | None:
        """How it ended, as far as this producer knows; None: it is open, or that is unknown."""
        return self._transaction.outcome

    def commit(self, *, timeout: float | None = None) -> None:
        """The message is delivered. Returns when that is as safe as an ordinary send; what is
        committed already is left as it is.

        Args:
            timeout: seconds, instead of the configured `send_timeout_ms`, all attempts included.

        Raises:
            TransactionUnanswered: whether it is committed is unknown; see there.
            TransactionEnded: it was rolled back or set aside before, by an answer to a check or by
                an operator.
            MessageNotFound: its broker has no such transaction: it was removed with the topic or by
                an operator, or lost with the broker.
            TopicNotFound, NotWritableTopic: its topic does not take it now; it stays open.
        """
        self._call(self._transaction.commit(timeout=timeout))

    def rollback(self, *, timeout: float | None = None) -> None:
        """The message is never delivered. As `commit`."""
        self._call(self._transaction.rollback(timeout=timeout))

    def __repr__(self) -> str:
        return repr(self._transaction)


class BlockingTransactionOfSeveral:
    """`TransactionOfSeveral` from code without an event loop."""

    def __init__(self, several: TransactionOfSeveral, thread: LoopThread[Producer]) -> None:
        self._several = several
        self._thread = thread

    def send(
        self, message: Message, *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> Receipt:
        """Store a message that nobody sees before the block is left without an exception.

        Args:
            message: it cannot ask for a later delivery.
            queue: where to; by default by sharding key, or else in turn.
            timeout: seconds, instead of the configured ones.

        Raises:
            AerobeeError: as `Producer.begin`; none of the messages will be delivered.
            InvalidArgument: the block has been left, or a message could not be stored before.
        """
        return self._thread.call(
            lambda _: self._several.send(message, queue=queue, timeout=timeout)
        )


class BlockingProducer(BlockingClient[Producer]):
    """Sends messages from code without an event loop. `check_transaction` is called in a thread.

    Example::

        with BlockingProducer(nameservers="127.0.0.1:8081") as producer:
            print(producer.send(Message("orders", b"{}")).message_id)
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        *,
        check_transaction: CheckAnswerOf | None = None,
        transaction_topics: Sequence[str] = (),
        config: ProducerConfig | None = None,
        tls: bool | TlsConfig | None = None,
        credentials: Credentials | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._check = check_transaction
        config = config_or_default(config, ProducerConfig)
        super().__init__(
            LoopThread(
                "producer",
                lambda: Producer(
                    nameservers,
                    cluster,
                    check_transaction=None if check_transaction is None else self._ask,
                    transaction_topics=transaction_topics,
                    config=config,
                    tls=tls,
                    credentials=credentials,
                    telemetry=telemetry,
                ),
            )
        )

    def send(
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
        return self._thread.call(
            lambda producer: producer.send(
                message, queue=queue, timeout=timeout, skip_wait=skip_wait
            )
        )

    def send_batch(
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
        return self._thread.call(
            lambda producer: producer.send_batch(messages, queue=queue, timeout=timeout)
        )

    def send_one_way(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Sends without a receipt and without waiting; a loss is logged and counted.

        Raises:
            MessageTooLarge: the body is above the configured limit.
            Busy: the buffer is full.
            ShuttingDown: the producer is closed.
        """
        self._thread.do(lambda producer: producer.send_one_way(message, queue=queue))

    def begin(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        check_after_s: int | None = None,
    ) -> BlockingTransaction:
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
        begun = self._thread.call(
            lambda producer: producer.begin(
                message, queue=queue, timeout=timeout, check_after_s=check_after_s
            )
        )
        return BlockingTransaction(begun, self._call)

    @overload
    def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        check_after_s: int | None = None,
    ) -> AbstractContextManager[BlockingTransaction]: ...

    @overload
    def transaction(
        self, *, timeout: float | None = None, check_after_s: int | None = None
    ) -> AbstractContextManager[BlockingTransactionOfSeveral]: ...

    def transaction(
        self,
        message: Message | None = None,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        check_after_s: int | None = None,
    ) -> (
        AbstractContextManager[BlockingTransaction]
        | AbstractContextManager[BlockingTransactionOfSeveral]
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
        client = self._thread.client
        if message is None:
            several = client.transaction(timeout=timeout, check_after_s=check_after_s)
            return self._block(
                several, lambda begun: BlockingTransactionOfSeveral(begun, self._thread)
            )
        one = client.transaction(message, queue=queue, timeout=timeout, check_after_s=check_after_s)
        return self._block(one, lambda begun: BlockingTransaction(begun, self._call))

    @contextmanager
    def _block(
        self, block: AbstractAsyncContextManager[Begun], blocking: Callable[[Begun], Blocking]
    ) -> Iterator[Blocking]:
        begun = self._thread.call(lambda _: block.__aenter__())
        try:
            yield blocking(begun)
        except BaseException as error:
            self._call(_leave(block, error))
            raise
        else:
            self._call(_leave(block, None))

    def recall(self, delayed: Receipt | str) -> None:
        """A message that was sent with a delay or a time is never delivered; by its receipt, or by
        the `recall_handle` of that.

        Raises as `Schedules.recall`, and InvalidArgument if the message was sent without a time.
        """
        self._thread.call(lambda producer: producer.recall(delayed))

    def flush(self) -> None:
        """Waits until every message sent so far has its receipt or its error."""
        self._thread.call(lambda producer: producer.flush())

    def ready(self, *topics: str, timeout: float = READY_TIMEOUT_S) -> None:
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
        self._thread.call(lambda producer: producer.ready(*topics, timeout=timeout))

    def statistics(self) -> ProducerStatistics:
        """Counts since opening.

        Raises:
            ShuttingDown: the producer is not open.
        """
        return self._thread.do(lambda producer: producer.statistics())

    def obstacles(self) -> list[str]:
        """What has been wrong for over a second, one sentence each: that no nameserver answers,
        even if nothing is to be sent; and what keeps messages waiting: the last failure of a batch
        that is tried again, or which node does not answer. Empty if nothing is wrong.

        What was never asked is not known: `ready` asks.

        Raises:
            ShuttingDown: the producer is not open.
        """
        return self._thread.do(lambda producer: producer.obstacles())

    def _call(self, call: Coroutine[Any, Any, None]) -> None:
        self._thread.call(lambda _: call)

    async def _ask(self, check: TransactionCheck) -> CheckAnswer:
        assert self._check is not None
        return await asyncio.to_thread(self._check, check)


async def _leave(block: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    """The block's own error matters only in its own thread."""
    if error is None:
        await block.__aexit__(None, None, None)
        return
    # What stops a thread would stop the loop.
    seen = error if isinstance(error, Exception) else RuntimeError(repr(error))
    await block.__aexit__(type(seen), seen, None)
