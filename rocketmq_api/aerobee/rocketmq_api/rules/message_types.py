"""Types of messages, and which of them a topic accepts.

A message's type follows from its properties, the same when it is sent and when it is delivered; the
type that the client names matters only for transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from aerobee.domain.topic_attributes import topic_type
from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.store.format.properties import PropertyName

_N: Final = PropertyName
_DELAY_NAMES: Final = frozenset(
    (_N.DELAY, _N.TIMER_DELIVER_MS, _N.TIMER_DELAY_SEC, _N.TIMER_DELAY_MS)
)

TYPE_NAMES: Final = frozenset(
    (*_DELAY_NAMES, _N.TRAN_MSG, _N.SHARDING_KEY, _N.PRIORITY, _N.LITE_TOPIC)
)
"""A message without any of these properties is NORMAL."""


class MessageType(Enum):
    """By the names that Apache's clients show."""

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    PRIORITY = "PRIORITY"
    LITE = "LITE"
    UNSPECIFIED = "MESSAGE_TYPE_UNSPECIFIED"
    """No message is of this type; a topic that accepts only this one takes no message."""


# Python 3.11 takes 0.2 us to look up a member.
_NORMAL: Final = MessageType.NORMAL
_FIFO: Final = MessageType.FIFO
_DELAY: Final = MessageType.DELAY
_TRANSACTION: Final = MessageType.TRANSACTION
_PRIORITY: Final = MessageType.PRIORITY
_LITE: Final = MessageType.LITE

_ACCEPTED: Final[dict[str, tuple[MessageType, ...]]] = {
    "NORMAL": (_NORMAL,),
    "FIFO": (_FIFO,),
    "DELAY": (_DELAY,),
    "TRANSACTION": (_TRANSACTION,),
    "PRIORITY": (_PRIORITY,),
    "LITE": (_LITE,),
    "MIXED": (_NORMAL, _FIFO, _DELAY, _TRANSACTION),
}
_UNSPECIFIED: Final = (MessageType.UNSPECIFIED,)


def type_of(properties: Mapping[str, str]) -> MessageType:
    """The type of a message with these properties, as its sender made it.

    A copy that waited for redelivery has a time of its own, which says nothing about the message.
    """
    if properties.get(_N.TRAN_MSG) == "true":
        return _TRANSACTION
    if _N.RETRY_TOPIC not in properties and not _DELAY_NAMES.isdisjoint(properties):
        return _DELAY
    if _N.SHARDING_KEY in properties:
        return _FIFO
    if _N.PRIORITY in properties:
        return _PRIORITY
    if _N.LITE_TOPIC in properties:
        return _LITE
    return _NORMAL


def accepted_types(attributes: Mapping[str, str]) -> tuple[MessageType, ...]:
    """What a topic with these attributes accepts, as shown in routes.

    A topic of type UNSPECIFIED, or of a type unknown here, accepts nothing.
    """
    return _ACCEPTED.get(topic_type(attributes), _UNSPECIFIED)


def check_accepted(
    message_type: MessageType, accepted: tuple[MessageType, ...], topic: str
) -> None:
    """Raises Refused with TYPE_CONFLICT for a type that a topic does not accept."""
    if message_type not in accepted:
        takes = ", ".join(each.value for each in accepted)
        raise Refused(
            Reason.TYPE_CONFLICT,
            f"the message is {message_type.value}, but topic {topic} takes only {takes}: send it "
            "to another topic, or change the topic's attribute message.type",
        )
