"""What a message counts in a producer's buffer, and that its body is within the limit."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.client_core.message import Message
from aerobee.producer_client.accumulator import RECORD_OVERHEAD_BYTES
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock


def checked_size(message: Message, body_bytes_max: int, clock: Clock) -> int:
    """The message's bytes as the budget counts them. Raises MessageTooLarge, MessageIllegal."""
    if not isinstance(message, Message):
        raise TypeError(f"send takes a Message(topic, body), not {type(message).__name__}")
    if message.schedule is not None:
        message.schedule.check(clock.now_ms())
    body_size = len(message.body)
    if body_size > body_bytes_max:
        raise _too_large(message, body_bytes_max)
    return body_size + len(message.encoded_properties) + RECORD_OVERHEAD_BYTES


def check_bodies(messages: Sequence[Message], body_bytes_max: int) -> None:
    """Raises MessageTooLarge."""
    if max(len(message.body) for message in messages) > body_bytes_max:
        large = next(each for each in messages if len(each.body) > body_bytes_max)
        raise _too_large(large, body_bytes_max)


def _too_large(message: Message, body_bytes_max: int) -> errors.MessageTooLarge:
    return errors.MessageTooLarge(
        f"the body has {len(message.body)} bytes; at most {body_bytes_max} are allowed: split it, "
        "or store it elsewhere and send a reference to it"
    )
