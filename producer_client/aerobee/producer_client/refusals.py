"""Refusals: what is never sent, and what a refusal of a whole stream applies to, since access
control ends a stream and not a batch."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.client_core.message import Message
from aerobee.producer_client.accumulator import RECORD_OVERHEAD_BYTES, Batch
from aerobee.producer_client.config import ProducerConfig
from aerobee.runtime import errors


def denied(batches: Sequence[Batch], error: errors.AerobeeError) -> list[Batch]:
    """Those of the topic that a refusal names, or all if it names none of their topics; none if the
    error is not a refusal.

    >>> denied((), errors.AccessDenied("user shop may not", resource="Topic:a"))
    []
    """
    if not isinstance(error, errors.AccessDenied | errors.Unauthenticated):
        return []
    named = error.resource if isinstance(error, errors.AccessDenied) else ""
    of_topic = [batch for batch in batches if named == f"Topic:{batch.queue.topic}"]
    return of_topic or list(batches)


def checked_size(message: Message, config: ProducerConfig, now_ms: int) -> int:
    """The message's bytes as the buffer counts them.

    Raises:
        MessageTooLarge, MessageIllegal: it cannot be sent.
    """
    if not isinstance(message, Message):
        raise TypeError(f"send takes a Message(topic, body), not {type(message).__name__}")
    if message.schedule is not None:
        message.schedule.check(now_ms)
    body_size = len(message.body)
    if body_size > config.message_body_bytes_max:
        raise _too_large(body_size, config)
    return body_size + len(message.encoded_properties) + RECORD_OVERHEAD_BYTES


def check_all(messages: Sequence[Message], config: ProducerConfig, now_ms: int) -> None:
    """Raises MessageTooLarge, MessageIllegal, unless all can be sent."""
    largest = max(len(message.body) for message in messages)
    if largest > config.message_body_bytes_max:
        raise _too_large(largest, config)
    for message in messages:
        if message.schedule is not None:
            message.schedule.check(now_ms)


def _too_large(size: int, config: ProducerConfig) -> errors.MessageTooLarge:
    return errors.MessageTooLarge(
        f"the body has {size} bytes; at most {config.message_body_bytes_max} are allowed: split "
        "it, or store it elsewhere and send a reference to it"
    )
