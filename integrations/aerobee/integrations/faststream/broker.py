"""The broker that a FastStream application is made with."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

from fast_depends import Provider, dependency_provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import LoggerProto, SendableMessage
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import make_logger_state
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
from faststream.exceptions import FeatureNotSupportedException
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.specification.schema import BrokerSpec
from faststream.specification.schema.extra import Tag, TagDict

from aerobee.access.credentials import Credentials
from aerobee.client_core.defaults import nameservers_or_default
from aerobee.client_core.schedule import Delay, DeliverAt
from aerobee.client_core.telemetry import Telemetry
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.integrations.faststream.config import Access, AerobeeBrokerConfig, LoggerStorage
from aerobee.integrations.faststream.message import Answers, Delivery
from aerobee.integrations.faststream.publishing import (
    NO_REQUESTS,
    AerobeeProducer,
    AerobeePublishCommand,
    Sending,
)
from aerobee.integrations.faststream.registrator import AerobeeRegistrator
from aerobee.integrations.own_task import OwnTask
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.producer import Producer
from aerobee.producer_client.receipt import Receipt
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime.errors import AerobeeError

PING_S = 5.0


class AerobeeBroker(AerobeeRegistrator, BrokerUsecase[Delivery, Producer, AerobeeBrokerConfig]):
    """FastStream on an Aerobee cluster.

    Args:
        nameservers, cluster, tls, credentials, telemetry: as for `ClusterConnection`, for all
            clients that the broker makes.
        producer_config, consumer_config: settings of these clients.

    The others are those of FastStream's brokers.

    Example::

        broker = AerobeeBroker("127.0.0.1:8081")
        app = FastStream(broker)

        @broker.subscriber("orders", group="billing")
        @broker.publisher("invoices")
        async def bill(order: Order) -> Invoice: ...
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        *,
        tls: bool | TlsConfig | None = None,
        credentials: Credentials | None = None,
        telemetry: Telemetry | None = None,
        producer_config: ProducerConfig | None = None,
        consumer_config: ConsumerConfig | None = None,
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[Registrator[Any, Any]] = (),
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
    ) -> None:
        self._access = Access(
            nameservers=nameservers,
            cluster=cluster,
            tls=tls,
            credentials=credentials,
            telemetry=telemetry,
            producer=producer_config,
            consumers=consumer_config,
        )
        self._life: OwnTask | None = None
        super().__init__(
            routers=routers,
            config=AerobeeBrokerConfig(
                access=self._access,
                producer=AerobeeProducer(parser, decoder),
                broker_middlewares=(Answers, *middlewares),
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=make_logger_state(
                    logger=logger, log_level=log_level, default_storage_cls=LoggerStorage
                ),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
            ),
            specification=_specification(nameservers, specification_url, description, tags),
        )

    async def _connect(self) -> Producer:
        access = self._access
        producer = Producer(
            access.nameservers,
            access.cluster,
            config=access.producer,
            tls=access.tls,
            credentials=access.credentials,
            telemetry=access.telemetry,
        )
        self._life = OwnTask(producer, name="faststream:producer")
        await self._life.start()
        config = self.config.broker_config
        cast(AerobeeProducer, config.producer).connect(
            producer, config.fd_config._serializer, config.broker_codec
        )
        return producer

    async def start(self) -> None:
        """Connects, and has each subscriber join its group. Raises as `PushConsumer.start`."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Lets running handlers end, commits, and disconnects."""
        await super().stop(exc_type, exc_val, exc_tb)
        life, self._life = self._life, None
        cast(AerobeeProducer, self.config.broker_config.producer).disconnect()
        self._connection = None
        if life is not None:
            await life.close()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a nameserver answers; `timeout`: seconds."""
        if self._connection is None:
            return False
        try:
            await self._connection.ready(timeout=timeout or PING_S)
        except AerobeeError:
            return False
        return True

    async def publish(
        self,
        message: SendableMessage = None,
        topic: str = "",
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
        """Sends a message, and returns once it is stored.

        Args:
            message: what FastStream can encode; its content type is a property of the message.
            topic, tag, keys, sharding_key, delay, deliver_at: as for `aerobee.Message`.
            headers: properties of the message.
            correlation_id: by default a new one.
            reply_to: the topic to which the handler's result goes.

        Raises: as `aerobee.Message` and `Producer.send`.
        """
        command = AerobeePublishCommand(
            message,
            topic=topic,
            sending=Sending(
                tag=tag, keys=keys, sharding_key=sharding_key, delay=delay, deliver_at=deliver_at
            ),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
        )
        return cast(Receipt, await self._basic_publish(command, producer=self.config.producer))

    async def request(self, *args: Any, **kwargs: Any) -> Any:
        raise FeatureNotSupportedException(NO_REQUESTS)


def _specification(
    nameservers: str | Sequence[str] | None,
    url: str | None,
    description: str | None,
    tags: Iterable[Tag | TagDict],
) -> BrokerSpec:
    found = nameservers_or_default(nameservers)
    addresses = found if isinstance(found, str) else ",".join(found)
    return BrokerSpec(
        url=[url or f"aerobee://{addresses}"],
        protocol="aerobee",
        protocol_version=None,
        description=description,
        tags=tags,
        security=None,
    )
