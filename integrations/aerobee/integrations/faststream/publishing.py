"""What FastStream publishes as messages of topics: commands, the producer, publishers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import SendableMessage
from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import CustomCallable, PublisherMiddleware
from faststream.exceptions import FeatureNotSupportedException, IncorrectState
from faststream.response import PublishCommand, PublishType, Response
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, PublisherSpec
from faststream.specification.schema.bindings import ChannelBinding, OperationBinding

from aerobee.client_core.message import Message
from aerobee.client_core.schedule import Delay, DeliverAt
from aerobee.consumer_client.typed import CONTENT_TYPE
from aerobee.integrations.faststream.config import AerobeeBrokerConfig
from aerobee.integrations.faststream.message import CORRELATION_ID, REPLY_TO, decode, parse
from aerobee.producer_client.producer import Producer
from aerobee.producer_client.receipt import Receipt

NO_REQUESTS = "Aerobee has no request and reply: give reply_to, and subscribe to that topic"
NO_BATCHES = (
    "Aerobee has no batches to publish: messages that are published at the same moment share one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How a message is sent, beside its topic and its body."""

    tag: str | None = None
    keys: Sequence[str] = ()
    sharding_key: str | None = None
    delay: Delay | None = None
    deliver_at: DeliverAt | None = None

    def over(self, other: Sending) -> Sending:
        """What is not given here is as there."""
        is_timed = self.delay is not None or self.deliver_at is not None
        return Sending(
            tag=self.tag if self.tag is not None else other.tag,
            keys=self.keys or other.keys,
            sharding_key=self.sharding_key if self.sharding_key is not None else other.sharding_key,
            delay=self.delay if is_timed else other.delay,
            deliver_at=self.deliver_at if is_timed else other.deliver_at,
        )


class AerobeePublishCommand(PublishCommand):
    """One message to be sent."""

    def __init__(
        self,
        body: Any,
        *,
        topic: str = "",
        sending: Sending | None = None,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        _publish_type: PublishType = PublishType.PUBLISH,
    ) -> None:
        super().__init__(
            body,
            destination=topic,
            headers=dict(headers or {}),
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.sending = sending or Sending()

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> Self:
        """A handler may answer with a command of another broker."""
        if isinstance(cmd, cls):
            return cmd
        return cls(
            cmd.body,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )


class AerobeeResponse(Response):
    """What a handler returns to say how its result is sent."""

    def __init__(
        self,
        body: SendableMessage,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        sharding_key: str | None = None,
        delay: Delay | None = None,
        deliver_at: DeliverAt | None = None,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
    ) -> None:
        """The arguments are those of `aerobee.Message`."""
        super().__init__(body, headers=dict(headers or {}), correlation_id=correlation_id)
        self._sending = Sending(
            tag=tag, keys=keys, sharding_key=sharding_key, delay=delay, deliver_at=deliver_at
        )

    def as_publish_command(self) -> AerobeePublishCommand:
        return AerobeePublishCommand(
            self.body,
            sending=self._sending,
            headers=self.headers,
            correlation_id=self.correlation_id,
        )


async def message_of(
    cmd: AerobeePublishCommand, codec: CodecProto, serializer: SerializerProto | None
) -> Message:
    """Raises as `aerobee.Message`. A header with an empty value is left out."""
    body, content_type = await codec.encode(cmd.body, serializer)
    if cmd.body is None:
        body, content_type = b"null", "application/json"
    named = {
        CONTENT_TYPE: content_type,
        CORRELATION_ID: cmd.correlation_id,
        REPLY_TO: cmd.reply_to,
    }
    properties = {name: str(value) for name, value in {**cmd.headers, **named}.items() if value}
    sending = cmd.sending
    return Message(
        cmd.destination,
        body,
        tag=sending.tag,
        keys=sending.keys,
        properties=properties,
        sharding_key=sending.sharding_key,
        delay=sending.delay,
        deliver_at=sending.deliver_at,
    )


class AerobeeProducer(ProducerProto[AerobeePublishCommand]):
    """FastStream's way to our producer."""

    def __init__(
        self, parser: CustomCallable | None = None, decoder: CustomCallable | None = None
    ) -> None:
        self._parser = ParserComposition(parser, parse)
        self._decoder = ParserComposition(decoder, decode)
        self.codec: CodecProto = DefaultCodec()
        self.serializer: SerializerProto | None = None
        self._producer: Producer | None = None

    def connect(
        self, producer: Producer, serializer: SerializerProto | None, codec: CodecProto | None
    ) -> None:
        self._producer, self.serializer = producer, serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        self._producer = None

    async def publish(self, cmd: AerobeePublishCommand) -> Receipt:
        """Returns once it is stored."""
        if self._producer is None:
            raise IncorrectState("the broker is not connected: start it first")
        return await self._producer.send(await message_of(cmd, self.codec, self.serializer))

    async def request(self, cmd: AerobeePublishCommand) -> Any:
        raise FeatureNotSupportedException(NO_REQUESTS)

    async def publish_batch(self, cmd: AerobeePublishCommand) -> Any:
        raise FeatureNotSupportedException(NO_BATCHES)


# ------------------------------------------------------------------------------ publishers


@dataclass(kw_only=True)
class PublisherSpecificationSettings(PublisherSpecificationConfig):
    topic: str


@dataclass(kw_only=True)
class PublisherSettings(PublisherUsecaseConfig):
    _outer_config: AerobeeBrokerConfig = field(default_factory=AerobeeBrokerConfig)
    topic: str
    sending: Sending
    headers: Mapping[str, str]


class AerobeePublisherSpecification(
    PublisherSpecification[AerobeeBrokerConfig, PublisherSpecificationSettings]
):
    """A publisher in the AsyncAPI document."""

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(
                    message=MessageSpec(title=f"{self.name}:Message", payload=payload),
                    bindings=OperationBinding(),
                ),
                bindings=ChannelBinding(),
            )
        }


class AerobeePublisher(PublisherUsecase):
    """Sends what it is given, or what a handler returns, to one topic."""

    _outer_config: AerobeeBrokerConfig

    def __init__(
        self, settings: PublisherSettings, specification: AerobeePublisherSpecification
    ) -> None:
        super().__init__(settings, cast(Any, specification))
        self._topic = settings.topic
        self._sending = settings.sending
        self._headers = settings.headers

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        message: SendableMessage,
        /,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        sharding_key: str | None = None,
        delay: Delay | None = None,
        deliver_at: DeliverAt | None = None,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
    ) -> Receipt:
        """As `AerobeeBroker.publish`; what is not given is as the publisher was declared."""
        given = Sending(
            tag=tag, keys=keys, sharding_key=sharding_key, delay=delay, deliver_at=deliver_at
        )
        command = AerobeePublishCommand(
            message,
            topic=self.topic,
            sending=given.over(self._sending),
            headers={**self._headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to,
        )
        receipt = await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return cast(Receipt, receipt)

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        """FastStream calls this with what a handler returned."""
        command = AerobeePublishCommand.from_cmd(cmd)
        command.destination = self.topic
        command.add_headers(dict(self._headers), override=False)
        command.sending = command.sending.over(self._sending)
        await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
        )

    async def request(self, *args: Any, **kwargs: Any) -> Any:
        raise FeatureNotSupportedException(NO_REQUESTS)


class Replying(FakePublisher):
    """Sends a handler's result to the topic that its message named."""

    def __init__(self, producer: ProducerProto[Any], topic: str) -> None:
        super().__init__(producer=producer)
        self._topic = topic

    def patch_command(self, cmd: PublishCommand) -> AerobeePublishCommand:
        command = AerobeePublishCommand.from_cmd(super().patch_command(cmd))
        command.destination = self._topic
        return command
