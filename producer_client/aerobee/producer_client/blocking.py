"""The producer for scripts: the same calls, which block.

Owns: one thread with its own event loop, in which an ordinary Producer lives. Any number of
threads may use one BlockingProducer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from aerobee.client_core import Credentials
from aerobee.client_core.cluster import CLUSTER_DEFAULT
from aerobee.client_core.message import Message
from aerobee.client_core.transactions import TransactionOutcome
from aerobee.cluster_view.own_process import OwnProcess
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.checks import CheckAnswer, TransactionCheck
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.producer import NAMESERVER_DEFAULT, Producer
from aerobee.producer_client.receipt import Receipt, Receipts
from aerobee.producer_client.transactions import Transaction
from aerobee.runtime import errors
from aerobee.runtime.tls_config import TlsConfig

T = TypeVar("T")


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

    def commit(self, *, timeout_ms: int | None = None) -> None:
        """See `Transaction.commit`."""
        self._call(self._transaction.commit(timeout_ms=timeout_ms))

    def rollback(self, *, timeout_ms: int | None = None) -> None:
        """See `Transaction.rollback`."""
        self._call(self._transaction.rollback(timeout_ms=timeout_ms))

    def __repr__(self) -> str:
        return repr(self._transaction)


class BlockingProducer:
    """Sends messages from code without an event loop. `check_transaction` is called in a thread.

    Example::

        with BlockingProducer(nameservers="127.0.0.1:8081") as producer:
            print(producer.send(Message("orders", b"{}")).message_id)
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] = NAMESERVER_DEFAULT,
        cluster: str = CLUSTER_DEFAULT,
        *,
        check_transaction: CheckAnswerOf | None = None,
        transaction_topics: Sequence[str] = (),
        config: ProducerConfig | None = None,
        tls: bool | TlsConfig | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._check = check_transaction
        self._transaction_topics = transaction_topics
        self._nameservers = nameservers
        self._cluster = cluster
        self._config = config
        self._tls = tls
        self._credentials = credentials
        self._process = OwnProcess("producer")
        self._executor: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._producer: Producer | None = None
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> Self:
        self._process = OwnProcess("producer")
        opened: Future[None] = Future()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="aerobee-producer")
        self._running = self._executor.submit(self._run, opened)
        try:
            opened.result()
        except BaseException:
            self._executor.shutdown()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        skip_wait: bool = False,
    ) -> Receipt:
        """See `Producer.send`."""
        producer = self._opened()
        return self._call(
            producer.send(message, queue=queue, timeout_ms=timeout_ms, skip_wait=skip_wait)
        )

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> Receipts:
        """See `Producer.send_batch`."""
        producer = self._opened()
        return self._call(producer.send_batch(messages, queue=queue, timeout_ms=timeout_ms))

    def send_one_way(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """See `Producer.send_one_way`."""
        producer = self._opened()

        async def send() -> None:
            producer.send_one_way(message, queue=queue)

        self._call(send())

    def begin(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        check_after_s: int | None = None,
    ) -> BlockingTransaction:
        """See `Producer.begin`."""
        producer = self._opened()
        begun = self._call(
            producer.begin(message, queue=queue, timeout_ms=timeout_ms, check_after_s=check_after_s)
        )
        return BlockingTransaction(begun, self._call)

    @contextmanager
    def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        check_after_s: int | None = None,
    ) -> Iterator[BlockingTransaction]:
        """See `Producer.transaction`."""
        producer = self._opened()
        block = producer.transaction(
            message, queue=queue, timeout_ms=timeout_ms, check_after_s=check_after_s
        )
        begun = self._call(block.__aenter__())
        try:
            yield BlockingTransaction(begun, self._call)
        except BaseException as error:
            self._call(_leave(block, error))
            raise
        else:
            self._call(_leave(block, None))

    def flush(self) -> None:
        """See `Producer.flush`."""
        self._call(self._opened().flush())

    def close(self) -> None:
        """Waits for open receipts as `Producer.close` does, and ends the thread. Idempotent. Does
        nothing in a child of the process that opened it."""
        executor, running = self._executor, self._running
        if executor is None or running is None or self._process.is_left:
            return
        self._executor = None
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        executor.shutdown()
        running.result()

    def _run(self, opened: Future[None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._live(opened))

    async def _live(self, opened: Future[None]) -> None:
        self._stop = asyncio.Event()
        try:
            producer = Producer(
                self._nameservers,
                self._cluster,
                check_transaction=None if self._check is None else self._ask,
                transaction_topics=self._transaction_topics,
                config=self._config,
                tls=self._tls,
                credentials=self._credentials,
            )
            async with producer:
                self._loop = asyncio.get_running_loop()
                self._producer = producer
                opened.set_result(None)
                await self._stop.wait()
        except BaseException as error:
            if not opened.done():
                opened.set_exception(error)
                return
            raise
        finally:
            self._producer = None

    async def _ask(self, check: TransactionCheck) -> CheckAnswer:
        assert self._check is not None
        return await asyncio.to_thread(self._check, check)

    def _opened(self) -> Producer:
        if self._executor is None or self._producer is None:
            raise errors.ShuttingDown("the producer is not open: use it inside `with`")
        self._process.check()
        return self._producer

    def _call(self, call: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


async def _leave(
    block: AbstractAsyncContextManager[Transaction], error: BaseException | None
) -> None:
    """The block's own error is for its thread alone."""
    if error is None:
        await block.__aexit__(None, None, None)
        return
    # What a thread is stopped by would stop the loop.
    seen = error if isinstance(error, Exception) else RuntimeError(repr(error))
    await block.__aexit__(type(seen), seen, None)
