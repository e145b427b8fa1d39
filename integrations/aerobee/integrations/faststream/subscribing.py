"""Subscribers: FastStream's handlers as the listener of a member of a consumer group.

Owns: the member, from `start` to `stop`. A handler's acknowledgement is what the listener answers
in the end, so order, retries and dead letters are those of the group. Without a handler, messages
are taken one by one, by POP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import SetupError, StopConsume
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, SubscriberSpec
from faststream.specification.schema.bindings import ChannelBinding, OperationBinding

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.answers import Answer, Reject, RetryLater
from aerobee.consumer_client.filters import ALL_TAGS, Expression
from aerobee.consumer_client.listener import OrderBy, Ordering
from aerobee.consumer_client.options import StartFrom
from aerobee.consumer_client.popped_message import PoppedMessage
from aerobee.consumer_client.push_consumer import PushConsumer
from aerobee.consumer_client.simple_consumer import SimpleConsumer
from aerobee.integrations.faststream.config import AerobeeBrokerConfig
from aerobee.integrations.faststream.message import AerobeeMessage, Delivery, decode, parse
from aerobee.integrations.faststream.publishing import Replying
from aerobee.integrations.own_task import OwnTask

RECEIVE_S = 15.0


@dataclass(kw_only=True)
class SubscriberSpecificationSettings(SubscriberSpecificationConfig):
    topic: str


@dataclass(kw_only=True)
class SubscriberSettings(SubscriberUsecaseConfig):
    _outer_config: AerobeeBrokerConfig = field(default_factory=AerobeeBrokerConfig)
    topic: str
    group: str
    expression: Expression = ALL_TAGS
    ordering: Ordering = Ordering.CONCURRENT
    order_by: OrderBy | None = None
    max_workers: int = 20
    start_from: StartFrom = StartFrom.LAST

    @property
    def ack_policy(self) -> AckPolicy:
        """As our listeners: a message whose handler fails comes again."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


class AerobeeSubscriberSpecification(
    SubscriberSpecification[AerobeeBrokerConfig, SubscriberSpecificationSettings]
):
    """A subscriber in the AsyncAPI document."""

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payload = resolve_payloads(self.get_payloads())
        return {
            self.name: SubscriberSpec(
                address=self.topic,
                description=self.description,
                operation=Operation(
                    message=MessageSpec(title=f"{self.name}:Message", payload=payload),
                    bindings=OperationBinding(),
                ),
                bindings=ChannelBinding(),
            )
        }


class AerobeeSubscriber(SubscriberUsecase[Delivery]):
    """The handlers of one topic in one group."""

    _outer_config: AerobeeBrokerConfig

    def __init__(
        self,
        settings: SubscriberSettings,
        specification: AerobeeSubscriberSpecification,
        calls: CallsCollection[Delivery],
    ) -> None:
        settings.parser, settings.decoder = parse, decode
        super().__init__(settings, cast(Any, specification), calls)
        self._settings = settings
        self._life: OwnTask | None = None
        self._taking: tuple[SimpleConsumer, OwnTask] | None = None

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._settings.topic}"

    @property
    def group(self) -> str:
        return self._settings.group

    async def start(self) -> None:
        """Joins the group. Raises as `PushConsumer.start`."""
        await super().start()
        self._post_start()
        if self.calls:
            self._life = OwnTask(self._member(), name=f"faststream:{self.topic}")
            try:
                await self._life.start()
            except BaseException:
                self._life, self.running = None, False
                raise

    def _member(self) -> PushConsumer:
        settings, access = self._settings, self._outer_config.access
        return PushConsumer(
            settings.group,
            self._listen,
            nameservers=access.nameservers,
            cluster=access.cluster,
            ordering=settings.ordering,
            order_by=settings.order_by,
            max_concurrency=settings.max_workers,
            start_from=settings.start_from,
            tls=access.tls,
            credentials=access.credentials,
            telemetry=access.telemetry,
            config=access.consumers,
        ).subscribe(self.topic, settings.expression)

    async def stop(self) -> None:
        """Lets running handlers end, commits, and leaves the group."""
        life, self._life = self._life, None
        taking, self._taking = self._taking, None
        try:
            if life is not None:
                await life.close()
            if taking is not None:
                await taking[1].close()
        finally:
            await super().stop()

    async def _listen(self, messages: Sequence[ReceivedMessage]) -> Answer | None:
        """Handle one message; FastStream has logged what its handler raised."""
        delivery = Delivery(messages[0])
        try:
            await self.process_message(delivery)
        except StopConsume:
            self._stop_soon()
        except SystemExit:
            self._stop_soon()
            if app := self._outer_config.context.get("app"):
                app.exit()
        except Exception as error:
            delivery.failure = delivery.failure or error
        if delivery.is_settled:
            return delivery.answer
        return RetryLater(delivery.reason("") or "nobody has acknowledged it")

    def _stop_soon(self) -> None:
        """A handler cannot wait for its own end."""
        self.running = False
        if self._life is not None:
            self._life.end()

    # ------------------------------------------------------------------------------ one by one

    async def get_one(self, *, timeout: float = 5.0) -> AerobeeMessage | None:
        """The next message of a subscriber without handlers; none after `timeout` seconds.
        Acknowledge it, or it comes again after 30 s."""
        for message in await (await self._taken()).receive(1, timeout=timeout):
            return await self._processed(message)
        return None

    async def __aiter__(self) -> AsyncIterator[AerobeeMessage]:
        """The messages of a subscriber without handlers, without end."""
        consumer = await self._taken()
        while True:
            for message in await consumer.receive(1, timeout=RECEIVE_S):
                yield await self._processed(message)

    async def _taken(self) -> SimpleConsumer:
        if self.calls:
            raise SetupError("a subscriber with handlers gives its messages to them")
        if self._taking is None:
            access = self._outer_config.access
            consumer = SimpleConsumer(
                self.group,
                nameservers=access.nameservers,
                cluster=access.cluster,
                tls=access.tls,
                credentials=access.credentials,
                telemetry=access.telemetry,
                config=access.consumers,
            ).subscribe(self.topic, self._settings.expression)
            life = OwnTask(consumer, name=f"faststream:{self.topic}")
            await life.start()
            self._taking = consumer, life
        return self._taking[0]

    async def _processed(self, message: PoppedMessage) -> AerobeeMessage:
        consumer = await self._taken()

        async def settle(answer: Answer | None) -> None:
            if isinstance(answer, Reject):
                await consumer.reject(message, answer)
            elif isinstance(answer, RetryLater):
                await consumer.nack(message, after=(answer.after_ms or 0) / 1_000)
            else:
                await consumer.ack(message)

        raw = Delivery(message, settle)
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        parsed = await process_msg(
            msg=raw,
            middlewares=(each(raw, context=context) for each in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        assert isinstance(parsed, AerobeeMessage), "the parser of this broker made it"
        return parsed

    # ------------------------------------------------------------------------------ FastStream

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[PublisherProto]:
        return (Replying(self._outer_config.producer, message.reply_to),)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        return {
            "topic": self.topic,
            "group": self.group,
            "message_id": "" if message is None else message.message_id,
        }


def subscriber_of(
    settings: SubscriberSettings,
    *,
    title: str | None,
    description: str | None,
    include_in_schema: bool,
) -> AerobeeSubscriber:
    calls = CallsCollection[Delivery]()
    specification = AerobeeSubscriberSpecification(
        settings._outer_config,
        SubscriberSpecificationSettings(
            topic=settings.topic,
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
        ),
        calls,
    )
    return AerobeeSubscriber(settings, specification, calls)
