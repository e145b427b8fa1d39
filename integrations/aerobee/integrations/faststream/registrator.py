"""Where handlers and publishers are declared: brokers and routers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from fast_depends.dependencies import Dependant
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import BrokerRouter
from faststream._internal.constants import EMPTY
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.middlewares import AckPolicy

from aerobee.client_core.schedule import Delay
from aerobee.consumer_client.filters import ALL_TAGS, Expression
from aerobee.consumer_client.listener import OrderBy, Ordering
from aerobee.consumer_client.options import StartFrom
from aerobee.domain.names import check_group_name
from aerobee.integrations.faststream.config import AerobeeBrokerConfig
from aerobee.integrations.faststream.message import Delivery
from aerobee.integrations.faststream.publishing import (
    AerobeePublisher,
    AerobeePublisherSpecification,
    PublisherSettings,
    PublisherSpecificationSettings,
    Sending,
)
from aerobee.integrations.faststream.subscribing import (
    AerobeeSubscriber,
    SubscriberSettings,
    subscriber_of,
)


class AerobeeRegistrator(Registrator[Delivery, AerobeeBrokerConfig]):
    """What brokers and routers have in common."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        group: str,
        expression: Expression = ALL_TAGS,
        ordering: Ordering = Ordering.CONCURRENT,
        order_by: OrderBy | None = None,
        max_workers: int = 20,
        start_from: StartFrom = StartFrom.LAST,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> AerobeeSubscriber:
        """A member of a consumer group for the handlers that it decorates.

        Args:
            topic: after the prefixes of routers.
            group: members of one group share the messages; each group gets all.
            expression: which messages: all, those with one of the tags `a || b`, or
                `sql("price > 5")`.
            ordering, order_by, start_from: as for `PushConsumer`.
            max_workers: messages that are handled at the same time.
            ack_policy: what happens when a handler fails; by default the message comes again as
                the group is configured.

        The others are those of FastStream's brokers. Raises IllegalName: no group can have this
        name.
        """
        check_group_name(group)
        subscriber = subscriber_of(
            SubscriberSettings(
                topic=topic,
                group=group,
                expression=expression,
                ordering=ordering,
                order_by=order_by,
                max_workers=max_workers,
                start_from=start_from,
                no_reply=no_reply,
                _outer_config=cast(AerobeeBrokerConfig, self.config),
                _ack_policy=ack_policy,
            ),
            title=title,
            description=description,
            include_in_schema=include_in_schema,
        )
        super().subscriber(subscriber, persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        sharding_key: str | None = None,
        delay: Delay | None = None,
        headers: Mapping[str, str] | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> AerobeePublisher:
        """Sends what the handlers that it decorates return, or what its `publish` is given.

        `topic` comes after the prefixes of routers; `tag`, `keys`, `sharding_key` and `delay` are
        those of `aerobee.Message`, and the others those of FastStream's brokers.
        """
        outer = cast(AerobeeBrokerConfig, self.config)
        publisher = AerobeePublisher(
            PublisherSettings(
                topic=topic,
                sending=Sending(tag=tag, keys=keys, sharding_key=sharding_key, delay=delay),
                headers=headers or {},
                _outer_config=outer,
            ),
            AerobeePublisherSpecification(
                outer,
                PublisherSpecificationSettings(
                    topic=topic,
                    schema_=schema,
                    title_=title,
                    description_=description,
                    include_in_schema=include_in_schema,
                ),
            ),
        )
        super().publisher(publisher, persistent)
        return publisher


class AerobeeRouter(AerobeeRegistrator, BrokerRouter[Delivery, AerobeeBrokerConfig]):
    """Handlers and publishers of a part of an application, to be included in a broker."""

    def __init__(
        self,
        prefix: str = "",
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[Registrator[Any, Any]] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        """`prefix`: before the name of each topic. The others are those of FastStream's routers."""
        super().__init__(
            handlers=(),
            config=AerobeeBrokerConfig(
                prefix=prefix,
                ack_policy=ack_policy,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                include_in_schema=include_in_schema,
            ),
            routers=routers,
        )
