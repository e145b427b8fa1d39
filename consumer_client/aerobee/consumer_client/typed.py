"""Messages of a type: a topic whose bodies are values of one Python type.

Owns: what becomes of a body that the type refuses: its message is rejected, because trying it again
would not help.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar, cast

from aerobee.client_core.codecs import Codec, codec_of
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.client_core.schedule import Delay, DeliverAt
from aerobee.consumer_client.answers import Answer, Batch, Reject
from aerobee.consumer_client.listener import ConsumeResult, Listener, Result
from aerobee.consumer_client.listener_shape import illegal_result
from aerobee.domain.names import check_topic_name

T = TypeVar("T")

CONTENT_TYPE: Final = "content-type"
"""The property that says what a body is."""
REASON_LENGTH_MAX: Final = 300


class BodyRefused(Reject):
    """The body is not one of the topic's type. A listener that lets it pass rejects the message: it
    becomes a dead letter, with this reason."""

    _adds_place = False  # the reason is the codec's, and the place would be one of ours


Handler = Callable[[T, ReceivedMessage], Result | Awaitable[Result]]
"""Called with the value and its message. What it returns or raises means the same as for a
listener."""


class TypedTopic(Generic[T]):
    """A topic whose bodies are values of one type.

    Args:
        name: of the topic.
        kind: a protobuf message, a struct of msgspec, a model of pydantic, a dataclass, `str`,
            `bytes`, or any type that msgspec or pydantic knows.
        codec: how values are written, instead of what follows from the type.

    Raises:
        IllegalName: no topic can have this name.
        InvalidArgument: the type needs msgspec or pydantic, and neither is installed.

    For example::

        orders = TypedTopic("orders", Order)
        await producer.send(orders.message(Order(7, "wax"), keys=["order-7"]))
        # Called as handle(order, message), also an `async` function.
        consumer = PushConsumer("billing", orders.listener(handle)).subscribe(orders.name)
    """

    def __init__(self, name: str, kind: type[T], *, codec: Codec[T] | None = None) -> None:
        check_topic_name(name)
        self.name = name
        self.kind = kind
        self._codec = codec or codec_of(kind)
        content_type = self._codec.content_type
        self._properties = {CONTENT_TYPE: content_type} if content_type else {}
        self._base = _base(content_type)

    def __repr__(self) -> str:
        return f"TypedTopic({self.name!r}, {getattr(self.kind, '__name__', self.kind)})"

    def message(
        self,
        value: T,
        *,
        tag: str | None = None,
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay: Delay | None = None,
        deliver_at: DeliverAt | None = None,
        delay_level: int | None = None,
    ) -> Message:
        """A message with this value; the other arguments are those of `Message`.

        Raises: as `Message`; MessageIllegal: the value is not one of the type, or its body would be
        empty, as that of a protobuf message without values is.
        """
        return Message(
            self.name,
            self._codec.encode(value),
            tag=tag,
            keys=keys,
            properties=self._properties | dict(properties or {}),
            sharding_key=sharding_key,
            delay=delay,
            deliver_at=deliver_at,
            delay_level=delay_level,
        )

    def read(self, message: ReceivedMessage) -> T:
        """The value of a message. Raises BodyRefused: its body is none, or its property
        `content-type` says that it is something else; also CorruptBody."""
        said = message.properties.get(CONTENT_TYPE)
        if said is not None and self._base and _base(said) != self._base:
            raise BodyRefused(f"the body is {said}, and topic {self.name} has {self._base}")
        try:
            return self._codec.decode(message.body)
        except ValueError as error:
            reason = " ".join(str(error).split())[:REASON_LENGTH_MAX]
            kind = getattr(self.kind, "__name__", self.kind)
            raise BodyRefused(f"the body is no {kind}: {reason}") from error

    def listener(self, handle: Handler[T]) -> Listener:
        """A listener for consumers that calls `handle` for each message. A message whose body is
        refused is rejected, without a call. In a batch, the messages after one that is to come
        again come again with it, so that their order is kept."""
        if not _is_async(handle):
            return self._blocking_listener(handle)

        async def listen(batch: Batch) -> Result:
            for index, message in enumerate(batch):
                outcome: Result | Exception
                try:
                    outcome = await cast(Awaitable[Result], handle(self.read(message), message))
                except Exception as error:
                    outcome = error
                if not _note(batch, index, outcome):
                    break
            return None

        return listen

    def _blocking_listener(self, handle: Handler[T]) -> Listener:
        def listen(batch: Batch) -> Result:
            for index, message in enumerate(batch):
                outcome: Result | Exception
                try:
                    outcome = cast(Result, handle(self.read(message), message))
                except Exception as error:
                    outcome = error
                if not _note(batch, index, outcome):
                    break
            return None

        return listen

    def schema(self) -> str:
        """The type as JSON, for the topic's schema: a JSON Schema, or for protobuf its fields by
        number. Empty: it has none."""
        return self._codec.schema()


def _note(batch: Batch, index: int, outcome: Result | Exception) -> bool:
    """Whether the messages after this one may be handled."""
    if outcome is None or outcome is ConsumeResult.SUCCESS:
        return True
    if outcome is ConsumeResult.RETRY_LATER:
        for each in range(index, len(batch)):
            batch.retry_later(each)
        return False
    if not isinstance(outcome, Exception):
        raise illegal_result(outcome)
    if isinstance(outcome, Reject):
        batch.answer(index, outcome)
        return True
    if len(batch) == 1 and not isinstance(outcome, Answer):
        raise outcome  # the log shows where
    for each in range(index, len(batch)):
        batch.answer(each, outcome)
    return False


def _is_async(handle: Handler[T]) -> bool:
    call = handle if inspect.isroutine(handle) else getattr(handle, "__call__", handle)  # noqa: B004
    return inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(call)


def _base(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
