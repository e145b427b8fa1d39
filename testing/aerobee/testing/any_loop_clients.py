"""A producer and a consumer for tests, on the cluster's own thread: usable from any event loop, and
their blocking twins from none.

So a test needs no asynchronous fixture, whichever plugin runs it. The programs under test use
clients of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client import PullConsumer, StartFrom
from aerobee.producer_client import Producer, Receipt
from aerobee.testing.real_cluster import RealCluster

PATIENCE_S = 10.0
POLL_MESSAGES_MAX = 100


class NotReceived(AssertionError):
    """Fewer messages arrived than a test waited for; the text says which ones did."""


class ClusterProducer:
    """Sends messages. For any event loop."""

    def __init__(self, cluster: RealCluster) -> None:
        self._thread = cluster.thread
        self._producer = Producer(cluster.nameservers, tls=False)
        self.blocking = BlockingClusterProducer(self)
        """The same for tests without an event loop."""

    def open(self) -> None:
        self._thread.call(self._producer.__aenter__())

    def close(self) -> None:
        self._thread.call(self._producer.__aexit__(None, None, None))

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> Receipt:
        """As `Producer.send`."""
        return await self._thread.wait(self._producer.send(message, queue=queue))

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> list[Receipt]:
        """As `Producer.send_batch`: all in one batch."""
        return await self._thread.wait(self._send_batch(messages, queue))

    async def _send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None
    ) -> list[Receipt]:
        return list(await self._producer.send_batch(messages, queue=queue))


class BlockingClusterProducer:
    """Sends messages and waits."""

    def __init__(self, producer: ClusterProducer) -> None:
        self._of = producer

    def send(self, message: Message, *, queue: MessageQueue | None = None) -> Receipt:
        """As `Producer.send`."""
        return self._of._thread.call(self._of._producer.send(message, queue=queue))

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> list[Receipt]:
        """As `Producer.send_batch`: all in one batch."""
        return self._of._thread.call(self._of._send_batch(messages, queue))


class ClusterConsumer:
    """Receives what was sent to a topic, from its beginning on, as the only reader. For any event
    loop."""

    def __init__(self, cluster: RealCluster, topic: str, group: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._consumers: dict[str, PullConsumer] = {}
        self._left: dict[str, list[ReceivedMessage]] = {}
        self.blocking = BlockingClusterConsumer(self)
        """The same for tests without an event loop."""

    async def receive(
        self, count: int = 1, *, topic: str | None = None, timeout: float = PATIENCE_S
    ) -> list[ReceivedMessage]:
        """The next `count` messages of `topic`, or of the test's own.

        Raises NotReceived when fewer come within `timeout`.
        """
        return await self._cluster.thread.wait(self._receive(count, topic, timeout))

    async def _receive(
        self, count: int, topic: str | None, timeout: float
    ) -> list[ReceivedMessage]:
        name = self._topic if topic is None else topic
        consumer, left = await self._opened(name), self._left.setdefault(name, [])
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout
        while len(left) < count:
            left_s = end_s - loop.time()
            if left_s <= 0:
                bodies = [message.body for message in left]
                raise NotReceived(
                    f"{len(bodies)} of {count} messages came to {name} within {timeout:g} s: "
                    f"{bodies}"
                )
            left += await consumer.poll(POLL_MESSAGES_MAX, timeout=left_s)
        received, left[:count] = left[:count], []
        return received

    async def _opened(self, topic: str) -> PullConsumer:
        if topic not in self._consumers:
            consumer = PullConsumer(
                self._group,
                nameservers=self._cluster.nameservers,
                start_from=StartFrom.FIRST,
                tls=False,
            ).subscribe(topic)
            await consumer.start()
            self._consumers[topic] = consumer
        return self._consumers[topic]

    def close(self) -> None:
        self._cluster.thread.call(self._close())

    async def _close(self) -> None:
        for consumer in self._consumers.values():
            await consumer.aclose()


class BlockingClusterConsumer:
    """Receives messages and waits."""

    def __init__(self, consumer: ClusterConsumer) -> None:
        self._of = consumer

    def receive(
        self, count: int = 1, *, topic: str | None = None, timeout: float = PATIENCE_S
    ) -> list[ReceivedMessage]:
        """As `ClusterConsumer.receive`."""
        return self._of._cluster.thread.call(self._of._receive(count, topic, timeout))
