"""What can never work is refused where it is written, with a sentence."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from aerobee.client_core import Message
from aerobee.consumer_client import (
    ConsumerConfig,
    ConsumeResult,
    FlowLimits,
    Ordering,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RetryPolicy,
    StartFrom,
)
from aerobee.consumer_client.beginnings import StartPolicy
from aerobee.runtime.errors import (
    AerobeeError,
    FilterIllegal,
    IllegalName,
    InvalidArgument,
    MessageIllegal,
)


def nothing(messages: object) -> None:
    return None


def generator(messages: object) -> Iterator[None]:
    yield


async def asynchronous_generator(messages: object) -> AsyncIterator[None]:
    yield


def push(listener: Any = nothing, **settings: Any) -> PushConsumer:
    return PushConsumer(
        settings.pop("group", "g"),
        listener,
        run_in_thread=False,
        nameservers="127.0.0.1:1",
        **settings,
    )


@pytest.mark.parametrize(
    ("listener", "sentence"),
    [
        (
            None,
            "the listener is NoneType, not a function; it is called with a sequence of messages",
        ),
        ("handle", "the listener is str, not a function"),
        (lambda: None, "cannot take the arguments that it is given"),
        (lambda messages, context: None, "cannot take the arguments that it is given"),
        (generator, "is a generator, whose body would never run"),
        (asynchronous_generator, "is a generator, whose body would never run"),
    ],
)
def test_a_listener_that_cannot_be_called_is_refused(listener: Any, sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        push(listener)


def one_message(message: ReceivedMessage) -> None:
    raise NotImplementedError


def one_or_none(message: ReceivedMessage | None, times: int = 1) -> None:
    raise NotImplementedError


def says_whether(messages: Sequence[ReceivedMessage]) -> bool:
    raise NotImplementedError


async def says_which(messages: Sequence[ReceivedMessage]) -> list[str] | int:
    raise NotImplementedError


class AnotherResult(Enum):
    SUCCESS = 1


def says_otherwise(messages: Sequence[ReceivedMessage]) -> AnotherResult:
    raise NotImplementedError


class OneMessage:
    def __call__(self, message: ReceivedMessage) -> None: ...


@pytest.mark.parametrize(
    ("listener", "sentence"),
    [
        (one_message, "takes ReceivedMessage, and is called with a sequence of messages"),
        (functools.partial(one_or_none, times=2), "write `message: Sequence"),
        (OneMessage(), "takes ReceivedMessage"),
        (OneMessage().__call__, "takes ReceivedMessage"),
        (says_whether, "returns bool, which says nothing about its messages: return None or"),
        (says_which, "returns list"),
        (says_otherwise, "returns AnotherResult"),
    ],
)
def test_a_listener_whose_annotations_are_not_those_of_one_is_refused(
    listener: Any, sentence: str
) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        push(listener)


def one_by_one(handle: Callable[[ReceivedMessage], bool]) -> Callable[..., ConsumeResult]:
    @functools.wraps(handle)
    def wrapper(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        done = all(handle(message) for message in messages)
        return ConsumeResult.SUCCESS if done else ConsumeResult.RETRY_LATER

    return wrapper


def with_connection(handle: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(handle)
    def wrapper(messages: Sequence[ReceivedMessage]) -> None:
        handle(messages, "connection")

    return wrapper


@one_by_one
def wrapped(message: ReceivedMessage) -> bool:
    raise NotImplementedError


@with_connection
def with_another(messages: Sequence[ReceivedMessage], connection: str) -> None:
    raise NotImplementedError


def with_text(messages: Sequence[ReceivedMessage]) -> str | None:  # ConsumeResult is text.
    raise NotImplementedError


def with_unknown(messages: NotImportedHere) -> bool:  # type: ignore[name-defined]  # noqa: F821
    raise NotImplementedError


def with_any(*messages: Any) -> Any: ...


async def with_result(messages: list[ReceivedMessage]) -> ConsumeResult | None:
    raise NotImplementedError


def with_awaitable(messages: tuple[ReceivedMessage, ...]) -> Awaitable[bool]:
    raise NotImplementedError


class Listening:
    def __call__(self, messages: object) -> None:
        return None

    async def handle(self, messages: object, *, times: int = 1) -> None:
        return None


@pytest.mark.parametrize(
    "listener",
    [
        Listening(),
        Listening().handle,
        functools.partial(Listening.handle, Listening()),
        print,
        list,
        wrapped,
        functools.partial(with_another),
        with_text,
        with_unknown,
        with_any,
        with_result,
        with_awaitable,
    ],
)
def test_whatever_takes_the_messages_is_a_listener(listener: Any) -> None:
    push(listener)


WRONG: list[tuple[type[AerobeeError], str, Callable[[], object]]] = [
    (InvalidArgument, "on_exhausted", lambda: push(on_exhausted="skip")),
    (InvalidArgument, "on_exhausted", lambda: push(on_exhausted=lambda messages: None)),
    (InvalidArgument, "ordering must be one of", lambda: push(ordering="sorted")),
    (InvalidArgument, "max_concurrency must be a whole number", lambda: push(max_concurrency="8")),
    (InvalidArgument, "consume_batch_max must be at least 1", lambda: push(consume_batch_max=0)),
    (InvalidArgument, "start_from must be one of", lambda: push(start_from="yesterday")),
    (
        InvalidArgument,
        "start_timestamp_ms",
        lambda: push(start_from="timestamp", start_timestamp_ms="now"),
    ),
    (IllegalName, "the group must be text, not NoneType", lambda: push(group=None)),
    (IllegalName, "the client id must be text", lambda: push(client_id=7)),
    (IllegalName, "the topic must be text, not int", lambda: push().subscribe(7)),  # type: ignore[arg-type]
    (IllegalName, "topic", lambda: push().subscribe("a b")),
    (IllegalName, "topic", lambda: PullConsumer("g", nameservers="127.0.0.1:1").subscribe("")),
    (FilterIllegal, "is text, not NoneType", lambda: push().subscribe("t", None)),  # type: ignore[arg-type]
    (InvalidArgument, "session_timeout_ms", lambda: ConsumerConfig(session_timeout_ms="1")),  # type: ignore[arg-type]
    (InvalidArgument, "await_cluster_ms", lambda: ConsumerConfig(await_cluster_ms=-1)),
    (InvalidArgument, "span_max", lambda: FlowLimits(span_max=None)),  # type: ignore[arg-type]
    (InvalidArgument, "attempts_max", lambda: RetryPolicy(attempts_max=2.5)),  # type: ignore[arg-type]
    (InvalidArgument, "delays_ms", lambda: RetryPolicy(delays_ms=())),
    (InvalidArgument, "delays_ms", lambda: RetryPolicy(delays_ms=("1s",))),  # type: ignore[arg-type]
    (IllegalName, "the topic must be text, not NoneType", lambda: Message(None, b"x")),  # type: ignore[arg-type]
    (IllegalName, "a b", lambda: Message("a b", b"x")),
    (IllegalName, "characters", lambda: Message("a" * 128, b"x")),
    (IllegalName, "empty", lambda: Message("", b"x")),
    (IllegalName, "topic", lambda: Message("größe", b"x")),
    (MessageIllegal, "the body is str, not bytes", lambda: Message("t", "x")),  # type: ignore[arg-type]
    (MessageIllegal, "must be text, not int '1'", lambda: Message("t", b"x", properties={"a": 1})),  # type: ignore[dict-item]
    (MessageIllegal, "must be text, not int '1'", lambda: Message("t", b"x", properties={1: "a"})),  # type: ignore[dict-item]
    (MessageIllegal, "must be a mapping", lambda: Message("t", b"x", properties=["a"])),  # type: ignore[arg-type]
    (MessageIllegal, "the tag must be text", lambda: Message("t", b"x", tag=5)),  # type: ignore[arg-type]
    (MessageIllegal, "a key must be text", lambda: Message("t", b"x", keys=[5])),  # type: ignore[list-item]
    (MessageIllegal, "the keys must be words", lambda: Message("t", b"x", keys=5)),  # type: ignore[arg-type]
    (MessageIllegal, "the sharding key must be text", lambda: Message("t", b"x", sharding_key=5)),  # type: ignore[arg-type]
    (MessageIllegal, "flag", lambda: Message("t", b"x", flag="1")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("error", "sentence", "make"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_value_is_a_typed_error_with_a_sentence(
    error: type[AerobeeError], sentence: str, make: Callable[[], object]
) -> None:
    with pytest.raises(error, match=sentence):
        make()


@pytest.mark.parametrize("topic", ["orders", "order-steps", "7up", "a|b", "_", "A-1_b"])
def test_legal_topics_are_taken(topic: str) -> None:
    assert Message(topic, b"x").topic == topic


def test_names_of_choices_work_as_texts(tmp_path: Path) -> None:
    """`ordering="orderly"` was equal to the choice, and taken for the other one."""
    consumer = push(ordering="orderly", offsets_folder=str(tmp_path))
    assert consumer._pool._is_orderly
    assert StartPolicy("first").start_from is StartFrom.FIRST  # type: ignore[arg-type]
    assert Ordering("orderly") is Ordering.ORDERLY
