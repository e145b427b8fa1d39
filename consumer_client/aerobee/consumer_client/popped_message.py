"""A message that a broker has handed out by POP, and its newest handle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from aerobee.client_core.message import ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.received_batch import decode_entries
from aerobee.runtime.errors import MessageIllegal
from aerobee.v1 import broker_pb2


class Source(NamedTuple):
    """Where a message was received: calls about it go there."""

    topic: str
    """As subscribed; a message that is redelivered may be in the group's retry topic."""
    broker_name: str


class PoppedMessage(ReceivedMessage):
    """A message of a `SimpleConsumer`: it comes again unless it is acknowledged in time."""

    __slots__ = (
        "attempts_max",
        "changing",
        "handle",
        "invisible_ms",
        "is_settled",
        "since_s",
        "source",
    )

    source: Source
    handle: broker_pb2.Popped
    changing: asyncio.Lock | None
    """While it is renewed by itself: its handle is only used under this."""
    is_settled: bool
    """It was acknowledged, given back or rejected, or its time is over."""
    attempts_max: int
    """How often the group is given it at most; 0: its broker is older and does not say."""
    invisible_ms: int
    """For how long, as it was last asked for."""
    since_s: float
    """When that was asked for, by the loop's clock: the broker counts from then on, or later."""

    @property
    def renew_s(self) -> float:
        """When a third of its time is over, by the loop's clock: what goes wrong then may go wrong
        once more before it comes again."""
        return self.since_s + self.invisible_ms / 3_000

    @property
    def end_s(self) -> float:
        """Until when no other member gets it, by the loop's clock."""
        return self.since_s + self.invisible_ms / 1_000

    @property
    def reconsume_times(self) -> int:
        """How often the group was given this message before: 0 at first."""
        return self.handle.attempt - 1

    @property
    def visible_timestamp_ms(self) -> int:
        """When it comes again unless something is done before, Unix ms."""
        return self.handle.visible_ms


def decode_popped(
    source: Source, answer: broker_pb2.PopResponse, *, invisible_ms: int, since_s: float
) -> list[PoppedMessage]:
    """Raises MessageIllegal: the broker's answer is not what it should be."""
    queue = MessageQueue(source.topic, source.broker_name, 0)
    entries = decode_entries(answer.records, queue, None)
    if len(entries) != len(answer.messages):
        raise MessageIllegal(f"broker {source.broker_name} sent other messages than it says")
    messages: list[PoppedMessage] = []
    for (_, _, plain), handle in zip(entries, answer.messages, strict=True):
        message = PoppedMessage.at(plain._records, plain._start, queue)
        if handle.topic or handle.queue_id:
            topic = handle.topic or source.topic
            message.queue = MessageQueue(topic, source.broker_name, handle.queue_id)
        message.source, message.handle = source, handle
        message.attempts_max = answer.attempts_max
        message.changing, message.is_settled = None, False
        message.invisible_ms, message.since_s = invisible_ms, since_s
        messages.append(message)
    return messages


def by_source(
    messages: Sequence[PoppedMessage],
) -> Iterator[tuple[Source, list[PoppedMessage]]]:
    """Usually all are of one source, or in runs of it."""
    for source, some in groupby(messages, lambda message: message.source):
        yield source, list(some)
