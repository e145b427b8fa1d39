"""The producer for scripts: the same calls, but blocking.

Owns: a thread in which an ordinary Producer lives; any number of threads may use one
BlockingProducer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from aerobee.access.credentials import Credentials
from aerobee.client_core.defaults import config_or_default
from aerobee.client_core.loop_thread import BlockingClient, LoopThread
from aerobee.client_core.message import Message
from aerobee.client_core.telemetry import Telemetry
from aerobee.client_core.transactions import TransactionOutcome
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.checks import CheckAnswer, TransactionCheck
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.producer import Producer, ProducerStatistics
from aerobee.producer_client.receipt import Receipt, Receipts
from aerobee.producer_client.transactions import Transaction
from aerobee.runtime.tls_config import TlsConfig

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
        """See `Transaction.outcome`."""
        return self._transaction.outcome

    def commit(self, *, timeout: float | None = None) -> None:
        """See `Transaction.commit`."""
        self._call(self._transaction.commit(timeout=timeout))

    def rollback(self, *, timeout: float | None = None) -> None:
        """See `Transaction.rollback`."""
        self._call(self._transaction.rollback(timeout=timeout))

    def __repr__(self) -> str:
        return repr(self._transaction)


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
        """See `Producer.send`."""
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
        """See `Producer.send_batch`."""
        return self._thread.call(
            lambda producer: producer.send_batch(messages, queue=queue, timeout=timeout)
        )

    def send_one_way(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """See `Producer.send_one_way`."""
        self._thread.do(lambda producer: producer.send_one_way(message, queue=queue))

    def begin(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        check_after_s: int | None = None,
    ) -> BlockingTransaction:
        """See `Producer.begin`."""
        begun = self._thread.call(
            lambda producer: producer.begin(
                message, queue=queue, timeout=timeout, check_after_s=check_after_s
            )
        )
        return BlockingTransaction(begun, self._call)

    @contextmanager
    def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        check_after_s: int | None = None,
    ) -> Iterator[BlockingTransaction]:
        """See `Producer.transaction`."""
        block = self._thread.client.transaction(
            message, queue=queue, timeout=timeout, check_after_s=check_after_s
        )
        begun = self._thread.call(lambda _: block.__aenter__())
        try:
            yield BlockingTransaction(begun, self._call)
        except BaseException as error:
            self._call(_leave(block, error))
            raise
        else:
            self._call(_leave(block, None))

    def flush(self) -> None:
        """See `Producer.flush`."""
        self._thread.call(lambda producer: producer.flush())

    def statistics(self) -> ProducerStatistics:
        """See `Producer.statistics`."""
        return self._thread.do(lambda producer: producer.statistics())

    def obstacles(self) -> list[str]:
        """See `Producer.obstacles`."""
        return self._thread.do(lambda producer: producer.obstacles())

    def _call(self, call: Coroutine[Any, Any, None]) -> None:
        self._thread.call(lambda _: call)

    async def _ask(self, check: TransactionCheck) -> CheckAnswer:
        assert self._check is not None
        return await asyncio.to_thread(self._check, check)


async def _leave(
    block: AbstractAsyncContextManager[Transaction], error: BaseException | None
) -> None:
    """The block's own error matters only in its own thread."""
    if error is None:
        await block.__aexit__(None, None, None)
        return
    # What stops a thread would stop the loop.
    seen = error if isinstance(error, Exception) else RuntimeError(repr(error))
    await block.__aexit__(type(seen), seen, None)
