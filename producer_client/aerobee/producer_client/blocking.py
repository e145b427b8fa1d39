"""The producer for scripts: the same calls, which block.

Owns: one thread with its own event loop, in which an ordinary Producer lives. Any number of
threads may use one BlockingProducer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from aerobee.client_core.cluster import CLUSTER_DEFAULT
from aerobee.client_core.message import Message
from aerobee.cluster_view.own_process import OwnProcess
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.producer import NAMESERVER_DEFAULT, Producer
from aerobee.producer_client.receipt import Receipt, Receipts
from aerobee.runtime import errors

T = TypeVar("T")


class BlockingProducer:
    """Sends messages from code without an event loop.

    Example::

        with BlockingProducer(nameservers="127.0.0.1:8081") as producer:
            print(producer.send(Message("orders", b"{}")).message_id)
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] = NAMESERVER_DEFAULT,
        cluster: str = CLUSTER_DEFAULT,
        *,
        config: ProducerConfig | None = None,
    ) -> None:
        self._nameservers = nameservers
        self._cluster = cluster
        self._config = config
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
            producer = Producer(self._nameservers, self._cluster, config=self._config)
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

    def _opened(self) -> Producer:
        if self._executor is None or self._producer is None:
            raise errors.ShuttingDown("the producer is not open: use it inside `with`")
        self._process.check()
        return self._producer

    def _call(self, call: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
