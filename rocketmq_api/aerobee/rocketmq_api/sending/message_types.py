"""Types of messages, and which of them a topic accepts.

A message's type follows from its properties, the same when it is sent and when it is delivered; the
type that the client names matters only for transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aerobee.domain.topic_attributes import topic_type
from aerobee.rocketmq_api.codes import Refused
from aerobee.store.format.properties import PropertyName
from apache.rocketmq.v2 import definition_pb2 as v2

_N: Final = PropertyName
_DELAY_NAMES: Final = (_N.DELAY, _N.TIMER_DELIVER_MS, _N.TIMER_DELAY_SEC, _N.TIMER_DELAY_MS)

TYPE_NAMES: Final = frozenset(
    (*_DELAY_NAMES, _N.TRAN_MSG, _N.SHARDING_KEY, _N.PRIORITY, _N.LITE_TOPIC)
)
"""A message without any of these properties is NORMAL."""

_MIXED: Final = (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION)
_ACCEPTED: Final[dict[str, tuple[v2.MessageType, ...]]] = {
    "NORMAL": (v2.NORMAL,),
    "FIFO": (v2.FIFO,),
    "DELAY": (v2.DELAY,),
    "TRANSACTION": (v2.TRANSACTION,),
    "PRIORITY": (v2.PRIORITY,),
    "LITE": (v2.LITE,),
    "MIXED": _MIXED,
}
_UNSPECIFIED: Final = (v2.MESSAGE_TYPE_UNSPECIFIED,)


def type_of(properties: Mapping[str, str]) -> v2.MessageType:
    """The type of a message with these properties, as its sender made it.

    A copy that waited for redelivery has a time of its own, which says nothing about the message.
    """
    if properties.get(_N.TRAN_MSG) == "true":
        return v2.TRANSACTION
    if _N.RETRY_TOPIC not in properties and any(name in properties for name in _DELAY_NAMES):
        return v2.DELAY
    if _N.SHARDING_KEY in properties:
        return v2.FIFO
    if _N.PRIORITY in properties:
        return v2.PRIORITY
    if _N.LITE_TOPIC in properties:
        return v2.LITE
    return v2.NORMAL


def accepted_types(attributes: Mapping[str, str]) -> tuple[v2.MessageType, ...]:
    """What a topic with these attributes accepts, as shown in routes.

    A topic of type UNSPECIFIED, or of a type unknown here, accepts nothing.
    """
    return _ACCEPTED.get(topic_type(attributes), _UNSPECIFIED)


def check_accepted(
    message_type: v2.MessageType, accepted: tuple[v2.MessageType, ...], topic: str
) -> None:
    """Raises Refused with MESSAGE_PROPERTY_CONFLICT_WITH_TYPE for a type that a topic does not
    accept."""
    if message_type not in accepted:
        takes = ", ".join(v2.MessageType.Name(each) for each in accepted)
        raise Refused(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the message is {v2.MessageType.Name(message_type)}, but topic {topic} takes only "
            f"{takes}: send it to another topic, or change the topic's attribute message.type",
        )
