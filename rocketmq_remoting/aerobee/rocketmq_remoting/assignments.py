"""Queues that a broker assigns: a client asks whose of a topic's queues it shall read, instead of
dividing them itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue
from aerobee.rocketmq_remoting import json_bodies
from aerobee.rocketmq_remoting.queues import queue_object
from aerobee.runtime.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class AssignmentAsked:
    """Who asks, and for which topic."""

    client_id: str
    group: str
    topic: str
    is_broadcasting: bool


def read_assignment_asked(body: bytes) -> AssignmentAsked:
    """Raises InvalidArgument."""
    found = json_bodies.read_object(body)
    client_id, group, topic = (found.get(name) for name in ("clientId", "consumerGroup", "topic"))
    if not (isinstance(client_id, str) and isinstance(group, str) and isinstance(topic, str)):
        raise InvalidArgument("the body names no client, group and topic")
    return AssignmentAsked(client_id, group, topic, found.get("messageModel") == "BROADCASTING")


def share_of(
    client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]
) -> Sequence[MessageQueue]:
    """Consecutive queues, as Java's `AllocateMessageQueueAveragely` gives them; none to a client
    that is no member. Both sequences are sorted."""
    if client_id not in members:
        return ()
    at = members.index(client_id)
    each, more = divmod(len(queues), len(members))
    first = at * each + min(at, more)
    return queues[first : first + each + (at < more)]


def assignment_body(queues: Sequence[MessageQueue]) -> bytes:
    """All are read by pulling."""
    found = [{"messageQueue": queue_object(queue), "mode": "PULL"} for queue in queues]
    return json_bodies.write({"messageQueueAssignments": found})
