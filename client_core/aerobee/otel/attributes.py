"""Names and values in spans and metrics: OpenTelemetry's conventions for messaging, including
RocketMQ's.

The names are from the conventions 1.27 and later. Names that these lack start with `aerobee.`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from opentelemetry.util.types import AttributeValue

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.store.format.record import RecordCorrupt

Attributes = dict[str, AttributeValue]

SYSTEM: Final = "messaging.system"
ROCKETMQ: Final = "rocketmq"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_TYPE: Final = "messaging.rocketmq.message.type"
MESSAGE_TAG: Final = "messaging.rocketmq.message.tag"
MESSAGE_KEYS: Final = "messaging.rocketmq.message.keys"
MESSAGE_GROUP: Final = "messaging.rocketmq.message.group"
ERROR_TYPE: Final = "error.type"
ATTEMPT: Final = "aerobee.message.delivery_attempt"
QUEUE_OFFSET: Final = "aerobee.message.queue_offset"

TYPES: Final = {
    "send": "send",
    "begin": "send",
    "receive": "receive",
    "process": "process",
    "retry": "settle",
    "dead_letter": "settle",
}
"""Types of operations by name; the conventions have no type for the ends of transactions."""


def common(operation: str, destination: str | None, group: str | None = None) -> Attributes:
    """Attributes that metrics have too: few distinct values."""
    found: Attributes = {SYSTEM: ROCKETMQ, OPERATION: operation}
    if operation in TYPES:
        found[OPERATION_TYPE] = TYPES[operation]
    if destination is not None:
        found[DESTINATION] = destination
    if group is not None:
        found[GROUP] = group
    return found


def destination_of(messages: Iterable[Message | ReceivedMessage]) -> str | None:
    """The topic of all these messages; None: they have several. A redelivered message counts for
    the topic to which it was sent."""
    topics = {_topic_of(message) for message in messages}
    return topics.pop() if len(topics) == 1 else None


def _topic_of(message: Message | ReceivedMessage) -> str:
    if isinstance(message, Message):
        return message.topic
    try:
        return message.origin_topic
    except RecordCorrupt:
        return message.topic


def partition(queue: MessageQueue) -> str:
    """Identifies a queue within its topic: each broker counts its own from 0."""
    return f"{queue.broker_name}:{queue.queue_id}"


def of_sent(messages: Sequence[Message], operation: str) -> Attributes:
    """Attributes of the messages of one call."""
    if len(messages) != 1:
        return {BATCH_COUNT: len(messages)}
    message = messages[0]
    found: Attributes = {
        BODY_SIZE: len(message.body),
        MESSAGE_TYPE: _type_of(message, operation),
    }
    if message.tag is not None:
        found[MESSAGE_TAG] = message.tag
    if message.keys:
        found[MESSAGE_KEYS] = message.keys
    if message.sharding_key is not None:
        found[MESSAGE_GROUP] = message.sharding_key
    return found


def _type_of(message: Message, operation: str) -> str:
    if operation == "begin":
        return "transaction"
    if message.schedule is not None:
        return "delay"
    return "normal" if message.sharding_key is None else "fifo"


def of_received(
    messages: Sequence[ReceivedMessage], *, is_batch: bool, is_counted: bool = False
) -> Attributes:
    """Attributes of messages that the application gets together; a damaged one has none.

    Args:
        is_counted: they failed, and their `reconsume_times` has the attempt that did.
    """
    first = messages[0]
    found: Attributes = {}
    if len({message.queue for message in messages}) == 1:
        found[PARTITION] = partition(first.queue)
    if is_batch:
        found[BATCH_COUNT] = len(messages)
        return found
    try:
        found[MESSAGE_ID] = first.message_id
        found[ATTEMPT] = first.reconsume_times + (0 if is_counted else 1)
        found[QUEUE_OFFSET] = first.queue_offset
        if first.tag is not None:
            found[MESSAGE_TAG] = first.tag
        if first.keys:
            found[MESSAGE_KEYS] = first.keys
    except RecordCorrupt:
        pass
    return found
