"""`SimpleConsumer` for code without an event loop: the same calls, but blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self

from aerobee.access.credentials import Credentials
from aerobee.client_core.loop_thread import BlockingClient, LoopThread
from aerobee.client_core.readiness import READY_TIMEOUT_S
from aerobee.client_core.telemetry import Telemetry
from aerobee.consumer_client.answers import Reject
from aerobee.consumer_client.ending_signals import sigterm_interrupts
from aerobee.consumer_client.filters import Expression
from aerobee.consumer_client.listener import Listener
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.consumer_client.popped_message import PoppedMessage
from aerobee.consumer_client.retry_schedule import RetryPolicy
from aerobee.consumer_client.simple_consumer import (
    INVISIBLE_S,
    KEEP_S_MAX,
    RECEIVE_S,
    SimpleConsumer,
    Time,
)
from aerobee.consumer_client.simple_consumer import Messages as Popped
from aerobee.consumer_client.statistics import SimpleConsumerStatistics
from aerobee.rpc.tls_config import TlsConfig


class BlockingSimpleConsumer(BlockingClient[SimpleConsumer]):
    """A `SimpleConsumer` for code without an event loop; the arguments are the same.

    For example::

        with BlockingSimpleConsumer("thumbnails").subscribe("pictures") as consumer:
            for message in consumer.receive(32, timeout=5.0):
                print(message.body)
                consumer.ack(message)
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
    ) -> None:
        self._consumer = SimpleConsumer(
            group,
            nameservers=nameservers,
            cluster=cluster,
            invisible=invisible,
            client_id=client_id,
            tls=tls,
            credentials=credentials,
            telemetry=telemetry,
            config=config,
        )
        super().__init__(LoopThread("consumer", lambda: self._consumer))

    def __repr__(self) -> str:
        return f"Blocking{self._consumer!r}"

    @property
    def client_id(self) -> str:
        return self._consumer.client_id

    def subscribe(self, topic: str, expression: Expression = "*") -> Self:
        """Receive a topic: all of it, what has one of the tags `a || b`, or the messages for which
        `sql("price > 5")` is true. A second call for a topic replaces its expression.

        Raises:
            IllegalName, FilterIllegal: no topic has such a name; no message can match.
        """
        self._consumer.subscribe(topic, expression)
        return self

    def receive(
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
        return self._thread.call(
            lambda consumer: consumer.receive(max_messages, timeout=timeout, invisible=invisible)
        )

    def ack(self, messages: Popped) -> None:
        """The messages are done. It is durable when this returns.

        Raises:
            StaleHandle: the time of a message was over, and it comes again, or came; all others
                are acknowledged.
            AerobeeError: a broker could not be reached for `failover_timeout_ms`; acknowledge
                again.
        """
        self._thread.call(lambda consumer: consumer.ack(messages))

    def nack(self, messages: Popped, *, after: Time = 0.0) -> None:
        """The messages failed: they come again, as another attempt, `after` this time (a number is
        seconds). Raises as `ack`."""
        self._thread.call(lambda consumer: consumer.nack(messages, after=after))

    def reject(self, messages: Popped, reason: str | Reject) -> None:
        """The messages can never be handled: they are dead letters. Raises as `ack`."""
        self._thread.call(lambda consumer: consumer.reject(messages, reason))

    def change_invisible(self, messages: Popped, invisible: Time) -> None:
        """The messages are invisible for this time from now on, at most 12 h; a number is seconds.
        Raises as `ack`."""
        self._thread.call(lambda consumer: consumer.change_invisible(messages, invisible))

    def listen(
        self,
        listener: Listener,
        *,
        max_concurrency: int = 20,
        run_in_thread: bool = True,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Call the listener with one message after another until `stop`, Ctrl-C or SIGTERM, and do
        with each what it answers; see `SimpleConsumer.listen`. Running calls end while it is
        closed."""
        with suppress(KeyboardInterrupt), sigterm_interrupts():
            self._thread.call(
                lambda consumer: consumer.listen(
                    listener,
                    max_concurrency=max_concurrency,
                    run_in_thread=run_in_thread,
                    retry=retry,
                )
            )

    def statistics(self) -> SimpleConsumerStatistics:
        """What it has done since it was made."""
        return self._consumer.statistics()

    def ready(self, *, timeout: float = READY_TIMEOUT_S) -> None:
        """Return when a nameserver and the brokers of its topics answer. It receives nothing.

        Args:
            timeout: seconds.

        Raises:
            DeadlineExceeded: they did not within the time; the message says what is missing.
            InvalidArgument, ShuttingDown: it is not started, or is closed.
        """
        self._thread.call(lambda consumer: consumer.ready(timeout=timeout))

    def obstacles(self) -> list[str]:
        """What keeps messages away, in sentences: that no nameserver answers, and why the last poll
        of a topic at a broker failed. Empty if nothing does; what was never asked is not known."""
        return self._thread.do(lambda consumer: consumer.obstacles())

    def stop(self) -> None:
        """Make `listen` return. From any thread, or a listener that is called in a thread."""
        self._thread.do(lambda consumer: consumer.stop())

    @contextmanager
    def keeping(self, messages: Popped, *, at_most: Time = KEEP_S_MAX) -> Iterator[None]:
        """Keep messages invisible while the block runs, but not longer than `at_most` (a number is
        seconds): the time of each, as it was received or changed, is renewed when a third of it
        is over. Acknowledge them inside or after the block, which neither does nor undoes that."""
        block = self._thread.do(lambda consumer: consumer.keeping(messages, at_most=at_most))
        self._thread.call(lambda _: block.__aenter__())
        try:
            yield
        finally:
            self._thread.call(lambda _: block.__aexit__(None, None, None))
