"""What clients report about their work to an observer: the hook for traces and client metrics.

A client without a `Telemetry` pays nothing: each call compares one attribute with None, and a
listener is called directly. `aerobee.otel` is the implementation for OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self, TypeVar

from aerobee.client_core.message import (
    PROPERTIES_BYTES_MAX,
    UNIQUE_KEY_PROPERTY_BYTES_MAX,
    Message,
    ReceivedMessage,
)
from aerobee.client_core.schedule import SCHEDULE_BYTES_MAX
from aerobee.cluster_view.route import MessageQueue

CHECK_AFTER_BYTES_MAX = 64
"""What a transaction adds to its message."""
ADDED_END_MAX = (
    PROPERTIES_BYTES_MAX
    - UNIQUE_KEY_PROPERTY_BYTES_MAX
    - SCHEDULE_BYTES_MAX
    - CHECK_AFTER_BYTES_MAX
)

L = TypeVar("L", bound=Callable[..., Any])


class TracedMessage(Message):
    """A copy of a user's message with further properties; the original is unchanged."""

    __slots__ = ()

    @classmethod
    def of(cls, message: Message, added: Mapping[str, str], encoded: bytes) -> Self:
        """`encoded`: the added properties in stored form. If there is no room for them, the copy
        goes without: a trace must never be the reason why a message cannot be sent."""
        copy = cls.__new__(cls)
        for name in Message.__slots__:
            setattr(copy, name, getattr(message, name))
        if len(encoded) + len(message.encoded_properties) <= ADDED_END_MAX:
            copy.properties = {**message.properties, **added}
            copy.encoded_properties = encoded + message.encoded_properties
        return copy


class Stored(Protocol):
    """What is reported about a stored message: a receipt."""

    @property
    def message_id(self) -> str: ...

    @property
    def queue(self) -> MessageQueue: ...


class Sending(Protocol):
    """A running send call."""

    @property
    def messages(self) -> Sequence[TracedMessage]:
        """To be sent instead of the user's."""

    def on_stored(self, receipts: Sequence[Stored]) -> None: ...


class Polling(Protocol):
    """A running call of `poll`."""

    def on_received(self, messages: Iterable[ReceivedMessage], count: int) -> None:
        """It returns this many messages, some of which may be inspected."""


def outcomes(messages: Sequence[ReceivedMessage], outcome: object) -> list[object]:
    """What a call of a listener said about each of its messages: the message's own answer in a
    batch, otherwise the outcome of the call. None: it is done. This package knows nothing of
    batches, but they say what was answered."""
    answers: Mapping[int, object] = getattr(messages, "answers", {})
    return [answers.get(index, outcome) for index in range(len(messages))]


class Telemetry(Protocol):
    """One may serve any number of clients. It never raises, except what the user's code raises."""

    def sending(
        self, messages: Sequence[Message], *, operation: str = "send"
    ) -> AbstractContextManager[Sending]:
        """Around a call that sends: `send`, or `begin` of a transaction."""

    def ending(
        self, operation: str, message: Message, receipt: Stored
    ) -> AbstractContextManager[object]:
        """Around a `commit` or `rollback` of a transaction."""

    def listening(self, listener: L, *, group: str) -> L:
        """A listener that calls this one."""

    def processing(
        self, messages: ReceivedMessage, *, group: str
    ) -> AbstractContextManager[object]:
        """Around the handling of a polled message."""

    def polling(self, *, group: str) -> Polling:
        """A consumer starts waiting for messages."""

    def on_sent_back(
        self, messages: Sequence[ReceivedMessage], *, group: str, took_s: float, dead_letter: bool
    ) -> None:
        """The broker has messages whose handling failed: they will be redelivered, or are dead
        letters."""
