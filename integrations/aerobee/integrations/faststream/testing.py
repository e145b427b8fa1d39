"""Tests of FastStream applications in memory, without a cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from faststream._internal.testing.broker import EnterType, TestBroker, change_producer

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.integrations.faststream.broker import AerobeeBroker
from aerobee.integrations.faststream.message import Delivery
from aerobee.integrations.faststream.publishing import (
    AerobeeProducer,
    AerobeePublishCommand,
    AerobeePublisher,
    message_of,
)
from aerobee.integrations.faststream.subscribing import AerobeeSubscriber
from aerobee.runtime.clock import clock_here
from aerobee.store.format.record import HostAddress, Record, encode_record

FAKE_GROUP = "faststream-test"
HERE = HostAddress.parse("127.0.0.1:0")


class TestAerobeeBroker(TestBroker[AerobeeBroker, EnterType], broker=AerobeeBroker):
    """Gives what is published to the handlers of its topic, one of each group, in memory.

    What a handler raises comes out of `publish`, `Reject` and `RetryLater` as well, and of a body
    that the handler's type refuses its ValidationError. Nothing comes again: for retries, dead
    letters and time, test with `aerobee.testing` (docs/testing.md). A message with a delay arrives
    at once.

    Example::

        async with TestAerobeeBroker(broker) as testing:
            await testing.publish({"id": 7}, "orders")
            bill.mock.assert_called_once_with({"id": 7})
    """

    def create_publisher_fake_subscriber(
        self, broker: AerobeeBroker, publisher: AerobeePublisher
    ) -> tuple[AerobeeSubscriber, bool]:
        for subscriber in _subscribers(self.brokers):
            if subscriber.topic == publisher.topic:
                return subscriber, True
        return broker.subscriber(publisher.topic, group=FAKE_GROUP, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: AerobeeBroker) -> Generator[None, None, None]:
        with change_producer(broker.config.broker_config, FakeProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: AerobeeBroker, *args: Any, **kwargs: Any) -> None:
        return None


class FakeProducer(AerobeeProducer):
    """Calls handlers at once."""

    def __init__(self, broker: AerobeeBroker, brokers: Sequence[AerobeeBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        config = broker.config.broker_config
        self.serializer = config.fd_config._serializer
        self.codec = config.broker_codec or self.codec
        self._brokers = brokers

    async def publish(self, cmd: AerobeePublishCommand) -> Any:
        message = await message_of(cmd, self.codec, self.serializer)
        groups: set[str] = set()
        for subscriber in _subscribers(self._brokers):
            if subscriber.topic == message.topic and subscriber.group not in groups:
                groups.add(subscriber.group)
                delivery = Delivery(received(message))
                await subscriber.process_message(delivery)
                if delivery.failure is not None:
                    raise delivery.failure  # FastStream takes it for an acknowledgement.


def received(message: Message) -> ReceivedMessage:
    """The message as a consumer gets it, in queue 0 of no broker."""
    record = encode_record(
        topic=message.topic.encode(),
        body=message.body,
        properties=message.encoded_properties,
        born_timestamp_ms=clock_here().now_ms(),
        born_host=HERE,
        flag=message.flag,
    )
    return ReceivedMessage(Record(bytes(record)), MessageQueue(message.topic, "in-memory", 0))


def _subscribers(brokers: Sequence[AerobeeBroker]) -> Iterator[AerobeeSubscriber]:
    for broker in brokers:
        for subscriber in broker.subscribers:
            yield cast(AerobeeSubscriber, subscriber)
