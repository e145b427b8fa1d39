"""Queues as bodies name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aerobee.cluster_view.route import MessageQueue
from aerobee.rocketmq_remoting.json_bodies import read_object
from aerobee.runtime.errors import InvalidArgument

QUEUES_MAX: Final = 10_000
"""In one request."""


def queue_object(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


@dataclass(frozen=True, slots=True)
class QueuesOfMember:
    """Which queues a member wants to lock, or gives back."""

    client_id: str
    group: str
    queues: Sequence[MessageQueue]


def read_queues(body: bytes) -> QueuesOfMember:
    """Raises InvalidArgument."""
    found = read_object(body)
    client_id, group = found.get("clientId"), found.get("consumerGroup")
    queues = found.get("mqSet") or []
    if not (isinstance(client_id, str) and isinstance(group, str) and isinstance(queues, list)):
        raise InvalidArgument("the body names no client, group and queues")
    if len(queues) > QUEUES_MAX:
        raise InvalidArgument(
            f"{len(queues)} queues in one request; at most {QUEUES_MAX} are taken"
        )
    return QueuesOfMember(client_id, group, [_queue(each) for each in queues])


def _queue(found: Any) -> MessageQueue:
    if isinstance(found, Mapping):
        topic, name, queue_id = found.get("topic"), found.get("brokerName"), found.get("queueId")
        if isinstance(topic, str) and isinstance(name, str) and type(queue_id) is int:
            return MessageQueue(topic, name, queue_id)
    raise InvalidArgument("a queue of the body lacks its topic, broker or number")
