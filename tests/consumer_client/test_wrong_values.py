"""What can never work is refused where it is written, with a sentence."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.client_core import Message
from aerobee.consumer_client import (
    ConsumerConfig,
    FlowLimits,
    Ordering,
    PullConsumer,
    PushConsumer,
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


@pytest.mark.parametrize("topic", ["orders", "order-steps", "7up", "%RETRY%g", "a|b", "_", "A-1_b"])
def test_legal_topics_are_taken(topic: str) -> None:
    assert Message(topic, b"x").topic == topic


def test_names_of_choices_work_as_texts(tmp_path: Path) -> None:
    """`ordering="orderly"` was equal to the choice, and taken for the other one."""
    consumer = push(ordering="orderly", offsets_folder=str(tmp_path))
    assert consumer._pool._is_orderly
    assert StartPolicy("first").start_from is StartFrom.FIRST  # type: ignore[arg-type]
    assert Ordering("orderly") is Ordering.ORDERLY
